/* vk_slots.c: slot_copy, slot_zero: rows of recurrent state.  All reads come before any write, so copied rows pass
 * through scratch. */
#include "devices/vulkan/core/vk_dev.h"

enum { PIECE = 16384 };            /* bytes of one workgroup */

static int slots_fit(vk_device *d, const char *op, const void *base, int n, size_t bytes, kvant_diag *diag)
{
    if ((uintptr_t)base % 4)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %s: base address not a multiple of 4", op);
    if ((uint32_t)n > d->caps.max_groups)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %s: %d slots, wanted at most %u", op, n,
                          d->caps.max_groups);
    return vk_fits(op, (int64_t)bytes, diag);
}

static int slot_copy_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_slot_copy_args *a = args;
    return slots_fit(d, "slot_copy", a->base, a->n, a->stride > a->bytes ? a->stride : a->bytes, diag);
}

static size_t copy_words(const kvant_slot_copy_args *a)
{
    return (a->bytes + 3) / 4;
}

static size_t slot_copy_scratch(vk_device *d, const void *args)
{
    const kvant_slot_copy_args *a = args;
    (void)d;
    return (size_t)a->n * copy_words(a) * 4;
}

static int slot_copy_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_slot_copy_args *a = args;
    if (a->n <= 0 || a->bytes == 0)
        return KVANT_OK;
    KVANT_TRY(slot_copy_supports(d, args, diag));
    for (int gather = 1; gather >= 0; gather--) {
        vk_call c;
        vk_call_begin(&c, VK_SHADER_slot_copy);
        vk_ptr(&c, a->base, vk_rest(d, a->base), gather ? VK_READ : VK_WRITE);
        vk_ptr(&c, d->scratch, slot_copy_scratch(d, args), gather ? VK_WRITE : VK_READ);
        vk_ptr(&c, gather ? a->src : a->dst, (size_t)a->n * 4, VK_READ);
        vk_uint(&c, (int64_t)a->stride);
        vk_uint(&c, (int64_t)a->bytes);
        vk_uint(&c, (int64_t)copy_words(a));
        vk_uint(&c, gather);
        vk_uint(&c, PIECE);
        KVANT_TRY(vk_dispatch(d, l, &c, (a->bytes + PIECE - 1) / PIECE, (uint32_t)a->n, 1, diag));
    }
    return KVANT_OK;
}

static int slot_zero_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_slot_zero_args *a = args;
    return slots_fit(d, "slot_zero", a->base, a->n, a->stride > a->bytes ? a->stride : a->bytes, diag);
}

static int slot_zero_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_slot_zero_args *a = args;
    vk_call c;
    if (a->n <= 0 || a->bytes == 0)
        return KVANT_OK;
    KVANT_TRY(slot_zero_supports(d, args, diag));
    vk_call_begin(&c, VK_SHADER_slot_zero);
    vk_ptr(&c, a->base, vk_rest(d, a->base), VK_WRITE);
    vk_ptr(&c, a->dst, (size_t)a->n * 4, VK_READ);
    vk_uint(&c, (int64_t)a->stride);
    vk_uint(&c, (int64_t)a->bytes);
    vk_uint(&c, PIECE);
    return vk_dispatch(d, l, &c, (a->bytes + PIECE - 1) / PIECE, (uint32_t)a->n, 1, diag);
}

const vk_op vk_op_slot_copy = { .supports = slot_copy_supports, .scratch = slot_copy_scratch, .run = slot_copy_run };
const vk_op vk_op_slot_zero = { .supports = slot_zero_supports, .run = slot_zero_run };
