/* port_rows.c: ops on rows, element by element, and rope: one dispatch each. */
#include "devices/portable/core/port_dev.h"
#include "devices/portable/ops/ops_params.h"

/* Bytes of n rows of h groups of d values. */
static size_t grouped(int64_t n, int64_t ld, int64_t h, int64_t g, int64_t d)
{
    return n > 0 && h > 0 ? (size_t)((n - 1) * ld + (h - 1) * g + d) * sizeof(float) : 0;
}

static size_t rows(int64_t n, int64_t ld, int64_t d)
{
    return grouped(n, ld, 1, 0, d);
}

static int each_value(port_device *d, const port_call *c, int64_t n, int h, int width, kvant_diag *diag)
{
    return port_dispatch(d, c, n, h, (width + ROWS_SPAN - 1) / ROWS_SPAN, diag);
}

static int mul_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_mul_args *a = args;
    const struct p_rows p = { .ldy = a->ldy, .ldx = a->ldx, .d = a->d };
    port_call c = PORT_CALL(mul, p);
    port_write(&c, a->y, rows(a->n, a->ldy, a->d));
    port_read(&c, a->x, rows(a->n, a->ldx, a->d));
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(mul, NULL, mul_run)

static int add_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_add_args *a = args;
    const struct p_rows p = { .ldy = a->d, .ldx = a->d, .d = a->d };
    port_call c = PORT_CALL(add, p);
    port_write(&c, a->x, rows(a->n, a->d, a->d));
    port_read(&c, a->y, rows(a->n, a->d, a->d));
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(add, NULL, add_run)

static int bias_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_bias_args *a = args;
    const struct p_rows p = { .ldy = a->ldy, .ldx = a->d, .d = a->d, .n = a->ids != NULL };
    port_call c = PORT_CALL(bias, p);
    port_write(&c, a->y, rows(a->n, a->ldy, a->d));
    port_read(&c, a->b, rows(a->n_b, a->d, a->d));
    port_read(&c, a->ids, a->ids ? rows(a->n, 1, 1) : 0);
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(bias, NULL, bias_run)

static int scale_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_scale_args *a = args;
    const struct p_rows p = { .ldy = a->d, .d = a->d, .f = a->s };
    port_call c = PORT_CALL(scale, p);
    port_write(&c, a->x, rows(a->n, a->d, a->d));
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(scale, NULL, scale_run)

static int softcap_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_softcap_args *a = args;
    const struct p_rows p = { .ldy = a->d, .d = a->d, .f = a->cap };
    port_call c = PORT_CALL(softcap, p);
    port_write(&c, a->x, rows(a->n, a->d, a->d));
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(softcap, NULL, softcap_run)

static int attn_temp_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_temp_args *a = args;
    const struct p_rows p = { .ldy = a->ldx, .d = a->d, .f = a->beta, .n = a->length };
    port_call c = PORT_CALL(attn_temp, p);
    port_write(&c, a->x, rows(a->n, a->ldx, a->d));
    port_read(&c, a->pos, rows(a->n, 1, 1));
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(attn_temp, NULL, attn_temp_run)

static int rows_copy_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_rows_copy_args *a = args;
    const struct p_rows p = { .ldy = a->ldy, .gy = a->gy, .ldx = a->ldx, .gx = a->gx, .d = a->d };
    port_call c = PORT_CALL(rows_copy, p);
    port_write(&c, a->y, grouped(a->n, a->ldy, a->h, a->gy, a->d));
    port_read(&c, a->x, grouped(a->n, a->ldx, a->h, a->gx, a->d));
    return each_value(d, &c, a->n, a->h, a->d, diag);
}
PORT_OP(rows_copy, NULL, rows_copy_run)

static int rows_gather_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_rows_gather_args *a = args;
    const struct p_rows p = { .ldy = a->d, .ldx = a->d, .d = a->d };
    port_call c = PORT_CALL(rows_gather, p);
    port_write(&c, a->y, rows(a->n, a->d, a->d));
    port_read(&c, a->x, d->rest(d, a->x));
    port_read(&c, a->idx, rows(a->n, 1, 1));
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(rows_gather, NULL, rows_gather_run)

static int gate_mul_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gate_mul_args *a = args;
    const struct p_rows p = { .ldy = a->ldy, .gy = a->gy, .ldx = a->ldg, .gx = a->gg, .d = a->d };
    port_call c = PORT_CALL(gate_mul, p);
    port_write(&c, a->y, grouped(a->n, a->ldy, a->h, a->gy, a->d));
    port_read(&c, a->gate, grouped(a->n, a->ldg, a->h, a->gg, a->d));
    return each_value(d, &c, a->n, a->h, a->d, diag);
}
PORT_OP(gate_mul, NULL, gate_mul_run)

static int gate_add_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gate_add_args *a = args;
    const struct p_rows p = { .ldy = a->d, .ldx = a->d, .d = a->d };
    port_call c = PORT_CALL(gate_add, p);
    port_write(&c, a->y, rows(a->n, a->d, a->d));
    port_read(&c, a->x, rows(a->n, a->d, a->d));
    port_read(&c, a->gate, rows(a->n, 1, 1));
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(gate_add, NULL, gate_add_run)

static int moe_combine_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_combine_args *a = args;
    const struct p_rows p = { .ldy = a->d, .ldx = a->d, .d = a->d, .n = a->k };
    const int64_t slots = (int64_t)a->n * a->k;
    port_call c = PORT_CALL(moe_combine, p);
    port_write(&c, a->y, rows(a->n, a->d, a->d));
    port_read(&c, a->x, rows(slots, a->d, a->d));
    port_read(&c, a->wts, rows(slots, 1, 1));
    return each_value(d, &c, a->n, 1, a->d, diag);
}
PORT_OP(moe_combine, NULL, moe_combine_run)

static int swiglu_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_swiglu_args *a = args;
    const struct p_glu p = { .ldg = a->ldg, .ldu = a->ldu, .ldy = a->ldy, .d = a->f };
    port_call c = PORT_CALL(swiglu, p);
    port_read(&c, a->gate, rows(a->n, a->ldg, a->f));
    port_read(&c, a->up, rows(a->n, a->ldu, a->f));
    port_write(&c, a->y, rows(a->n, a->ldy, a->f));
    return each_value(d, &c, a->n, 1, a->f, diag);
}
PORT_OP(swiglu, NULL, swiglu_run)

static int glu_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_glu_args *a = args;
    if (a->kind >= KVANT_GLU_GELU && a->kind <= KVANT_GLU_GELU_ALONE)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: glu: kind %d, wanted 0 to %d", d->base.vt->name, a->kind,
                      KVANT_GLU_GELU_ALONE);
}

static int glu_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_glu_args *a = args;
    const struct p_glu p = { .ldg = a->ldg, .ldu = a->ldu, .ldy = a->ldy, .d = a->f, .kind = a->kind,
                             .alpha = a->alpha, .limit = a->limit };
    port_call c = PORT_CALL(glu, p);
    port_read(&c, a->gate, rows(a->n, a->ldg, a->f));
    port_read(&c, a->up, rows(a->n, a->ldu, a->f));
    port_write(&c, a->y, rows(a->n, a->ldy, a->f));
    return each_value(d, &c, a->n, 1, a->f, diag);
}
PORT_OP(glu, glu_supports, glu_run)

static int rope_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_rope_args *a = args;
    const struct p_rope p = { .ldx = a->ldx, .gx = a->gx, .n_half = a->n_rot / 2, .neox = a->neox,
                              .mscale = a->mscale };
    port_call c = PORT_CALL(rope, p);
    port_write(&c, a->x, grouped(a->n, a->ldx, a->h, a->gx, a->n_rot));
    port_read(&c, a->pos, rows(a->n, 1, 1));
    port_read(&c, a->inv_freq, rows(a->n_rot / 2, 1, 1));
    return port_dispatch(d, &c, a->n, a->h, 1, diag);
}
PORT_OP(rope, NULL, rope_run)
