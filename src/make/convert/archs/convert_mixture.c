/* convert_mixture.c: names, keys and tensors of mixtures: dots.llm1, GLM-4.5, ERNIE 4.5, MiniMax-M2, gpt-oss,
 * DeepSeek. */
#include <stdio.h>
#include <string.h>
#include "make/convert/convert_parts.h"

const convert_name convert_post_attention_names[] = {
    { "post_attention_layernorm", "post_attention_norm" },
    { NULL, NULL },
};

const convert_name convert_minimax_names[] = {
    { "block_sparse_moe.gate", "ffn_gate_inp" },
    { NULL, NULL },
};

const convert_name convert_gpt_oss_names[] = {
    { "post_attention_layernorm", "post_attention_norm" },
    { "mlp.router", "ffn_gate_inp" },
    { NULL, NULL },
};

const convert_name convert_mla_names[] = {
    { "self_attn.q_a_proj", "attn_q_a" },
    { "self_attn.q_b_proj", "attn_q_b" },
    { "self_attn.q_a_layernorm", "attn_q_a_norm" },
    { "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa" },
    { "self_attn.kv_a_layernorm", "attn_kv_a_norm" },
    { "self_attn.k_b_proj", "attn_k_b" },
    { "self_attn.v_b_proj", "attn_v_b" },
    { NULL, NULL },
};

/* ---- keys ---- */

static int put_experts(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_u32(c, "n_shared_experts", ".expert_shared_count", k, diag));
    KVANT_TRY(convert_put_number(c, "routed_scaling_factor", ".expert_weights_scale", k, diag));
    return convert_put_bool(c, "norm_topk_prob", ".expert_weights_norm", k, diag);
}

int convert_put_dots1(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_u32(c, "moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    KVANT_TRY(convert_put_u32(c, "first_k_dense_replace", ".leading_dense_block_count", k, diag));
    KVANT_TRY(put_experts(c, k, diag));
    return convert_put_window(c, k, diag);
}

int convert_put_glm4moe(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_rotated(c, k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    KVANT_TRY(convert_put_u32(c, "n_shared_experts", ".expert_shared_count", k, diag));
    KVANT_TRY(convert_put_u32(c, "first_k_dense_replace", ".leading_dense_block_count", k, diag));
    if (!hf_find(c, "scoring_func score_function score_func").p)
        gguf_keys_u32(k, ".expert_gating_func", 2);
    KVANT_TRY(convert_put_number(c, "routed_scaling_factor", ".expert_weights_scale", k, diag));
    return convert_put_bool(c, "norm_topk_prob", ".expert_weights_norm", k, diag);
}

int convert_put_ernie_moe(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t shared = 0, width = 0, layers = 0;
    double end = -1.0;

    KVANT_TRY(convert_put_u32(c, "moe_num_experts", ".expert_count", k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_k", ".expert_used_count", k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_layer_interval", ".interleave_moe_layer_step", k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_layer_start_index", ".leading_dense_block_count", k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_num_shared_experts", ".expert_shared_count", k, diag));
    KVANT_TRY(hf_u32(c, "moe_num_shared_experts", 0, &shared, diag));
    KVANT_TRY(hf_u32(c, "moe_intermediate_size", shared > 0, &width, diag));
    KVANT_TRY(hf_u32(c, "num_hidden_layers", 1, &layers, diag));
    KVANT_TRY(hf_number(c, "moe_layer_end_index", 0, &end, diag));
    if (end != -1.0 && end != layers - 1.0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: moe_layer_end_index is %g, -1 or %g wanted", end,
                          layers - 1.0);
    if (shared > 0 && width > (1u << 24) / shared)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: %u shared experts of width %u, at most %d wanted", shared,
                          width, 1 << 24);
    if (shared > 0)
        gguf_keys_u32(k, ".expert_shared_feed_forward_length", shared * width);
    return KVANT_OK;
}

int convert_put_minimax(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_u32(c, "intermediate_size", ".expert_feed_forward_length", k, diag));
    return convert_put_rotated(c, k, diag);
}

int convert_put_gpt_oss(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_window(c, k, diag));
    return convert_put_u32(c, "intermediate_size", ".expert_feed_forward_length", k, diag);
}

/* Widths of the latent and of the heads before absorption. */
static int put_latent(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t rank = 512, rope = 0, nope = 0;

    KVANT_TRY(hf_u32(c, "kv_lora_rank", 0, &rank, diag));
    KVANT_TRY(hf_u32(c, "qk_rope_head_dim", 1, &rope, diag));
    KVANT_TRY(hf_u32(c, "qk_nope_head_dim", 1, &nope, diag));
    if (rope > 1u << 20 || nope > 1u << 20)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: qk_rope_head_dim %u, qk_nope_head_dim %u, at most %d wanted",
                          rope, nope, 1 << 20);
    gguf_keys_u32(k, ".attention.kv_lora_rank", rank);
    gguf_keys_u32(k, ".attention.key_length_mla", nope + rope);
    return convert_put_u32(c, "v_head_dim", ".attention.value_length_mla", k, diag);
}

int convert_put_deepseek2(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    double all = 0.0;

    KVANT_TRY(convert_put_u32(c, "first_k_dense_replace", ".leading_dense_block_count", k, diag));
    KVANT_TRY(convert_put_u32(c, "vocab_size", ".vocab_size", k, diag));
    KVANT_TRY(convert_put_u32(c, "q_lora_rank", ".attention.q_lora_rank", k, diag));
    KVANT_TRY(put_latent(c, k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    KVANT_TRY(convert_put_u32(c, "n_shared_experts", ".expert_shared_count", k, diag));
    KVANT_TRY(convert_put_number(c, "routed_scaling_factor", ".expert_weights_scale", k, diag));
    if (hf_is_true(c, "norm_topk_prob"))
        gguf_keys_bool(k, ".expert_weights_norm", 1);
    KVANT_TRY(convert_put_u32(c, "qk_rope_head_dim", ".rope.dimension_count", k, diag));
    if (!hf_rope(c, "mscale_all_dim").p)
        return KVANT_OK;
    KVANT_TRY(hf_rope_number(c, "mscale_all_dim", &all, diag));
    gguf_keys_f32(k, ".rope.scaling.yarn_log_multiplier", 0.1 * all); /* a tenth in this one architecture */
    return KVANT_OK;
}

/* ---- tensors ---- */

static int ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* `name` with its last `cut` bytes replaced by `tail`. */
static void other_name(const char *name, const char *cut, const char *tail, char *out, size_t size)
{
    snprintf(out, size, "%.*s%s", (int)(strlen(name) - strlen(cut)), name, tail);
}

/* One matrix per head from kv_b's rows: k's `n_k` of each head transposed, v's `n_v` behind them as they are. */
static int add_latent(convert_plan *p, const st_tensor *t, const char *name, int64_t n_k, int64_t n_v,
                      kvant_diag *diag)
{
    const int64_t heads = p->heads, rank = t->dim[1], both = n_k + n_v;
    const int64_t k_dim[] = { heads, rank, n_k }, v_dim[] = { heads, n_v, rank };
    char own[2 * ST_NAME];
    convert_item *it = NULL;

    other_name(name, "kv_b_proj.weight", "k_b_proj.weight", own, sizeof own);
    KVANT_TRY(convert_plan_named(p, own, 3, k_dim, &it, diag));
    for (int64_t h = 0; h < heads; h++)
        KVANT_TRY(convert_plan_piece(p, it, (convert_piece){ .src = t, .first = h * both * rank, .rows = rank,
                                                             .row_step = 1, .value_step = rank }, diag));
    other_name(name, "kv_b_proj.weight", "v_b_proj.weight", own, sizeof own);
    KVANT_TRY(convert_plan_named(p, own, 3, v_dim, &it, diag));
    for (int64_t h = 0; h < heads; h++)
        KVANT_TRY(convert_plan_piece(p, it, (convert_piece){ .src = t, .first = h * both + n_k, .rows = n_v }, diag));
    return KVANT_OK;
}

int convert_mla_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                       kvant_diag *diag)
{
    uint32_t nope = 0, v = 0;

    if (strcmp(rest, "self_attn.kv_b_proj.weight") != 0)
        return KVANT_OK;
    *done = 1;
    KVANT_TRY(hf_u32(p->config, "qk_nope_head_dim", 1, &nope, diag));
    KVANT_TRY(hf_u32(p->config, "v_head_dim", 1, &v, diag));
    if (t->n_dims != 2 || nope < 1 || v < 1 || t->dim[0] != (int64_t)p->heads * ((int64_t)nope + v))
        return kvant_fail(diag, KVANT_EFORMAT,
                          "%s: %lld rows, %u heads of qk_nope_head_dim %u and v_head_dim %u wanted", t->name,
                          (long long)t->dim[0], p->heads, nope, v);
    return add_latent(p, t, name, nope, v, diag);
}

/* Every second row from `first` of codes[experts][rows][blocks][16], or (step 1) every row. */
static int add_codes(convert_plan *p, const st_tensor *t, const char *name, int64_t first, int64_t step,
                     kvant_diag *diag)
{
    const kvant_wtype *mxfp4 = kvant_wtype_find("MXFP4");
    const int64_t dim[] = { t->dim[0], t->dim[1] / step, t->dim[2] * 32 };
    char of[2 * ST_NAME];
    convert_item *it = NULL;

    other_name(t->name, "_blocks", "_scales", of, sizeof of);
    const st_tensor *s = st_find(p->files, of);
    if (!s || s->n_dims != 3 || s->dim[0] != t->dim[0] || s->dim[1] != t->dim[1] || s->dim[2] != t->dim[2] ||
        strcmp(s->dtype, "U8") != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %s", of,
                          s ? "U8 scales wanted, one for each block of the codes" : "is not there");
    KVANT_TRY(convert_plan_named(p, name, 3, dim, &it, diag));
    it->type = mxfp4;
    it->bytes = (size_t)(dim[0] * dim[1] * t->dim[2]) * (size_t)mxfp4->bytes;
    return convert_plan_piece(p, it, (convert_piece){ .src = t, .first = first, .rows = dim[0] * dim[1],
                                                      .row_step = step, .scales = s }, diag);
}

static int add_all_codes(convert_plan *p, const st_tensor *t, const char *name, kvant_diag *diag)
{
    static const char fused[] = "gate_up_proj_blocks";
    char to[2 * ST_NAME];

    if (t->n_dims != 4 || t->dim[3] != 16 || t->dim[1] % 2 != 0 || strcmp(t->dtype, "U8") != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d dimensions of %s, U8 codes [experts][rows][blocks][16] wanted",
                          t->name, t->n_dims, t->dtype);
    if (ends_with(name, "down_proj_blocks")) {
        other_name(name, "_blocks", ".weight", to, sizeof to);
        return add_codes(p, t, to, 0, 1, diag);
    }
    if (!ends_with(name, fused))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: no MXFP4 tensor of gpt-oss has this name", t->name);
    other_name(name, fused, "gate_proj.weight", to, sizeof to);
    KVANT_TRY(add_codes(p, t, to, 0, 2, diag));
    other_name(name, fused, "up_proj.weight", to, sizeof to);
    return add_codes(p, t, to, 1, 2, diag);
}

/* Numbers [experts][in][out] transposed: columns from `first`, `step` apart. */
static int add_turned(convert_plan *p, const st_tensor *t, const char *name, int64_t first, int64_t step,
                      kvant_diag *diag)
{
    const int64_t in = t->dim[1], out = t->dim[2], dim[] = { t->dim[0], out / step, in };
    convert_item *it = NULL;

    KVANT_TRY(convert_plan_named(p, name, 3, dim, &it, diag));
    for (int64_t e = 0; e < t->dim[0]; e++) {
        const convert_piece one = { .src = t, .first = e * in * out + first, .rows = out / step, .row_step = step,
                                    .value_step = out };
        KVANT_TRY(convert_plan_piece(p, it, one, diag));
    }
    return KVANT_OK;
}

/* gate_up_proj or its bias: half 0 the even columns, half 1 the odd ones. */
static int add_column_halves(convert_plan *p, const st_tensor *t, const char *name, kvant_diag *diag)
{
    static const char *const parts[] = { "gate_proj", "up_proj" };
    const int bias = ends_with(name, "_bias");
    const int64_t dim[] = { t->dim[0], t->dim[1] / 2 };
    char to[2 * ST_NAME];
    convert_item *it = NULL;

    if (t->n_dims != (bias ? 2 : 3) || t->dim[bias ? 1 : 2] % 2 != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d dimensions, %d with an even number of columns wanted", t->name,
                          t->n_dims, bias ? 2 : 3);
    for (int half = 0; half < 2; half++) {
        snprintf(to, sizeof to, "%.*s%s%s", (int)(strstr(name, "gate_up_proj") - name), name, parts[half],
                 bias ? "_bias" : ".weight");
        if (!bias) {
            KVANT_TRY(add_turned(p, t, to, half, 2, diag));
            continue;
        }
        KVANT_TRY(convert_plan_named(p, to, 2, dim, &it, diag));
        KVANT_TRY(convert_plan_piece(p, it, (convert_piece){ .src = t, .first = half, .rows = dim[0],
                                                             .row_step = t->dim[1], .value_step = 2 }, diag));
    }
    return KVANT_OK;
}

int convert_gpt_oss_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                           kvant_diag *diag)
{
    char to[2 * ST_NAME];

    *done = strncmp(rest, "mlp.experts.", 12) == 0 && strcmp(rest, "mlp.experts.down_proj_bias") != 0;
    if (!*done || ends_with(rest, "_scales"))
        return KVANT_OK;
    if (ends_with(rest, "_blocks"))
        return add_all_codes(p, t, name, diag);
    if (strstr(rest, "gate_up_proj"))
        return add_column_halves(p, t, name, diag);
    if (t->n_dims != 3)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d dimensions, 3 wanted", t->name, t->n_dims);
    snprintf(to, sizeof to, "%s.weight", name);
    return add_turned(p, t, to, 0, 1, diag);
}
