/* check.c: kvant_op_check: the arguments of every op, checked once before it is queued.  Owns the table and what the
 * checks share; they are in check_rows.c (ops on rows) and check_seqs.c (ops on sequences).
 * Checks shapes, strides, types and NULLs, not the contents of device buffers (ids, tables): those are the engine's.
 * An op over zero rows is valid with NULL buffers. */
#include "ops/arg_check.h"

const char *arg_op(int id)
{
    const kvant_op_info *info = kvant_op_get(id);

    return info != NULL ? info->name : "op";
}

int arg_need(int id, const void *const *pointers, const char *names, kvant_diag *diag)
{
    for (int i = 0; pointers[i] != (const void *)names; i++)
        if (pointers[i] == NULL)
            BAD("%s: argument %d of (%s) is NULL", arg_op(id), i, names);
    return KVANT_OK;
}

int arg_positive(int id, const char *name, int64_t value, kvant_diag *diag)
{
    if (value < 1)
        BAD("%s: %s = %lld, wanted at least 1", arg_op(id), name, (long long)value);
    return KVANT_OK;
}

int arg_count(int id, int64_t n, kvant_diag *diag)
{
    if (n < 0)
        BAD("%s: n = %lld, wanted at least 0", arg_op(id), (long long)n);
    return KVANT_OK;
}

int arg_groups(int id, const char *name, int64_t ld, int64_t g, int n, int h, int d, kvant_diag *diag)
{
    KVANT_TRY(arg_positive(id, "h", h, diag));
    KVANT_TRY(arg_positive(id, "d", d, diag));
    if (h > 1 && g < d)
        BAD("%s: group stride of %s = %lld, wanted at least d = %d", arg_op(id), name, (long long)g, d);
    if (n > 1 && ld < (h - 1) * g + d)
        BAD("%s: row stride of %s = %lld, wanted at least %lld", arg_op(id), name, (long long)ld,
            (long long)((h - 1) * g + d));
    return KVANT_OK;
}

int arg_row_stride(int id, const char *name, int64_t ld, int n, int64_t width, kvant_diag *diag)
{
    if (n > 1 && ld < width)
        BAD("%s: %s = %lld, wanted at least %lld", arg_op(id), name, (long long)ld, (long long)width);
    return KVANT_OK;
}

int arg_epsilon(int id, float eps, kvant_diag *diag)
{
    if (!(eps >= 0.0f && eps <= 1.0f))
        BAD("%s: eps = %g, wanted 0 to 1", arg_op(id), (double)eps);
    return KVANT_OK;
}

int arg_weight(int id, const kvant_weight *w, kvant_diag *diag)
{
    if (w == NULL || w->type == NULL || (w->data == NULL && w->packed == NULL))
        BAD("%s: the weight, its type or its data is NULL", arg_op(id));
    if (w->n_in < 1 || w->n_out < 1 || w->n_expert < 1)
        BAD("%s: weight %s is [%d][%lld][%lld], wanted positive sizes", arg_op(id), w->name ? w->name : "?",
            w->n_expert, (long long)w->n_out, (long long)w->n_in);
    if (w->n_in % w->type->block != 0)
        BAD("%s: weight %s has n_in = %lld, %s needs a multiple of %d", arg_op(id), w->name ? w->name : "?",
            (long long)w->n_in, w->type->name, w->type->block);
    if (w->scale != NULL && w->n_scale != 1 && w->n_scale != w->n_expert)
        BAD("%s: weight %s has %d scales, wanted 1 or %d", arg_op(id), w->name ? w->name : "?", w->n_scale,
            w->n_expert);
    return KVANT_OK;
}

int arg_compute(int id, int compute, kvant_diag *diag)
{
    if (compute != KVANT_COMPUTE_AUTO && compute != KVANT_COMPUTE_F32)
        BAD("%s: compute = %d, wanted 0 (auto) or 1 (f32)", arg_op(id), compute);
    return KVANT_OK;
}

typedef int (*op_check)(const void *args, kvant_diag *diag);

static const op_check CHECKS[KVANT_OP_COUNT] = {
#define KVANT_OP(ID, name, args, tol, fused, text) [KVANT_OP_##ID] = check_##name,
#include "kvant/ops.def"
#undef KVANT_OP
};

int kvant_op_check(int id, const void *args, kvant_diag *diag)
{
    if (id < 0 || id >= KVANT_OP_COUNT)
        BAD("op %d is unknown, wanted 0 to %d", id, KVANT_OP_COUNT - 1);
    if (args == NULL)
        BAD("%s: the arguments are NULL", arg_op(id));
    return CHECKS[id](args, diag);
}
