/* vk_rows.c: norms, ropes and the gates of the delta rule: one dispatch each.  Arguments in the order of the shader's
 * ARGS. */
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

/* Bytes of n rows of h groups of d values. */
static size_t grouped_bytes(int n, int64_t ld, int h, int64_t g, int d)
{
    return n > 0 && h > 0 ? (size_t)((n - 1) * ld + (h - 1) * g + d) * sizeof(float) : 0;
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

#define SMALL(op) const vk_op vk_op_##op = { .name = #op, .counted = 1, .run = op##_run };
SMALL(gdn_gates)
SMALL(rope)
SMALL(norm_rms)
SMALL(norm_layer)
SMALL(norm_add_rms)
SMALL(norm_l2)
SMALL(norm_gated)
#undef SMALL
