/* vk_fuse.c: neighbours in a list of ops that one dispatch does, with the same bytes in every buffer afterwards:
 *   norm_rms, norm_rms, rope, rope    of queries and keys, in place: a dispatch each, nothing to wait for in between
 *   matmul, swiglu                    of the halves of its rows, in gate's place: where matmul_dot takes the product
 * In a step of one token the barriers saved cost more than the arithmetic. */
#include "devices/vulkan/vk_dev.h"

static int fuses_norm_rope(const kvant_norm_rms_args *a, const kvant_rope_args *r)
{
    return a->x == a->y && a->ldx == a->ldy && a->gx == a->gy && r->x == a->x && r->ldx == a->ldx && r->gx == a->gx &&
           r->n == a->n && r->h == a->h && r->n_rot <= a->d && r->n_rot % 2 == 0;
}

static int norms_and_ropes(vk_device *d, vk_list *l, const kvant_op *ops, int n, int *took, kvant_diag *diag)
{
    *took = 0;
    if (n < 4 || ops[0].id != KVANT_OP_NORM_RMS || ops[1].id != KVANT_OP_NORM_RMS || ops[2].id != KVANT_OP_ROPE ||
        ops[3].id != KVANT_OP_ROPE || !fuses_norm_rope(ops[0].args, ops[2].args) ||
        !fuses_norm_rope(ops[1].args, ops[3].args))
        return KVANT_OK;
    *took = 4;
    KVANT_TRY(vk_norm_rope(d, l, ops[0].args, ops[2].args, diag));
    return vk_norm_rope(d, l, ops[1].args, ops[3].args, diag);
}

int vk_fuse(vk_device *d, vk_list *l, const kvant_op *ops, int n, int *took, kvant_diag *diag)
{
    KVANT_TRY(norms_and_ropes(d, l, ops, n, took, diag));
    if (*took || n < 2 || ops[0].id != KVANT_OP_MATMUL || ops[1].id != KVANT_OP_SWIGLU)
        return KVANT_OK;
    KVANT_TRY(vk_matmul_swiglu(d, l, ops[0].args, ops[1].args, took, diag));
    *took *= 2;
    return KVANT_OK;
}
