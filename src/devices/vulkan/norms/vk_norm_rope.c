/* vk_norm_rope.c: the fused forms of norms and ropes of queries and keys, with the cache behind them.  Arguments in the
 * order of ARGS of norm_rope.comp. */
#include "devices/vulkan/core/vk_dev.h"

/* Bytes of n rows of h groups of d values. */
static size_t grouped_bytes(int n, int64_t ld, int h, int64_t g, int d)
{
    return n > 0 && h > 0 ? (size_t)((n - 1) * ld + (h - 1) * g + d) * sizeof(float) : 0;
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

/* to: NULL, or then into its pages. */
static int run_norm_rope(vk_device *d, vk_list *l, const kvant_norm_rms_args *a, const kvant_rope_args *r,
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

/* Queries and keys: a dispatch each, nothing to wait for in between. */
static int norm_rope_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_op *ops = args;
    KVANT_TRY(run_norm_rope(d, l, ops[0].args, ops[2].args, NULL, diag));
    return run_norm_rope(d, l, ops[1].args, ops[3].args, NULL, diag);
}

/* Keys of f16 pages alone; values are whatever cache_write takes. */
static int norm_rope_write_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    enum { MOST = 512 };           /* norm_rope.comp */
    const kvant_cache_write_args *k = ((const kvant_op *)args)[4].args;
    (void)d;
    if (strcmp(k->side.fmt->name, "f16") == 0 && !k->side.tail && k->d % 2 == 0 && k->d <= MOST)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: norm_rope_write: %d values of %s, wanted an even number "
                      "up to %d of f16 without a tail", k->d, k->side.fmt->name, MOST);
}

/* Values are written beside the norms, keys by the dispatch of their rope. */
static int norm_rope_write_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_op *ops = args;
    KVANT_TRY(vk_op_cache_write.run(d, l, ops[5].args, diag));
    KVANT_TRY(run_norm_rope(d, l, ops[0].args, ops[2].args, NULL, diag));
    return run_norm_rope(d, l, ops[1].args, ops[3].args, ops[4].args, diag);
}

const vk_op vk_fused_norm_rope = { .name = "norm_rope", .run = norm_rope_run };
const vk_op vk_fused_norm_rope_write = { .name = "norm_rope_write", .supports = norm_rope_write_supports,
                                         .run = norm_rope_write_run };
