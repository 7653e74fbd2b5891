/* vk_rows.c: ops on rows, element by element, norms, ropes and gathers: one dispatch each.  Arguments in the order of
 * the shader's ARGS. */
#include "devices/vulkan/core/vk_dev.h"

static uint64_t groups(int64_t n)
{
    return (uint64_t)((n + VK_GROUP - 1) / VK_GROUP);
}

/* Bytes of n rows `ld` values apart whose last has `width`. */
static size_t rows_bytes(int64_t n, int64_t ld, int64_t width)
{
    return n > 0 ? (size_t)((n - 1) * ld + width) * sizeof(float) : 0;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* <op>_values: values of the largest array that the op indexes. */
#define VALUES(op, expression)                                                                                        \
    static int64_t op##_values(const void *args)                                                                      \
    {                                                                                                                 \
        const kvant_##op##_args *a = args;                                                                            \
        return expression;                                                                                            \
    }
VALUES(mul, (int64_t)a->n * larger(a->ldy, a->ldx))
VALUES(add, (int64_t)a->n * a->d)
VALUES(bias, larger((int64_t)a->n * a->ldy, (int64_t)a->n_b * a->d))
VALUES(rows_copy, (int64_t)a->n * larger(larger(a->ldx, a->ldy), (int64_t)a->h * a->d))
VALUES(scale, (int64_t)a->n * a->d)
VALUES(attn_temp, (int64_t)a->n * a->ldx)
VALUES(softcap, (int64_t)a->n * a->d)
VALUES(swiglu, (int64_t)a->n * larger(larger(a->ldg, a->ldu), a->ldy))
VALUES(glu, (int64_t)a->n * larger(larger(a->ldg, a->ldu), a->ldy))
VALUES(gate_mul, (int64_t)a->n * larger(a->ldy, a->ldg))
VALUES(gate_add, (int64_t)a->n * a->d)
VALUES(gdn_gates, (int64_t)a->n * a->h * larger(a->channels, 1))
VALUES(rows_gather, (int64_t)a->n * a->d)
VALUES(rope, (int64_t)a->n * a->ldx)
VALUES(norm_rms, (int64_t)a->n * larger(a->ldx, a->ldy))
VALUES(norm_layer, larger((int64_t)a->n * larger(a->ldx, a->ldy), (int64_t)a->h * larger(a->gw, a->d)))
VALUES(norm_add_rms, (int64_t)a->n * a->d)
VALUES(norm_l2, (int64_t)a->n * a->ldx)
VALUES(norm_gated, (int64_t)a->n * larger(a->ldz, (int64_t)a->h * a->dv))
#undef VALUES

static int mul_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_mul_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_mul);
    vk_ptr(&c, a->y, rows_bytes(a->n, a->ldy, a->d), VK_WRITE);
    vk_ptr(&c, a->x, rows_bytes(a->n, a->ldx, a->d), VK_READ);
    vk_uint(&c, a->n);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldy);
    vk_uint(&c, a->ldx);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->d), 1, 1, diag);
}

static int add_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_add_args *a = args;
    const int64_t n = (int64_t)a->n * a->d;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_add);
    vk_ptr(&c, a->x, (size_t)n * 4, VK_WRITE);
    vk_ptr(&c, a->y, (size_t)n * 4, VK_READ);
    vk_uint(&c, n);
    return vk_dispatch(d, l, &c, groups(n), 1, 1, diag);
}

static int bias_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_bias_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_bias);
    vk_ptr(&c, a->y, rows_bytes(a->n, a->ldy, a->d), VK_WRITE);
    vk_ptr(&c, a->b, (size_t)a->n_b * (size_t)a->d * 4, VK_READ);
    vk_ptr(&c, a->ids, a->ids ? (size_t)a->n * 4 : 0, VK_READ);
    vk_uint(&c, a->n);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldy);
    vk_uint(&c, a->ids != NULL);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->d), 1, 1, diag);
}

/* Floats that h groups of d, g apart, span. */
static int64_t span(int h, int64_t g, int d)
{
    return (h - 1) * g + d;
}

static int rows_copy_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_rows_copy_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_rows_copy);
    vk_ptr(&c, a->x, rows_bytes(a->n, a->ldx, span(a->h, a->gx, a->d)), VK_READ);
    vk_ptr(&c, a->y, rows_bytes(a->n, a->ldy, span(a->h, a->gy, a->d)), VK_WRITE);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->gx);
    vk_uint(&c, a->ldy);
    vk_uint(&c, a->gy);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->h * a->d), 1, 1, diag);
}

static int scale_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_scale_args *a = args;
    const int64_t n = (int64_t)a->n * a->d;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_scale);
    vk_ptr(&c, a->x, (size_t)n * 4, VK_WRITE);
    vk_float(&c, a->s);
    vk_uint(&c, n);
    return vk_dispatch(d, l, &c, groups(n), 1, 1, diag);
}

static int softcap_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_softcap_args *a = args;
    const int64_t n = (int64_t)a->n * a->d;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_softcap);
    vk_ptr(&c, a->x, (size_t)n * 4, VK_WRITE);
    vk_float(&c, a->cap);
    vk_uint(&c, n);
    return vk_dispatch(d, l, &c, groups(n), 1, 1, diag);
}

static int attn_temp_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_attn_temp_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_attn_temp);
    vk_ptr(&c, a->x, rows_bytes(a->n, a->ldx, a->d), VK_WRITE);
    vk_ptr(&c, a->pos, (size_t)a->n * 4, VK_READ);
    vk_float(&c, a->beta);
    vk_uint(&c, a->length);
    vk_uint(&c, a->n);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldx);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->d), 1, 1, diag);
}

static int swiglu_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_swiglu_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_swiglu);
    vk_ptr(&c, a->gate, rows_bytes(a->n, a->ldg, a->f), VK_READ);
    vk_ptr(&c, a->up, rows_bytes(a->n, a->ldu, a->f), VK_READ);
    vk_ptr(&c, a->y, rows_bytes(a->n, a->ldy, a->f), VK_WRITE);
    vk_uint(&c, a->n);
    vk_uint(&c, a->f);
    vk_uint(&c, a->ldg);
    vk_uint(&c, a->ldu);
    vk_uint(&c, a->ldy);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->f), 1, 1, diag);
}

static int glu_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_glu_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_glu);
    vk_ptr(&c, a->gate, rows_bytes(a->n, a->ldg, a->f), VK_READ);
    vk_ptr(&c, a->up, rows_bytes(a->n, a->ldu, a->f), VK_READ);
    vk_ptr(&c, a->y, rows_bytes(a->n, a->ldy, a->f), VK_WRITE);
    vk_uint(&c, a->n);
    vk_uint(&c, a->f);
    vk_uint(&c, a->ldg);
    vk_uint(&c, a->ldu);
    vk_uint(&c, a->ldy);
    vk_uint(&c, a->kind);
    vk_float(&c, a->alpha);
    vk_float(&c, a->limit);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->f), 1, 1, diag);
}

/* Bytes of n rows of h groups of d values. */
static size_t grouped_bytes(int n, int64_t ld, int h, int64_t g, int d)
{
    return n > 0 && h > 0 ? (size_t)((n - 1) * ld + (h - 1) * g + d) * sizeof(float) : 0;
}

static int gate_mul_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_gate_mul_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_gate_mul);
    vk_ptr(&c, a->y, grouped_bytes(a->n, a->ldy, a->h, a->gy, a->d), VK_WRITE);
    vk_ptr(&c, a->gate, grouped_bytes(a->n, a->ldg, a->h, a->gg, a->d), VK_READ);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldy);
    vk_uint(&c, a->gy);
    vk_uint(&c, a->ldg);
    vk_uint(&c, a->gg);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->h * a->d), 1, 1, diag);
}

static int gate_add_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_gate_add_args *a = args;
    const int64_t n = (int64_t)a->n * a->d;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_gate_add);
    vk_ptr(&c, a->y, (size_t)n * 4, VK_WRITE);
    vk_ptr(&c, a->x, (size_t)n * 4, VK_READ);
    vk_ptr(&c, a->gate, (size_t)a->n * 4, VK_READ);
    vk_uint(&c, a->n);
    vk_uint(&c, a->d);
    return vk_dispatch(d, l, &c, groups(n), 1, 1, diag);
}

static int gdn_gates_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_gdn_gates_args *a = args;
    const int d_head = a->channels > 0 ? a->channels : 1;
    const int64_t n = (int64_t)a->n * a->h * d_head;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_gdn_gates);
    vk_ptr(&c, a->alpha, (size_t)n * 4, VK_WRITE);
    vk_ptr(&c, a->beta, (size_t)a->n * (size_t)a->h * 4, VK_WRITE);
    vk_ptr(&c, a->a, (size_t)a->h * 4, VK_READ);
    vk_ptr(&c, a->dt, (size_t)a->h * (size_t)d_head * 4, VK_READ);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, d_head);
    return vk_dispatch(d, l, &c, groups(n), 1, 1, diag);
}

static int rows_gather_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_rows_gather_args *a = args;
    const int64_t n = (int64_t)a->n * a->d;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_rows_gather);
    vk_ptr(&c, a->x, vk_rest(d, a->x), VK_READ);
    vk_ptr(&c, a->idx, (size_t)a->n * 4, VK_READ);
    vk_ptr(&c, a->y, (size_t)n * 4, VK_WRITE);
    vk_uint(&c, a->n);
    vk_uint(&c, a->d);
    return vk_dispatch(d, l, &c, groups(n), 1, 1, diag);
}

static int rope_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_rope_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_rope);
    vk_ptr(&c, a->x, grouped_bytes(a->n, a->ldx, a->h, a->gx, a->n_rot), VK_WRITE);
    vk_ptr(&c, a->pos, (size_t)a->n * 4, VK_READ);
    vk_ptr(&c, a->inv_freq, (size_t)(a->n_rot / 2) * 4, VK_READ);
    vk_float(&c, a->mscale);
    vk_uint(&c, a->neox);
    vk_uint(&c, a->n_rot / 2);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->gx);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->h * (a->n_rot / 2)), 1, 1, diag);
}

/* ---- norms: one workgroup per group of values ---- */

static int norm_rms_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_norm_rms_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_norm_rms);
    vk_ptr(&c, a->x, grouped_bytes(a->n, a->ldx, a->h, a->gx, a->d), VK_READ);
    vk_ptr(&c, a->w, (size_t)a->d * 4, VK_READ);
    vk_ptr(&c, a->y, grouped_bytes(a->n, a->ldy, a->h, a->gy, a->d), VK_WRITE);
    vk_float(&c, a->eps);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->gx);
    vk_uint(&c, a->ldy);
    vk_uint(&c, a->gy);
    return vk_dispatch(d, l, &c, (uint64_t)a->n * (uint64_t)a->h, 1, 1, diag);
}

static int norm_layer_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_norm_layer_args *a = args;
    const size_t own = grouped_bytes(1, 0, a->h, a->gw, a->d);
    vk_call c;
    vk_call_begin(&c, VK_SHADER_norm_layer);
    vk_ptr(&c, a->x, grouped_bytes(a->n, a->ldx, a->h, a->gx, a->d), VK_READ);
    vk_ptr(&c, a->w, own, VK_READ);
    vk_ptr(&c, a->b, a->b ? own : 0, VK_READ);
    vk_ptr(&c, a->y, grouped_bytes(a->n, a->ldy, a->h, a->gy, a->d), VK_WRITE);
    vk_float(&c, a->eps);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->gx);
    vk_uint(&c, a->ldy);
    vk_uint(&c, a->gy);
    vk_uint(&c, a->gw);
    vk_uint(&c, a->b != NULL);
    return vk_dispatch(d, l, &c, (uint64_t)a->n * (uint64_t)a->h, 1, 1, diag);
}

static int norm_add_rms_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_norm_add_rms_args *a = args;
    const size_t bytes = (size_t)a->n * (size_t)a->d * 4;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_norm_add_rms);
    vk_ptr(&c, a->x, bytes, VK_WRITE);
    vk_ptr(&c, a->add, bytes, VK_READ);
    vk_ptr(&c, a->w, (size_t)a->d * 4, VK_READ);
    vk_ptr(&c, a->y, bytes, VK_WRITE);
    vk_float(&c, a->eps);
    vk_uint(&c, a->n);
    vk_uint(&c, a->d);
    return vk_dispatch(d, l, &c, (uint64_t)a->n, 1, 1, diag);
}

static int norm_l2_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_norm_l2_args *a = args;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_norm_l2);
    vk_ptr(&c, a->x, grouped_bytes(a->n, a->ldx, a->h, a->gx, a->d), VK_WRITE);
    vk_float(&c, a->eps);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->gx);
    return vk_dispatch(d, l, &c, (uint64_t)a->n * (uint64_t)a->h, 1, 1, diag);
}

static int norm_gated_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_norm_gated_args *a = args;
    const int64_t row = (int64_t)a->h * a->dv;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_norm_gated);
    vk_ptr(&c, a->o, rows_bytes(a->n, row, row), VK_READ);
    vk_ptr(&c, a->z, rows_bytes(a->n, a->ldz, row), VK_READ);
    vk_ptr(&c, a->w, (size_t)a->dv * 4, VK_READ);
    vk_ptr(&c, a->y, rows_bytes(a->n, row, row), VK_WRITE);
    vk_float(&c, a->eps);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->dv);
    vk_uint(&c, a->ldz);
    return vk_dispatch(d, l, &c, (uint64_t)a->n * (uint64_t)a->h, 1, 1, diag);
}

static void norm_rope_pages(const vk_device *d, vk_call *c, const kvant_cache_write_args *to)
{
    const kvant_seqs *q = to ? &to->seqs : NULL;
    const vk_side side = { .s = to ? &to->side : NULL };
    if (to)
        vk_side_pages(d, c, &side, VK_WRITE);
    else
        vk_ptr(c, NULL, 0, VK_READ);
    vk_ptr(c, q ? q->q0 : NULL, q ? (size_t)(q->n_seqs + 1) * 4 : 0, VK_READ);
    vk_ptr(c, q ? q->pos0 : NULL, q ? (size_t)q->n_seqs * 4 : 0, VK_READ);
    vk_ptr(c, q ? q->table : NULL, q ? (size_t)q->n_seqs * (size_t)q->table_stride * 4 : 0, VK_READ);
}

int vk_norm_rope(vk_device *d, vk_list *l, const kvant_norm_rms_args *a, const kvant_rope_args *r,
                 const kvant_cache_write_args *to, kvant_diag *diag)
{
    const kvant_kv_side none = { 0 }, *side = to ? &to->side : &none;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_norm_rope);
    vk_ptr(&c, a->x, grouped_bytes(a->n, a->ldx, a->h, a->gx, a->d), VK_WRITE);
    vk_ptr(&c, a->w, (size_t)a->d * 4, VK_READ);
    vk_ptr(&c, r->pos, (size_t)r->n * 4, VK_READ);
    vk_ptr(&c, r->inv_freq, (size_t)(r->n_rot / 2) * 4, VK_READ);
    norm_rope_pages(d, &c, to);
    vk_float(&c, a->eps);
    vk_float(&c, r->mscale);
    vk_uint(&c, r->neox);
    vk_uint(&c, r->n_rot / 2);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->gx);
    vk_uint(&c, to ? to->seqs.n_seqs : 0);
    vk_uint(&c, to ? to->seqs.table_stride : 0);
    vk_uint(&c, (int64_t)(side->page_bytes / 4));
    vk_uint(&c, (int64_t)side->head_bytes);
    vk_uint(&c, (int64_t)side->row_bytes);
    vk_spec(&c, to != NULL);
    return vk_dispatch(d, l, &c, (uint64_t)a->n * (uint64_t)a->h, 1, 1, diag);
}

#define SMALL(op) const vk_op vk_op_##op = { .name = #op, .values = op##_values, .run = op##_run };
SMALL(mul)
SMALL(add)
SMALL(bias)
SMALL(rows_copy)
SMALL(scale)
SMALL(attn_temp)
SMALL(softcap)
SMALL(swiglu)
SMALL(glu)
SMALL(gate_mul)
SMALL(gate_add)
SMALL(gdn_gates)
SMALL(rows_gather)
SMALL(rope)
SMALL(norm_rms)
SMALL(norm_layer)
SMALL(norm_add_rms)
SMALL(norm_l2)
SMALL(norm_gated)
#undef SMALL
