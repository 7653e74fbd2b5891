/* convert_hybrid.c: names, keys and tensors of models with recurrent layers: Qwen3-Next, Qwen3.5, LFM2. */
#include <stdio.h>
#include <string.h>
#include "make/convert/convert_parts.h"
#include "model/gguf/gguf.h"

const convert_name convert_gdn_names[] = {
    { "post_attention_layernorm", "post_attention_norm" },
    { "linear_attn.in_proj_qkv", "attn_qkv" },
    { "linear_attn.in_proj_z", "attn_gate" },
    { "linear_attn.in_proj_a", "ssm_alpha" },
    { "linear_attn.in_proj_b", "ssm_beta" },
    { "linear_attn.in_proj_ba", "ssm_ba" },
    { "linear_attn.conv1d", "ssm_conv1d" },
    { "linear_attn.norm", "ssm_norm" },
    { "linear_attn.out_proj", "ssm_out" },
    { NULL, NULL },
};

const convert_name convert_lfm2_names[] = {
    { "operator_norm", "attn_norm" },
    { "ffn_norm", "ffn_norm" },
    { "self_attn.q_layernorm", "attn_q_norm" },
    { "self_attn.k_layernorm", "attn_k_norm" },
    { "self_attn.out_proj", "attn_output" },
    { "conv.conv", "shortconv.conv" },
    { "conv.in_proj", "shortconv.in_proj" },
    { "conv.out_proj", "shortconv.out_proj" },
    { "feed_forward.w1", "ffn_gate" },
    { "feed_forward.w2", "ffn_down" },
    { "feed_forward.w3", "ffn_up" },
    { "feed_forward.gate", "ffn_gate_inp" },
    { "feed_forward.experts.w1", "ffn_gate_exps" },
    { "feed_forward.experts.w2", "ffn_down_exps" },
    { "feed_forward.experts.w3", "ffn_up_exps" },
    { "feed_forward.experts.gate_proj", "ffn_gate_exps" },
    { "feed_forward.experts.down_proj", "ffn_down_exps" },
    { "feed_forward.experts.up_proj", "ffn_up_exps" },
    { NULL, NULL },
};

/* ---- keys ---- */

typedef struct gdn_sizes {
    uint32_t k_heads, v_heads, dk, dv;
} gdn_sizes;

static int read_gdn(const hf_config *c, gdn_sizes *s, kvant_diag *diag)
{
    memset(s, 0, sizeof *s);
    KVANT_TRY(hf_u32(c, "linear_num_key_heads", 1, &s->k_heads, diag));
    KVANT_TRY(hf_u32(c, "linear_num_value_heads", 1, &s->v_heads, diag));
    KVANT_TRY(hf_u32(c, "linear_key_head_dim", 1, &s->dk, diag));
    KVANT_TRY(hf_u32(c, "linear_value_head_dim", 1, &s->dv, diag));
    if (s->k_heads < 1 || s->k_heads > 4096 || s->v_heads > 4096 || s->v_heads < 1 || s->v_heads % s->k_heads ||
        s->dk < 1 || s->dk > 4096 || s->dv < 1 || s->dv > 4096)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "config.json: linear_num_key_heads %u of %u, linear_num_value_heads %u of %u: wanted up to 4096 "
                          "of each, and as many heads of v for each of k", s->k_heads, s->dk, s->v_heads, s->dv);
    if (s->dk != s->dv)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: linear_key_head_dim is %u, linear_value_head_dim %u, equal "
                          "ones wanted", s->dk, s->dv);
    return KVANT_OK;
}

/* A flag for each layer: whether it is recurrent. */
static int put_recurrent(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    const gjson types = hf_find(c, "layer_types");
    gjson it = { NULL, 0 };
    uint32_t n = 0, layers = 0;

    while (gjson_next(types, &it))
        n++;
    KVANT_TRY(hf_u32(c, "num_hidden_layers", 1, &layers, diag));
    if (types.p && n != layers)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: layer_types has %u entries, num_hidden_layers is %u", n,
                          layers);
    if (n == 0)
        return KVANT_OK;
    gguf_keys_array(k, ".attention.recurrent_layers", GGUF_BOOL, n + c->further);
    it = (gjson){ NULL, 0 };
    while (gjson_next(types, &it)) {
        const uint8_t yes = (uint8_t)hf_is_word(it, "linear_attention");
        if (!yes && !hf_is_word(it, "full_attention"))
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: layer_types has %.*s, linear_attention or "
                              "full_attention wanted", hf_shown(it), it.p);
        gguf_keys_put(k, &yes, 1);
    }
    for (uint8_t l = 0, no = 0; l < c->further; l++)
        gguf_keys_put(k, &no, 1);
    return KVANT_OK;
}

int convert_put_qwen3next(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    gdn_sizes s;
    uint32_t every = 4;

    KVANT_TRY(read_gdn(c, &s, diag));
    KVANT_TRY(convert_put_norm(c, 1, k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    KVANT_TRY(convert_put_u32(c, "shared_expert_intermediate_size", ".expert_shared_feed_forward_length", k, diag));
    KVANT_TRY(convert_put_u32(c, "linear_conv_kernel_dim", ".ssm.conv_kernel", k, diag));
    gguf_keys_u32(k, ".ssm.state_size", s.dk);
    gguf_keys_u32(k, ".ssm.group_count", s.k_heads);
    gguf_keys_u32(k, ".ssm.time_step_rank", s.v_heads);
    gguf_keys_u32(k, ".ssm.inner_size", s.v_heads * s.dv);
    KVANT_TRY(put_recurrent(c, k, diag));
    KVANT_TRY(hf_u32(c, "full_attention_interval", 0, &every, diag));
    gguf_keys_u32(k, ".full_attention_interval", every);
    return convert_put_rotated(c, k, diag);
}

int convert_put_qwen35(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    static const int32_t sections[4] = { 11, 11, 10, 0 };      /* of the released models */

    KVANT_TRY(convert_put_qwen3next(c, k, diag));
    if (hf_rope(c, "mrope_section").p)
        return KVANT_OK;
    gguf_keys_array(k, ".rope.dimension_sections", GGUF_I32, 4);
    gguf_keys_put(k, sections, sizeof sections);
    return KVANT_OK;
}

int convert_put_lfm2(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_u32(c, "vocab_size", ".vocab_size", k, diag));
    return convert_put_u32(c, "conv_L_cache", ".shortconv.l_cache", k, diag);
}

int convert_put_lfm2moe(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    double scale = 1.0;

    KVANT_TRY(convert_put_u32(c, "moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    KVANT_TRY(convert_put_u32(c, "num_dense_layers", ".leading_dense_block_count", k, diag));
    gguf_keys_u32(k, ".expert_gating_func", 2);
    KVANT_TRY(convert_put_norm(c, 1, k, diag));
    KVANT_TRY(hf_number(c, "routed_scaling_factor", 0, &scale, diag));
    if (scale != 1.0)
        gguf_keys_f32(k, ".expert_weights_scale", scale);
    return convert_put_lfm2(c, k, diag);
}

/* ---- tensors ---- */

static int wants(const st_tensor *t, int n_dims, int64_t rows, kvant_diag *diag)
{
    if (t->n_dims == n_dims && t->dim[0] == rows)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT, "%s: %d dimensions and %lld rows, %d and %lld wanted", t->name, t->n_dims,
                      (long long)t->dim[0], n_dims, (long long)rows);
}

static int add_rows(convert_plan *p, convert_item *it, const st_tensor *t, int64_t first, int64_t rows,
                    kvant_diag *diag)
{
    return convert_plan_piece(p, it, (convert_piece){ .src = t, .first = first, .rows = rows }, diag);
}

/* in_proj_qkvz has [q k v z] of each head of k in turn: all q, all k and all v, and apart from them all z. */
static int add_qkvz(convert_plan *p, const st_tensor *t, const char *name, const gdn_sizes *s, kvant_diag *diag)
{
    const int64_t wide = (int64_t)(s->v_heads / s->k_heads) * s->dv, one = 2 * ((int64_t)s->dk + wide);
    const int64_t at[] = { 0, s->dk, 2 * (int64_t)s->dk, 2 * (int64_t)s->dk + wide };
    const int64_t n[] = { s->dk, s->dk, wide, wide };
    char to[2 * ST_NAME];
    convert_item *it = NULL;

    KVANT_TRY(wants(t, 2, one * s->k_heads, diag));
    for (int part = 0; part < 4; part++) {
        const int64_t dim[] = { s->k_heads * (part < 3 ? 2 * (int64_t)s->dk + wide : wide), t->dim[1] };
        snprintf(to, sizeof to, "%.*s%s", (int)(strlen(name) - strlen("qkvz.weight")), name,
                 part < 3 ? "qkv.weight" : "z.weight");
        if (part == 0 || part == 3)
            KVANT_TRY(convert_plan_named(p, to, 2, dim, &it, diag));
        for (uint32_t h = 0; h < s->k_heads; h++)
            KVANT_TRY(add_rows(p, it, t, h * one + at[part], n[part], diag));
    }
    return KVANT_OK;
}

/* [channels][1][taps] without the 1; the first `stay` rows, then the heads of `d` rows in tiles of groups. */
static int add_tiled(convert_plan *p, const st_tensor *t, const char *name, int64_t stay, int64_t d, const gdn_sizes *s,
                     kvant_diag *diag)
{
    const int64_t dim[] = { t->dim[0], t->n_dims == 3 ? t->dim[2] : t->dim[1] };
    const uint32_t each = s->v_heads / s->k_heads;
    convert_item *it = NULL;

    KVANT_TRY(wants(t, t->n_dims == 3 && t->dim[1] == 1 ? 3 : 2, stay + d * s->v_heads, diag));
    KVANT_TRY(convert_plan_named(p, name, 2, dim, &it, diag));
    if (stay > 0)
        KVANT_TRY(add_rows(p, it, t, 0, stay, diag));
    for (uint32_t j = 0; j < each; j++)
        for (uint32_t g = 0; g < s->k_heads; g++)
            KVANT_TRY(add_rows(p, it, t, stay + (int64_t)(g * each + j) * d, d, diag));
    return KVANT_OK;
}

/* A_log, dt_bias, and the columns of out_proj. */
static int add_tiled_values(convert_plan *p, const st_tensor *t, const char *name, const gdn_sizes *s, int tiles,
                            kvant_diag *diag)
{
    convert_item *it = NULL;

    if (t->n_dims < 1 || t->n_dims > 2 || t->dim[t->n_dims - 1] % s->v_heads != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d dimensions, one or two of a multiple of %u heads wanted",
                          t->name, t->n_dims, s->v_heads);
    KVANT_TRY(convert_plan_named(p, name, t->n_dims, t->dim, &it, diag));
    it->minus_exp = strstr(name, ".A_log") != NULL;
    it->tile_groups = (int)s->k_heads;
    it->tile_n = tiles ? (int)(s->v_heads / s->k_heads) : 1;
    return add_rows(p, it, t, 0, t->n_dims == 2 ? t->dim[0] : 1, diag);
}

static int gdn_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int tiles, int *done,
                      kvant_diag *diag)
{
    const char *part = rest + strlen("linear_attn.");
    gdn_sizes s;

    if (strncmp(rest, "linear_attn.", strlen("linear_attn.")) != 0 || strcmp(part, "norm.weight") == 0)
        return KVANT_OK;
    KVANT_TRY(read_gdn(p->config, &s, diag));
    const int64_t qk = 2 * (int64_t)s.k_heads * s.dk;
    const gdn_sizes flat = { 1, s.v_heads, s.dk, s.dv };       /* one group: nothing moves */
    const gdn_sizes *order = tiles ? &s : &flat;
    *done = 1;
    if (strcmp(part, "in_proj_qkvz.weight") == 0)
        return add_qkvz(p, t, name, &s, diag);
    if (strcmp(part, "in_proj_qkv.weight") == 0 || strcmp(part, "conv1d.weight") == 0)
        return add_tiled(p, t, name, qk, s.dv, order, diag);
    if (strcmp(part, "in_proj_z.weight") == 0)
        return add_tiled(p, t, name, 0, s.dv, order, diag);
    if (strcmp(part, "in_proj_a.weight") == 0 || strcmp(part, "in_proj_b.weight") == 0)
        return add_tiled(p, t, name, 0, 1, order, diag);
    if (strcmp(part, "A_log") == 0 || strcmp(part, "dt_bias") == 0 || strcmp(part, "out_proj.weight") == 0)
        return add_tiled_values(p, t, name, &s, tiles, diag);
    *done = 0;
    return KVANT_OK;
}

int convert_qwen3next_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                             kvant_diag *diag)
{
    return gdn_tensor(p, t, name, rest, 0, done, diag);
}

int convert_qwen35_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                          kvant_diag *diag)
{
    return gdn_tensor(p, t, name, rest, 1, done, diag);
}

int convert_lfm2_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                        kvant_diag *diag)
{
    const int64_t dim[] = { t->dim[0], t->dim[2] };
    convert_item *it = NULL;

    *done = strcmp(rest, "conv.conv.weight") == 0;
    if (!*done)
        return KVANT_OK;
    if (t->n_dims != 3 || t->dim[1] != 1)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d dimensions, [channels][1][taps] wanted", t->name, t->n_dims);
    KVANT_TRY(convert_plan_named(p, name, 2, dim, &it, diag));
    return add_rows(p, it, t, 0, t->dim[0], diag);
}
