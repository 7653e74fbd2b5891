/* convert_gemma4.c: names, keys and tensors of Gemma 4, whose layers differ by kind: heads of K and V, their size,
 * RoPE, and in the last layers the width of the FFN.  The keys are those of the field's converter, in its order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "make/convert/convert_parts.h"
#include "model/gguf/gguf.h"

enum { MOST_LAYERS = 4096, MOST_HEAD = 65536 };

const convert_name convert_gemma4_names[] = {
    { "post_attention_layernorm", "post_attention_norm" },
    { "pre_feedforward_layernorm_2", "pre_ffw_norm_2" },
    { "post_feedforward_layernorm_1", "post_ffw_norm_1" },
    { "post_feedforward_layernorm_2", "post_ffw_norm_2" },
    { "per_layer_input_gate", "inp_gate" },
    { "per_layer_projection", "proj" },
    { "post_per_layer_input_norm", "post_norm" },
    { "router.proj", "ffn_gate_inp" },
    { NULL, NULL },
};

/* ---- sizes by kind of layer ---- */

/* `global` of config.json, or `plain` of the first layer in per_layer_config, where newer Transformers have it. */
static int read_full(const hf_config *c, const char *global, const char *plain, uint32_t *v, kvant_diag *diag)
{
    gjson key = { NULL, 0 }, first = { NULL, 0 };

    if (hf_find(c, global).p)
        return hf_u32(c, global, 1, v, diag);
    gjson_member(hf_find(c, "per_layer_config"), &key, &first);
    const gjson found = gjson_get(first, plain);
    return found.p ? hf_to_u32(found, plain, v, diag) : KVANT_OK;
}

int convert_full_head_dim(const hf_config *c, uint32_t *dim, kvant_diag *diag)
{
    *dim = 512;
    KVANT_TRY(read_full(c, "global_head_dim", "head_dim", dim, diag));
    if (*dim < 2 || *dim > MOST_HEAD || *dim % 2)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: global_head_dim is %u, an even number from 2 to %d wanted", *dim,
                          MOST_HEAD);
    return KVANT_OK;
}

static int read_layers(const hf_config *c, uint32_t *layers, kvant_diag *diag)
{
    gjson it = { NULL, 0 };
    uint32_t n = 0;

    KVANT_TRY(hf_u32(c, "num_hidden_layers", 1, layers, diag));
    while (gjson_next(hf_find(c, "layer_types"), &it))
        n++;
    if (*layers > MOST_LAYERS || n != *layers)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: layer_types has %u entries, num_hidden_layers is %u (up to %d)",
                          n, *layers, MOST_LAYERS);
    return KVANT_OK;
}

static int is_sliding(gjson type)
{
    static const char text[] = "\"sliding_attention\"";
    return type.p && type.n == sizeof text - 1 && memcmp(type.p, text, type.n) == 0;
}

/* One number where both kinds have the same, or config.json has one only. */
int convert_put_kv_by_window(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    const int by_kind = hf_is_true(c, "attention_k_eq_v");
    uint32_t kv = 1, full = 0, layers;
    gjson it = { NULL, 0 };

    KVANT_TRY(hf_u32(c, "num_key_value_heads", 1, &kv, diag));
    KVANT_TRY(read_full(c, "num_global_key_value_heads", "num_key_value_heads", &full, diag));
    if (!by_kind || full == 0) {
        gguf_keys_u32(k, ".attention.head_count_kv", kv);
        return KVANT_OK;
    }
    KVANT_TRY(read_layers(c, &layers, diag));
    gguf_keys_array(k, ".attention.head_count_kv", GGUF_I32, layers);
    while (gjson_next(hf_find(c, "layer_types"), &it)) {
        const int32_t here = (int32_t)(is_sliding(it) ? kv : full);
        gguf_keys_put(k, &here, sizeof here);
    }
    return KVANT_OK;
}

/* Twice as wide in the layers that read the K and V of others, where use_double_wide_mlp says so. */
int convert_put_ff_by_layer(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t ff = 0, shared = 0, layers = 0;

    KVANT_TRY(hf_u32(c, "intermediate_size", 1, &ff, diag));
    if (!hf_is_true(c, "use_double_wide_mlp")) {
        gguf_keys_u32(k, ".feed_forward_length", ff);
        return KVANT_OK;
    }
    KVANT_TRY(read_layers(c, &layers, diag));
    KVANT_TRY(hf_u32(c, "num_kv_shared_layers", 0, &shared, diag));
    if (shared > layers || ff > 1u << 28)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: num_kv_shared_layers %u of %u, intermediate_size %u (up to %d)",
                          shared, layers, ff, 1 << 28);
    gguf_keys_array(k, ".feed_forward_length", GGUF_I32, layers);
    for (uint32_t l = 0; l < layers; l++) {
        const int32_t here = (int32_t)(l < layers - shared ? ff : 2 * ff);
        gguf_keys_put(k, &here, sizeof here);
    }
    return KVANT_OK;
}

/* ---- keys ---- */

static int put_pattern(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    gjson it = { NULL, 0 };
    uint32_t layers;

    KVANT_TRY(read_layers(c, &layers, diag));
    gguf_keys_array(k, ".attention.sliding_window_pattern", GGUF_BOOL, layers);
    while (gjson_next(hf_find(c, "layer_types"), &it)) {
        const uint8_t here = (uint8_t)is_sliding(it);
        gguf_keys_put(k, &here, 1);
    }
    return KVANT_OK;
}

static int refuse_variants(const hf_config *c, kvant_diag *diag)
{
    uint32_t own = 0, vocab = 0, rows = 0;
    gjson it = { NULL, 0 }, last = { NULL, 0 };

    while (gjson_next(hf_find(c, "layer_types"), &it))
        last = it;
    if (is_sliding(last))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: layer_types ends with sliding_attention, full_attention "
                          "wanted: Transformers makes it so");
    if (hf_find(c, "num_experts").p && !hf_is_true(c, "enable_moe_block"))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: num_experts without enable_moe_block, both or none wanted");
    KVANT_TRY(hf_u32(c, "hidden_size_per_layer_input", 0, &own, diag));
    KVANT_TRY(hf_u32(c, "vocab_size", 1, &vocab, diag));
    KVANT_TRY(hf_u32(c, "vocab_size_per_layer_input", 0, &rows, diag));
    if (own > 0 && rows != vocab)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: vocab_size_per_layer_input is %u, vocab_size %u, equal ones "
                          "wanted", rows, vocab);
    return KVANT_OK;
}

int convert_put_gemma4(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t dim = 256, full, shared = 0, own = 0;

    KVANT_TRY(refuse_variants(c, diag));
    KVANT_TRY(convert_full_head_dim(c, &full, diag));
    KVANT_TRY(hf_u32(c, "head_dim", 0, &dim, diag));
    KVANT_TRY(hf_u32(c, "num_kv_shared_layers", 0, &shared, diag));
    KVANT_TRY(hf_u32(c, "hidden_size_per_layer_input", 0, &own, diag));
    KVANT_TRY(convert_put_number(c, "final_logit_softcapping", ".final_logit_softcapping", k, diag));
    KVANT_TRY(convert_put_u32(c, "sliding_window", ".attention.sliding_window", k, diag));
    gguf_keys_u32(k, ".attention.shared_kv_layers", shared);
    gguf_keys_u32(k, ".embedding_length_per_layer_input", own);
    KVANT_TRY(put_pattern(c, k, diag));
    gguf_keys_u32(k, ".attention.key_length_swa", dim);
    gguf_keys_u32(k, ".attention.value_length_swa", dim);
    KVANT_TRY(convert_put_u32(c, "expert_intermediate_size moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    gguf_keys_u32(k, ".rope.dimension_count", full);   /* rope_freqs says which of them turn */
    gguf_keys_u32(k, ".rope.dimension_count_swa", dim);
    return KVANT_OK;
}

/* ---- tensors without .weight in their names, or outside of the layers ---- */

int convert_gemma4_tensor(convert_plan *p, const st_tensor *t, const char *name, const char *rest, int *done,
                          kvant_diag *diag)
{
    static const convert_name inside[] = {
        { "layer_scalar", "layer_output_scale.weight" },      { "router.scale", "ffn_gate_inp.scale" },
        { "router.per_expert_scale", "ffn_down_exps.scale" }, { "experts.gate_up_proj", "ffn_gate_up_exps.weight" },
        { "experts.down_proj", "ffn_down_exps.weight" },
    };
    static const convert_name outside[] = {
        { "model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight" },
        { "model.per_layer_model_projection.weight", "per_layer_model_proj.weight" },
        { "model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight" },
    };
    const convert_name *list = rest[0] ? inside : outside;
    const size_t n = rest[0] ? sizeof inside / sizeof *inside : sizeof outside / sizeof *outside;
    char to[CONVERT_NAME * 2], head[32] = "";
    convert_item *it = NULL;
    int64_t rows = 1;

    for (size_t i = 0; i < n && !*done; i++)
        if (strcmp(list[i].from, rest[0] ? rest : name) == 0) {
            if (rest[0])
                snprintf(head, sizeof head, "blk.%d.", (int)strtol(name + strlen("model.layers."), NULL, 10));
            snprintf(to, sizeof to, "%s%s", head, list[i].to);
            *done = 1;
        }
    if (!*done)
        return KVANT_OK;
    KVANT_TRY(convert_plan_add(p, to, t->n_dims, t->dim, &it, diag));
    for (int i = 0; i + 1 < t->n_dims; i++)
        rows *= t->dim[i];
    return convert_plan_piece(p, it, (convert_piece){ .src = t, .rows = rows }, diag);
}
