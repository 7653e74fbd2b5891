/* vk_choose.c: ops that pick the largest of a row: experts and the sum of what they gave, argmax, top_k.  Long rows are
 * cut into pieces, a workgroup each, and a second dispatch picks among what those found. */
#include "devices/vulkan/core/vk_dev.h"

/* Values of a row that a group takes (argmax, top_k); most groups of a row in top_k. */
enum { ARGMAX_PIECE = 8192, TOP_K_PIECE = 4096, TOP_K_PIECES = 64 };

static int top_k_pieces(int d)
{
    const int pieces = (d + TOP_K_PIECE - 1) / TOP_K_PIECE;
    return pieces < TOP_K_PIECES ? pieces : TOP_K_PIECES;
}

/* ---- moe ---- */

enum { MAX_EXPERTS = 1024, MAX_EXPERT_GROUPS = VK_GROUP }; /* as moe_route.comp */

static int moe_route_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = args;
    (void)d;
    if (a->n_expert > MAX_EXPERTS)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: moe_route: %d experts, wanted at most %d",
                          a->n_expert, MAX_EXPERTS);
    if (a->n_group > MAX_EXPERT_GROUPS)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: moe_route: %d groups, wanted at most %d",
                          a->n_group, MAX_EXPERT_GROUPS);
    return vk_fits("moe_route", (int64_t)a->n * a->n_expert, diag);
}

static int moe_route_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = args;
    const size_t picked = (size_t)a->n * (size_t)a->k * 4;
    vk_call c;
    KVANT_TRY(moe_route_supports(d, args, diag));
    vk_call_begin(&c, VK_SHADER_moe_route);
    vk_ptr(&c, a->logits, (size_t)a->n * (size_t)a->n_expert * 4, VK_READ);
    vk_ptr(&c, a->ids, picked, VK_WRITE);
    vk_ptr(&c, a->wts, picked, VK_WRITE);
    vk_ptr(&c, a->bias, a->bias ? (size_t)a->n_expert * 4 : 0, VK_READ);
    vk_uint(&c, a->n);
    vk_uint(&c, a->n_expert);
    vk_uint(&c, a->k);
    vk_float(&c, a->scale);
    vk_uint(&c, a->gating);
    vk_uint(&c, a->raw);
    vk_uint(&c, a->bias != NULL);
    vk_uint(&c, a->n_group);
    vk_uint(&c, a->top_groups);
    vk_uint(&c, a->group_best);
    return vk_dispatch(d, l, &c, (uint64_t)a->n, 1, 1, diag);
}

/* Workgroups of a row; what each has found is in scratch: values, then places. */
static int argmax_pieces(const kvant_argmax_args *a)
{
    return a->d > ARGMAX_PIECE ? (a->d + ARGMAX_PIECE - 1) / ARGMAX_PIECE : 1;
}

static size_t argmax_scratch(vk_device *d, const void *args)
{
    const kvant_argmax_args *a = args;
    (void)d;
    return argmax_pieces(a) > 1 && a->n > 0 ? (size_t)a->n * (size_t)argmax_pieces(a) * 8 : 0;
}

static int argmax_pass(vk_device *d, vk_list *l, const kvant_argmax_args *a, const float *x, int width, int merge,
                       kvant_diag *diag)
{
    const int pieces = argmax_pieces(a), mine = merge ? 1 : pieces;
    const size_t found = pieces > 1 ? (size_t)a->n * (size_t)pieces * 4 : 0;
    char *scratch = d->scratch;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_argmax);
    vk_ptr(&c, x, (size_t)a->n * (size_t)width * 4, VK_READ);
    vk_ptr(&c, a->ids, merge || pieces == 1 ? (size_t)a->n * 4 : 0, VK_WRITE);
    vk_ptr(&c, found ? scratch : NULL, found, merge ? VK_READ : VK_WRITE);
    vk_ptr(&c, found ? scratch + found : NULL, found, merge ? VK_READ : VK_WRITE);
    vk_uint(&c, a->n);
    vk_uint(&c, width);
    vk_uint(&c, mine);
    vk_spec(&c, (uint32_t)merge);
    vk_spec(&c, ARGMAX_PIECE);
    return vk_dispatch(d, l, &c, (uint64_t)a->n * (uint64_t)mine, 1, 1, diag);
}

static int argmax_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_argmax_args *a = args;
    KVANT_TRY(argmax_pass(d, l, a, a->x, a->d, 0, diag));
    if (argmax_pieces(a) == 1)
        return KVANT_OK;
    return argmax_pass(d, l, a, d->scratch, argmax_pieces(a), 1, diag);
}

/* The pieces of every row, then every row's lists. */
static size_t top_k_scratch(vk_device *d, const void *args)
{
    const kvant_top_k_args *a = args;
    (void)d;
    return (size_t)a->n * (size_t)top_k_pieces(a->d) * (size_t)a->k * 8;
}

static int top_k_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_top_k_args *a = args;
    const int pieces = top_k_pieces(a->d);
    const size_t out = (size_t)a->n * (size_t)a->k * 4;

    for (int parts = pieces; parts >= 0; parts -= pieces) {
        vk_call c;
        vk_call_begin(&c, VK_SHADER_top_k);
        vk_ptr(&c, a->x, (size_t)a->n * (size_t)a->d * 4, VK_READ);
        vk_ptr(&c, d->scratch, top_k_scratch(d, args), parts ? VK_WRITE : VK_READ);
        vk_ptr(&c, a->values, out, VK_WRITE);
        vk_ptr(&c, a->ids, out, VK_WRITE);
        vk_uint(&c, a->n);
        vk_uint(&c, a->d);
        vk_uint(&c, a->k);
        vk_uint(&c, parts);
        vk_uint(&c, pieces);
        KVANT_TRY(vk_dispatch(d, l, &c, (uint64_t)a->n * (uint64_t)(parts ? parts : 1), 1, 1, diag));
    }
    return KVANT_OK;
}

static int64_t top_k_values(const void *args)
{
    const kvant_top_k_args *a = args;
    const int64_t lists = 2 * (int64_t)a->k * top_k_pieces(a->d);
    return (int64_t)a->n * (lists > a->d ? lists : a->d);
}

const vk_op vk_op_moe_route = { .supports = moe_route_supports, .run = moe_route_run };
const vk_op vk_op_top_k = { .name = "top_k", .values = top_k_values, .scratch = top_k_scratch, .run = top_k_run };
const vk_op vk_op_argmax = {
    .name = "argmax", .counted = 1, .scratch = argmax_scratch, .run = argmax_run
};
