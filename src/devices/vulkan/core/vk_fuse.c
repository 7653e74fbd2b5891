/* vk_fuse.c: neighbours in a list of ops that one dispatch does, with the same values in every buffer afterwards
 * (sums of squares in another order):
 *   norm_rms, norm_rms, rope, rope    of queries and keys, in place: a dispatch each, nothing to wait for in between
 *   and cache_write, cache_write      of them: keys of f16 pages by the same dispatch, values beside it
 *   matmul or matmul_id, swiglu       of the halves of its rows, in gate's place: where matmul_dot takes the product
 *   matmul, norm_add_rms, matmul      where it takes both: the first adds to the residual stream, the second norms it
 * In a step of one token the barriers saved cost more than the arithmetic. */
#include "devices/vulkan/core/vk_dev.h"

static int fuses_norm_rope(const kvant_norm_rms_args *a, const kvant_rope_args *r)
{
    return a->x == a->y && a->ldx == a->ldy && a->gx == a->gy && r->x == a->x && r->ldx == a->ldx && r->gx == a->gx &&
           r->n == a->n && r->h == a->h && r->n_rot <= a->d && r->n_rot % 2 == 0;
}

/* Both rows into pages, those of keys as f16: values are written beside the norms, keys by their rope. */
static int writes_follow(const kvant_norm_rms_args *k, const kvant_op *ops, int n)
{
    const kvant_cache_write_args *a = n < 2 ? NULL : ops[0].args, *b = n < 2 ? NULL : ops[1].args;
    enum { MOST = 512 };           /* norm_rope.comp */
    return n >= 2 && ops[0].id == KVANT_OP_CACHE_WRITE && ops[1].id == KVANT_OP_CACHE_WRITE && a->x == k->x &&
           a->ldx == k->ldx && k->gx == k->d && a->d == k->d && a->h == k->h && a->seqs.n_tokens == k->n &&
           strcmp(a->side.fmt->name, "f16") == 0 && !a->side.tail && a->d % 2 == 0 && a->d <= MOST && b->x != a->x;
}

static int norms_and_ropes(vk_device *d, vk_list *l, const kvant_op *ops, int n, int *took, kvant_diag *diag)
{
    int writes;
    *took = 0;
    if (n < 4 || ops[0].id != KVANT_OP_NORM_RMS || ops[1].id != KVANT_OP_NORM_RMS || ops[2].id != KVANT_OP_ROPE ||
        ops[3].id != KVANT_OP_ROPE || !fuses_norm_rope(ops[0].args, ops[2].args) ||
        !fuses_norm_rope(ops[1].args, ops[3].args))
        return KVANT_OK;
    writes = writes_follow(ops[1].args, ops + 4, n - 4);
    *took = writes ? 6 : 4;
    if (writes)
        KVANT_TRY(vk_op_cache_write.run(d, l, ops[5].args, diag));
    KVANT_TRY(vk_norm_rope(d, l, ops[0].args, ops[2].args, NULL, diag));
    return vk_norm_rope(d, l, ops[1].args, ops[3].args, writes ? ops[4].args : NULL, diag);
}

int vk_fuse(vk_device *d, vk_list *l, const kvant_op *ops, int n, int *took, kvant_diag *diag)
{
    KVANT_TRY(norms_and_ropes(d, l, ops, n, took, diag));
    if (*took || n < 2 || (ops[0].id != KVANT_OP_MATMUL && ops[0].id != KVANT_OP_MATMUL_ID))
        return KVANT_OK;
    if (n > 2 && ops[0].id == KVANT_OP_MATMUL && ops[1].id == KVANT_OP_NORM_ADD_RMS && ops[2].id == KVANT_OP_MATMUL)
        return vk_matmul_norm(d, l, ops, n, took, diag);
    return ops[1].id == KVANT_OP_SWIGLU ? vk_matmul_swiglu(d, l, ops, took, diag) : KVANT_OK;
}
