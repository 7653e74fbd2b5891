/* check_rows.c: arguments of the ops on rows: embeddings, norms, products, experts, choices. */
#include "ops/arg_check.h"

int check_embed(const void *args, kvant_diag *diag)
{
    const kvant_embed_args *a = args;

    KVANT_TRY(arg_count(KVANT_OP_EMBED, a->n, diag));
    KVANT_TRY(arg_weight(KVANT_OP_EMBED, a->w, diag));
    if (a->w->n_expert != 1)
        BAD("embed: n_expert = %d, wanted 1", a->w->n_expert);
    if (a->n > 0)
        NEED(KVANT_OP_EMBED, "ids, y", a->ids, a->y);
    return KVANT_OK;
}

int check_norm_rms(const void *args, kvant_diag *diag)
{
    const kvant_norm_rms_args *a = args;
    const int id = KVANT_OP_NORM_RMS;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_epsilon(id, a->eps, diag));
    KVANT_TRY(arg_groups(id, "x", a->ldx, a->gx, a->n, a->h, a->d, diag));
    KVANT_TRY(arg_groups(id, "y", a->ldy, a->gy, a->n, a->h, a->d, diag));
    if (a->y == a->x && (a->ldx != a->ldy || a->gx != a->gy))
        BAD("norm_rms: in place needs equal strides");
    if (a->n > 0)
        NEED(id, "x, w, y", a->x, a->w, a->y);
    return KVANT_OK;
}

int check_norm_layer(const void *args, kvant_diag *diag)
{
    const kvant_norm_layer_args *a = args;
    const int id = KVANT_OP_NORM_LAYER;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_epsilon(id, a->eps, diag));
    KVANT_TRY(arg_groups(id, "x", a->ldx, a->gx, a->n, a->h, a->d, diag));
    KVANT_TRY(arg_groups(id, "y", a->ldy, a->gy, a->n, a->h, a->d, diag));
    if (a->gw != 0 && (a->gw < a->d || a->gw > 1 << 24))
        BAD("norm_layer: gw = %lld, wanted 0 or d = %d to %d", (long long)a->gw, a->d, 1 << 24);
    if (a->y == a->x && (a->ldx != a->ldy || a->gx != a->gy))
        BAD("norm_layer: in place needs equal strides");
    if (a->n > 0)
        NEED(id, "x, w, y", a->x, a->w, a->y);
    return KVANT_OK;
}

int check_norm_add_rms(const void *args, kvant_diag *diag)
{
    const kvant_norm_add_rms_args *a = args;
    const int id = KVANT_OP_NORM_ADD_RMS;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "d", a->d, diag));
    KVANT_TRY(arg_epsilon(id, a->eps, diag));
    if (a->n > 0)
        NEED(id, "x, add, w, y", a->x, a->add, a->w, a->y);
    if (a->n > 0 && (a->y == a->x || a->add == a->x || a->add == a->y))
        BAD("norm_add_rms: x, add and y must be three buffers");
    return KVANT_OK;
}

int check_mul(const void *args, kvant_diag *diag)
{
    const kvant_mul_args *a = args;
    const int id = KVANT_OP_MUL;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "d", a->d, diag));
    KVANT_TRY(arg_row_stride(id, "ldy", a->ldy, a->n, a->d, diag));
    KVANT_TRY(arg_row_stride(id, "ldx", a->ldx, a->n, a->d, diag));
    if (a->n > 0)
        NEED(id, "y, x", a->y, a->x);
    return KVANT_OK;
}

int check_add(const void *args, kvant_diag *diag)
{
    const kvant_add_args *a = args;

    KVANT_TRY(arg_count(KVANT_OP_ADD, a->n, diag));
    KVANT_TRY(arg_positive(KVANT_OP_ADD, "d", a->d, diag));
    if (a->n > 0)
        NEED(KVANT_OP_ADD, "x, y", a->x, a->y);
    return KVANT_OK;
}

int check_bias(const void *args, kvant_diag *diag)
{
    const kvant_bias_args *a = args;

    KVANT_TRY(arg_count(KVANT_OP_BIAS, a->n, diag));
    KVANT_TRY(arg_positive(KVANT_OP_BIAS, "d", a->d, diag));
    KVANT_TRY(arg_row_stride(KVANT_OP_BIAS, "ldy", a->ldy, a->n, a->d, diag));
    KVANT_TRY(arg_positive(KVANT_OP_BIAS, "n_b", a->n_b, diag));
    if (a->n > 0)
        NEED(KVANT_OP_BIAS, "y, b", a->y, a->b);
    return KVANT_OK;
}

int check_rows_copy(const void *args, kvant_diag *diag)
{
    const kvant_rows_copy_args *a = args;
    const int id = KVANT_OP_ROWS_COPY;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_groups(id, "x", a->ldx, a->gx, a->ldx == 0 ? 1 : a->n, a->h, a->d, diag));
    KVANT_TRY(arg_groups(id, "y", a->ldy, a->gy, a->n, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "x, y", a->x, a->y);
    if (a->n > 0 && a->x == a->y)
        BAD("rows_copy: x and y must be two buffers");
    return KVANT_OK;
}

int check_scale(const void *args, kvant_diag *diag)
{
    const kvant_scale_args *a = args;

    KVANT_TRY(arg_count(KVANT_OP_SCALE, a->n, diag));
    KVANT_TRY(arg_positive(KVANT_OP_SCALE, "d", a->d, diag));
    if (!(a->s >= -1e9f && a->s <= 1e9f))
        BAD("scale: s = %g, wanted -1e9 to 1e9", (double)a->s);
    if (a->n > 0)
        NEED(KVANT_OP_SCALE, "x", a->x);
    return KVANT_OK;
}

int check_softcap(const void *args, kvant_diag *diag)
{
    const kvant_softcap_args *a = args;

    KVANT_TRY(arg_count(KVANT_OP_SOFTCAP, a->n, diag));
    KVANT_TRY(arg_positive(KVANT_OP_SOFTCAP, "d", a->d, diag));
    if (!(a->cap > 0.0f && a->cap < 1e30f))
        BAD("softcap: cap = %g, wanted a positive number", (double)a->cap);
    if (a->n > 0)
        NEED(KVANT_OP_SOFTCAP, "x", a->x);
    return KVANT_OK;
}

int check_attn_temp(const void *args, kvant_diag *diag)
{
    const kvant_attn_temp_args *a = args;
    const int id = KVANT_OP_ATTN_TEMP;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "length", a->length, diag));
    KVANT_TRY(arg_positive(id, "d", a->d, diag));
    KVANT_TRY(arg_row_stride(id, "ldx", a->ldx, a->n, a->d, diag));
    if (!(a->beta >= 0.0f && a->beta <= 1e3f))
        BAD("attn_temp: beta = %g, wanted 0 to 1000", (double)a->beta);
    if (a->n > 0)
        NEED(id, "x, pos", a->x, a->pos);
    return KVANT_OK;
}

int check_norm_l2(const void *args, kvant_diag *diag)
{
    const kvant_norm_l2_args *a = args;
    const int id = KVANT_OP_NORM_L2;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_epsilon(id, a->eps, diag));
    KVANT_TRY(arg_groups(id, "x", a->ldx, a->gx, a->n, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "x", a->x);
    return KVANT_OK;
}

int check_rope(const void *args, kvant_diag *diag)
{
    const kvant_rope_args *a = args;
    const int id = KVANT_OP_ROPE;

    KVANT_TRY(arg_count(id, a->n, diag));
    if (a->n_rot < 2 || a->n_rot % 2 != 0)
        BAD("rope: n_rot = %d, wanted an even number of at least 2", a->n_rot);
    if (a->neox != 0 && a->neox != 1)
        BAD("rope: neox = %d, wanted 0 or 1", a->neox);
    KVANT_TRY(arg_groups(id, "x", a->ldx, a->gx, a->n, a->h, a->n_rot, diag));
    if (a->n > 0)
        NEED(id, "x, pos, inv_freq", a->x, a->pos, a->inv_freq);
    return KVANT_OK;
}

int check_swiglu(const void *args, kvant_diag *diag)
{
    const kvant_swiglu_args *a = args;
    const int id = KVANT_OP_SWIGLU;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "f", a->f, diag));
    KVANT_TRY(arg_row_stride(id, "ldg", a->ldg, a->n, a->f, diag));
    KVANT_TRY(arg_row_stride(id, "ldu", a->ldu, a->n, a->f, diag));
    KVANT_TRY(arg_row_stride(id, "ldy", a->ldy, a->n, a->f, diag));
    if (a->y == a->gate && a->ldy != a->ldg)
        BAD("swiglu: in place needs equal strides");
    if (a->n > 0 && a->y == a->up && a->ldy != a->ldu)
        BAD("swiglu: in place over up needs equal strides");
    if (a->n > 0)
        NEED(id, "gate, up, y", a->gate, a->up, a->y);
    return KVANT_OK;
}

int check_glu(const void *args, kvant_diag *diag)
{
    const kvant_glu_args *a = args;
    const int id = KVANT_OP_GLU;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "f", a->f, diag));
    KVANT_TRY(arg_row_stride(id, "ldg", a->ldg, a->n, a->f, diag));
    KVANT_TRY(arg_row_stride(id, "ldu", a->ldu, a->n, a->f, diag));
    KVANT_TRY(arg_row_stride(id, "ldy", a->ldy, a->n, a->f, diag));
    if (a->y == a->gate && a->ldy != a->ldg)
        BAD("glu: in place needs equal strides");
    if (a->n > 0 && a->y == a->up && a->ldy != a->ldu)
        BAD("glu: in place over up needs equal strides");
    if (a->kind < KVANT_GLU_GELU || a->kind > KVANT_GLU_GELU_ALONE)
        BAD("glu: kind = %d, wanted 0 to 3", a->kind);
    if (a->kind == KVANT_GLU_CLAMPED && !(a->limit > 0.0f && a->alpha > 0.0f && a->alpha < 1e6f))
        BAD("glu: limit = %g, alpha = %g, wanted positive numbers", (double)a->limit, (double)a->alpha);
    if (a->n > 0)
        NEED(id, "gate, up, y", a->gate, a->up, a->y);
    return KVANT_OK;
}

int check_gate_mul(const void *args, kvant_diag *diag)
{
    const kvant_gate_mul_args *a = args;
    const int id = KVANT_OP_GATE_MUL;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_groups(id, "y", a->ldy, a->gy, a->n, a->h, a->d, diag));
    KVANT_TRY(arg_groups(id, "gate", a->ldg, a->gg, a->n, a->h, a->d, diag));
    if (a->n > 0)
        NEED(id, "y, gate", a->y, a->gate);
    return KVANT_OK;
}

int check_gate_add(const void *args, kvant_diag *diag)
{
    const kvant_gate_add_args *a = args;

    KVANT_TRY(arg_count(KVANT_OP_GATE_ADD, a->n, diag));
    KVANT_TRY(arg_positive(KVANT_OP_GATE_ADD, "d", a->d, diag));
    if (a->n > 0)
        NEED(KVANT_OP_GATE_ADD, "y, x, gate", a->y, a->x, a->gate);
    return KVANT_OK;
}

int check_matmul(const void *args, kvant_diag *diag)
{
    const kvant_matmul_args *a = args;
    const int id = KVANT_OP_MATMUL;

    KVANT_TRY(arg_count(id, a->m, diag));
    KVANT_TRY(arg_weight(id, a->w, diag));
    KVANT_TRY(arg_compute(id, a->compute, diag));
    if (a->w->n_expert != 1)
        BAD("matmul: n_expert = %d, wanted 1", a->w->n_expert);
    KVANT_TRY(arg_row_stride(id, "ldx", a->ldx, a->m, a->w->n_in, diag));
    KVANT_TRY(arg_row_stride(id, "ldy", a->ldy, a->m, a->w->n_out, diag));
    if (a->m > 0)
        NEED(id, "x, y", a->x, a->y);
    if (a->m > 0 && a->x == a->y)
        BAD("matmul: y must not be x");
    return KVANT_OK;
}

int check_matmul_id(const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = args;
    const int id = KVANT_OP_MATMUL_ID;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_weight(id, a->w, diag));
    KVANT_TRY(arg_compute(id, a->compute, diag));
    KVANT_TRY(arg_positive(id, "k", a->k, diag));
    if (a->k > a->w->n_expert)
        BAD("matmul_id: k = %d, wanted at most n_expert = %d", a->k, a->w->n_expert);
    if (a->x_div != 1 && a->x_div != a->k)
        BAD("matmul_id: x_div = %d, wanted 1 or k = %d", a->x_div, a->k);
    KVANT_TRY(arg_row_stride(id, "ldx", a->ldx, a->n, a->w->n_in, diag));
    if (a->n > 0)
        NEED(id, "x, ids, y", a->x, a->ids, a->y);
    return KVANT_OK;
}

static int check_expert_groups(const kvant_moe_route_args *a, kvant_diag *diag)
{
    if (a->n_group == 0)
        return KVANT_OK;
    if (a->n_group < 0 || a->n_expert % a->n_group)
        BAD("moe_route: n_group = %d, wanted a divisor of n_expert = %d, or 0", a->n_group, a->n_expert);
    const int each = a->n_expert / a->n_group;
    if (a->top_groups < 1 || a->top_groups > a->n_group || a->top_groups * each < a->k)
        BAD("moe_route: top_groups = %d, wanted 1 to n_group = %d with k = %d experts of %d each", a->top_groups,
            a->n_group, a->k, each);
    if (a->group_best < 1 || a->group_best > 2 || a->group_best > each)
        BAD("moe_route: group_best = %d, wanted 1 or 2, at most %d", a->group_best, each);
    return KVANT_OK;
}

int check_moe_route(const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = args;
    const int id = KVANT_OP_MOE_ROUTE;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "n_expert", a->n_expert, diag));
    if (a->k < 1 || a->k > a->n_expert)
        BAD("moe_route: k = %d, wanted 1 to n_expert = %d", a->k, a->n_expert);
    if (a->gating < KVANT_GATING_SOFTMAX || a->gating > KVANT_GATING_SOFTMAX_CHOSEN)
        BAD("moe_route: gating = %d, wanted 0 to %d", a->gating, KVANT_GATING_SOFTMAX_CHOSEN);
    KVANT_TRY(check_expert_groups(a, diag));
    if (a->n > 0)
        NEED(id, "logits, ids, wts", a->logits, a->ids, a->wts);
    return KVANT_OK;
}

int check_moe_combine(const void *args, kvant_diag *diag)
{
    const kvant_moe_combine_args *a = args;
    const int id = KVANT_OP_MOE_COMBINE;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "k", a->k, diag));
    KVANT_TRY(arg_positive(id, "d", a->d, diag));
    if (a->n > 0)
        NEED(id, "x, wts, y", a->x, a->wts, a->y);
    if (a->n > 0 && a->x == a->y)
        BAD("moe_combine: y must not be x");
    return KVANT_OK;
}

int check_rows_gather(const void *args, kvant_diag *diag)
{
    const kvant_rows_gather_args *a = args;
    const int id = KVANT_OP_ROWS_GATHER;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "d", a->d, diag));
    if (a->n > 0)
        NEED(id, "x, idx, y", a->x, a->idx, a->y);
    if (a->n > 0 && a->x == a->y)
        BAD("rows_gather: y must not be x");
    return KVANT_OK;
}

int check_argmax(const void *args, kvant_diag *diag)
{
    const kvant_argmax_args *a = args;
    const int id = KVANT_OP_ARGMAX;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "d", a->d, diag));
    if (a->n > 0)
        NEED(id, "x, ids", a->x, a->ids);
    return KVANT_OK;
}

int check_top_k(const void *args, kvant_diag *diag)
{
    const kvant_top_k_args *a = args;
    const int id = KVANT_OP_TOP_K;

    KVANT_TRY(arg_count(id, a->n, diag));
    KVANT_TRY(arg_positive(id, "d", a->d, diag));
    if (a->k < 1 || a->k > KVANT_TOP_K_MOST)
        BAD("top_k: k %d, wanted 1 to %d", a->k, KVANT_TOP_K_MOST);
    if (a->n > 0)
        NEED(id, "x, values, ids", a->x, a->values, a->ids);
    return KVANT_OK;
}
