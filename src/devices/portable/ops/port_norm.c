/* port_norm.c: norms: one group of threads per group of values. */
#include "devices/portable/core/port_dev.h"
#include "devices/portable/ops/ops_params.h"

static size_t grouped(int64_t n, int64_t ld, int64_t h, int64_t g, int64_t d)
{
    return n > 0 && h > 0 ? (size_t)((n - 1) * ld + (h - 1) * g + d) * sizeof(float) : 0;
}

static int norm_rms_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_rms_args *a = args;
    const struct p_norm p = { .ldx = a->ldx, .gx = a->gx, .ldy = a->ldy, .gy = a->gy, .h = a->h, .d = a->d,
                              .eps = a->eps };
    port_call c = PORT_CALL(norm_rms, p);
    port_read(&c, a->x, grouped(a->n, a->ldx, a->h, a->gx, a->d));
    port_read(&c, a->w, (size_t)a->d * sizeof(float));
    port_write(&c, a->y, grouped(a->n, a->ldy, a->h, a->gy, a->d));
    return port_dispatch(d, &c, (int64_t)a->n * a->h, 1, 1, diag);
}
PORT_OP(norm_rms, NULL, norm_rms_run)

static int norm_layer_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_layer_args *a = args;
    const struct p_norm_layer p = { .ldx = a->ldx, .gx = a->gx, .ldy = a->ldy, .gy = a->gy, .gw = a->gw, .h = a->h,
                                    .d = a->d, .has_b = a->b != NULL, .eps = a->eps };
    const size_t own = grouped(1, 0, a->h, a->gw, a->d);
    port_call c = PORT_CALL(norm_layer, p);
    port_read(&c, a->x, grouped(a->n, a->ldx, a->h, a->gx, a->d));
    port_read(&c, a->w, own);
    port_read(&c, a->b, a->b ? own : 0);
    port_write(&c, a->y, grouped(a->n, a->ldy, a->h, a->gy, a->d));
    return port_dispatch(d, &c, (int64_t)a->n * a->h, 1, 1, diag);
}
PORT_OP(norm_layer, NULL, norm_layer_run)

static int norm_add_rms_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_add_rms_args *a = args;
    const struct p_norm p = { .ldx = a->d, .h = 1, .d = a->d, .eps = a->eps };
    const size_t bytes = grouped(a->n, a->d, 1, 0, a->d);
    port_call c = PORT_CALL(norm_add_rms, p);
    port_write(&c, a->x, bytes);
    port_read(&c, a->add, bytes);
    port_read(&c, a->w, (size_t)a->d * sizeof(float));
    port_write(&c, a->y, bytes);
    return port_dispatch(d, &c, a->n, 1, 1, diag);
}
PORT_OP(norm_add_rms, NULL, norm_add_rms_run)

static int norm_l2_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_l2_args *a = args;
    const struct p_norm p = { .ldx = a->ldx, .gx = a->gx, .h = a->h, .d = a->d, .eps = a->eps };
    port_call c = PORT_CALL(norm_l2, p);
    port_write(&c, a->x, grouped(a->n, a->ldx, a->h, a->gx, a->d));
    return port_dispatch(d, &c, (int64_t)a->n * a->h, 1, 1, diag);
}
PORT_OP(norm_l2, NULL, norm_l2_run)

static int norm_gated_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_gated_args *a = args;
    const int64_t row = (int64_t)a->h * a->dv;
    const struct p_norm p = { .ldx = row, .gx = a->dv, .ldy = row, .gy = a->dv, .ldz = a->ldz, .h = a->h, .d = a->dv,
                              .eps = a->eps };
    port_call c = PORT_CALL(norm_gated, p);
    port_read(&c, a->o, grouped(a->n, row, 1, 0, row));
    port_read(&c, a->z, grouped(a->n, a->ldz, 1, 0, row));
    port_read(&c, a->w, (size_t)a->dv * sizeof(float));
    port_write(&c, a->y, grouped(a->n, row, 1, 0, row));
    return port_dispatch(d, &c, (int64_t)a->n * a->h, 1, 1, diag);
}
PORT_OP(norm_gated, NULL, norm_gated_run)
