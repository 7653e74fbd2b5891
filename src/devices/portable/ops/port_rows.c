/* port_rows.c: moe_combine and rope: one dispatch each. */
#include "devices/portable/core/port_dev.h"
#include "devices/portable/ops/ops_params.h"

/* Bytes of n rows of h groups of d values. */
static size_t grouped(int64_t n, int64_t ld, int64_t h, int64_t g, int64_t d)
{
    return n > 0 && h > 0 ? (size_t)((n - 1) * ld + (h - 1) * g + d) * sizeof(float) : 0;
}

static int moe_combine_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_combine_args *a = args;
    const struct p_moe_combine p = { .d = a->d, .k = a->k };
    port_call c = PORT_CALL(moe_combine, p);
    port_write(&c, a->y, grouped(a->n, a->d, 1, 0, a->d));
    port_read(&c, a->x, grouped((int64_t)a->n * a->k, a->d, 1, 0, a->d));
    port_read(&c, a->wts, grouped((int64_t)a->n * a->k, 1, 1, 0, 1));
    return port_dispatch(d, &c, a->n, 1, (a->d + ROWS_SPAN - 1) / ROWS_SPAN, diag);
}
PORT_OP(moe_combine, NULL, moe_combine_run)

static int rope_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_rope_args *a = args;
    const struct p_rope p = { .ldx = a->ldx, .gx = a->gx, .n_half = a->n_rot / 2, .neox = a->neox,
                              .mscale = a->mscale };
    port_call c = PORT_CALL(rope, p);
    port_write(&c, a->x, grouped(a->n, a->ldx, a->h, a->gx, a->n_rot));
    port_read(&c, a->pos, grouped(a->n, 1, 1, 0, 1));
    port_read(&c, a->inv_freq, grouped(a->n_rot / 2, 1, 1, 0, 1));
    return port_dispatch(d, &c, a->n, a->h, 1, diag);
}
PORT_OP(rope, NULL, rope_run)
