/* vk_ops_small.c: element by element, norms, rows and slots, moe: one dispatch each (slot_copy: two).  Arguments in the
 * order of the shader's ARGS. */
#include "devices/vulkan/vk_dev.h"

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

enum { TOP_K_PIECE = 4096, TOP_K_PIECES = 64 };        /* values of a row that a group takes; most groups of a row */

static int top_k_pieces(int d)
{
    const int pieces = (d + TOP_K_PIECE - 1) / TOP_K_PIECE;
    return pieces < TOP_K_PIECES ? pieces : TOP_K_PIECES;
}

/* <op>_values: values of the largest array that the op indexes. */
#define VALUES(op, expression)                                                                                        \
    static int64_t op##_values(const void *args)                                                                      \
    {                                                                                                                 \
        const kvant_##op##_args *a = args;                                                                            \
        return expression;                                                                                            \
    }
VALUES(add, (int64_t)a->n * a->d)
VALUES(swiglu, (int64_t)a->n * larger(larger(a->ldg, a->ldu), a->ldy))
VALUES(gate_mul, (int64_t)a->n * larger(a->ldy, a->ldg))
VALUES(gate_add, (int64_t)a->n * a->d)
VALUES(gdn_gates, (int64_t)a->n * a->h)
VALUES(rows_gather, (int64_t)a->n * a->d)
VALUES(rope, (int64_t)a->n * a->ldx)
VALUES(norm_rms, (int64_t)a->n * larger(a->ldx, a->ldy))
VALUES(norm_add_rms, (int64_t)a->n * a->d)
VALUES(norm_l2, (int64_t)a->n * a->ldx)
VALUES(norm_gated, (int64_t)a->n * larger(a->ldz, (int64_t)a->h * a->dv))
VALUES(moe_combine, (int64_t)a->n * a->k * a->d)
VALUES(argmax, (int64_t)a->n * a->d)
VALUES(top_k, (int64_t)a->n * larger(a->d, 2 * (int64_t)a->k * top_k_pieces(a->d)))
#undef VALUES

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
    const int64_t n = (int64_t)a->n * a->h;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_gdn_gates);
    vk_ptr(&c, a->alpha, (size_t)n * 4, VK_WRITE);
    vk_ptr(&c, a->beta, (size_t)n * 4, VK_WRITE);
    vk_ptr(&c, a->a, (size_t)a->h * 4, VK_READ);
    vk_ptr(&c, a->dt, (size_t)a->h * 4, VK_READ);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
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

/* ---- moe ---- */

enum { MAX_EXPERTS = 1024 };       /* as shaders/moe_route.comp */

static int moe_route_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = args;
    (void)d;
    if (a->n_expert > MAX_EXPERTS)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: moe_route: %d experts, wanted at most %d",
                          a->n_expert, MAX_EXPERTS);
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
    vk_uint(&c, a->n);
    vk_uint(&c, a->n_expert);
    vk_uint(&c, a->k);
    vk_float(&c, a->scale);
    return vk_dispatch(d, l, &c, (uint64_t)a->n, 1, 1, diag);
}

static int moe_combine_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_moe_combine_args *a = args;
    const size_t row = (size_t)a->d * 4, slots = (size_t)a->n * (size_t)a->k;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_moe_combine);
    vk_ptr(&c, a->x, slots * row, VK_READ);
    vk_ptr(&c, a->wts, slots * 4, VK_READ);
    vk_ptr(&c, a->y, (size_t)a->n * row, VK_WRITE);
    vk_uint(&c, a->n);
    vk_uint(&c, a->k);
    vk_uint(&c, a->d);
    return vk_dispatch(d, l, &c, groups((int64_t)a->n * a->d), 1, 1, diag);
}

/* Workgroups of a row; what each has found is in scratch: values, then places. */
static int argmax_pieces(const kvant_argmax_args *a)
{
    return a->d > VK_ARGMAX_PIECE ? (a->d + VK_ARGMAX_PIECE - 1) / VK_ARGMAX_PIECE : 1;
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

/* ---- slots: all reads before any write, so the rows pass through scratch ---- */

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

#define SMALL(op) const vk_op vk_op_##op = { .name = #op, .values = op##_values, .run = op##_run };
SMALL(add)
SMALL(swiglu)
SMALL(gate_mul)
SMALL(gate_add)
SMALL(gdn_gates)
SMALL(rows_gather)
SMALL(rope)
SMALL(norm_rms)
SMALL(norm_add_rms)
SMALL(norm_l2)
SMALL(norm_gated)
SMALL(moe_combine)
#undef SMALL
const vk_op vk_op_top_k = { .name = "top_k", .values = top_k_values, .scratch = top_k_scratch, .run = top_k_run };
const vk_op vk_op_argmax = {
    .name = "argmax", .values = argmax_values, .scratch = argmax_scratch, .run = argmax_run
};
const vk_op vk_op_moe_route = { .supports = moe_route_supports, .run = moe_route_run };
const vk_op vk_op_slot_copy = { .supports = slot_copy_supports, .scratch = slot_copy_scratch, .run = slot_copy_run };
const vk_op vk_op_slot_zero = { .supports = slot_zero_supports, .run = slot_zero_run };
