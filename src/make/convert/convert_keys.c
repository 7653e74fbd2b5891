/* convert_keys.c: the keys that all architectures have, from config.json.  Owns their order and their meaning; what a
 * single architecture adds is in convert_arch.c. */
#include <string.h>
#include "make/convert/convert_arch.h"
#include "make/convert/fields/hf_fields.h"
#include "model/gguf/gguf.h"

/* config.json's names of a key. */
typedef struct key_source {
    const char *key, *names;
    int required;
} key_source;

static const key_source sizes[] = {
    { ".block_count", "num_hidden_layers n_layers n_layer num_layers", 1 },
    { ".context_length", "max_position_embeddings n_ctx n_positions max_length", 0 },
    { ".embedding_length", "hidden_size n_embd dim", 1 },
    { ".feed_forward_length", "intermediate_size n_inner hidden_dim", 0 },
    { ".attention.head_count", "num_attention_heads n_head n_heads", 1 },
    { ".attention.head_count_kv", "num_key_value_heads n_kv_heads", 0 },
};

static const key_source experts[] = {
    { ".expert_count", "num_local_experts num_experts n_routed_experts", 0 },
    { ".expert_used_count", "num_experts_per_tok num_experts_per_token top_k_experts", 0 },
    { ".expert_group_count", "n_group", 0 },
    { ".expert_group_used_count", "topk_group", 0 },
};

static int put_u32s(const hf_config *c, const key_source *list, size_t n, gguf_keys *k, kvant_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t v = 0;
        const int there = hf_find(c, list[i].names).p != NULL;
        KVANT_TRY(hf_u32(c, list[i].names, list[i].required, &v, diag));
        if (there)
            gguf_keys_u32(k, list[i].key, v);
    }
    return KVANT_OK;
}

int convert_put_number(const hf_config *c, const char *names, const char *key, gguf_keys *k, kvant_diag *diag)
{
    double v = 0.0;

    KVANT_TRY(hf_number(c, names, 0, &v, diag));
    if (hf_find(c, names).p)
        gguf_keys_f32(k, key, v);
    return KVANT_OK;
}

int convert_put_u32(const hf_config *c, const char *names, const char *key, gguf_keys *k, kvant_diag *diag)
{
    const key_source one = { key, names, 0 };

    return put_u32s(c, &one, 1, k, diag);
}

/* Classes whose code has one function, whatever the file says (it says nothing else: hf_decisions.def). */
static int put_gating(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    const gjson f = hf_find(c, "score_function scoring_func score_func");
    const int sigmoid = strcmp(c->text_cls->name, "DeepseekV3Config") == 0 || hf_is_word(f, "noaux_tc");

    if (!f.p && !sigmoid)
        return KVANT_OK;
    if (!sigmoid && !hf_is_word(f, "sigmoid") && !hf_is_word(f, "softmax"))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: scoring_func %.*s, sigmoid or softmax wanted",
                          hf_shown(f), f.p);
    gguf_keys_u32(k, ".expert_gating_func", sigmoid || hf_is_word(f, "sigmoid") ? 2 : 1);
    return KVANT_OK;
}

int convert_head_dim(const hf_config *c, uint32_t *dim, kvant_diag *diag)
{
    uint32_t hidden = 0, heads = 0;

    *dim = 0;
    if (hf_find(c, "head_dim").p)
        return hf_u32(c, "head_dim", 1, dim, diag);
    KVANT_TRY(hf_u32(c, sizes[2].names, 1, &hidden, diag));
    KVANT_TRY(hf_u32(c, sizes[4].names, 1, &heads, diag));
    if (heads == 0 || hidden % heads != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: hidden_size %u is no multiple of %u heads", hidden, heads);
    *dim = hidden / heads;
    return KVANT_OK;
}

/* LFM2 without layer_types: the layers with attention are listed, or all are. */
static int is_listed(const hf_config *c, uint32_t l)
{
    const gjson list = hf_find(c, "full_attn_idxs");
    gjson it = { NULL, 0 };

    while (gjson_next(list, &it))
        if (gjson_number(it) == l)
            return 1;
    return !list.p;
}

/* The last of `sizes`: as it is, 1, or a list with 0 for layers without attention. */
static int put_kv_heads(const convert_arch *a, const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    const key_source *kv = &sizes[sizeof sizes / sizeof *sizes - 1];
    const gjson types = hf_find(c, "layer_types");
    gjson it = { NULL, 0 };
    uint32_t heads = 1, layers = 0, n = 0;

    if (a->flags & CONVERT_KV_ONE) {
        gguf_keys_u32(k, kv->key, 1);
        return KVANT_OK;
    }
    if (a->flags & CONVERT_BY_WINDOW)
        return convert_put_kv_by_window(c, k, diag);
    KVANT_TRY(hf_u32(c, sizes[4].names, 1, &heads, diag)); /* as many where neither file nor class says */
    KVANT_TRY(hf_u32(c, kv->names, 0, &heads, diag));
    if (!(a->flags & CONVERT_KV_BY_LAYER)) {
        gguf_keys_u32(k, kv->key, heads);
        return KVANT_OK;
    }
    KVANT_TRY(hf_u32(c, sizes[0].names, 1, &layers, diag));
    while (gjson_next(types, &it))
        n++;
    if (types.p ? n != layers : layers > 4096)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: layer_types has %u entries, num_hidden_layers is %u", n,
                          layers);
    gguf_keys_array(k, kv->key, GGUF_I32, layers);
    it = (gjson){ NULL, 0 };
    for (uint32_t l = 0; l < layers; l++) {
        const int full = gjson_next(types, &it) ? hf_is_word(it, "full_attention") : is_listed(c, l);
        if (it.p && !full && !hf_is_word(it, "conv"))
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: layer_types has %.*s, conv or full_attention wanted",
                              hf_shown(it), it.p);
        const int32_t here = full ? (int32_t)heads : 0;
        gguf_keys_put(k, &here, sizeof here);
    }
    return KVANT_OK;
}

/* LFM2: two thirds of what config.json says, times a factor, rounded up. */
static int put_adjusted_ff(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t ff = 0, multiple = 256;
    double factor = 1.0;

    KVANT_TRY(hf_u32(c, "block_ff_dim intermediate_size", 1, &ff, diag));
    KVANT_TRY(hf_u32(c, "block_multiple_of", 0, &multiple, diag));
    KVANT_TRY(hf_number(c, "block_ffn_dim_multiplier", 0, &factor, diag));
    if (ff > 1u << 24 || multiple < 1 || multiple > 1u << 20 || !(factor > 0.0 && factor <= 1000.0))
        return kvant_fail(diag, KVANT_EFORMAT,
                          "config.json: block_ff_dim %u, block_multiple_of %u, block_ffn_dim_multiplier %g: wanted up to "
                          "%d, 1 to %d, above 0 up to 1000", ff, multiple, factor, 1 << 24, 1 << 20);
    if (hf_is_true(c, "block_auto_adjust_ff_dim")) {
        const double narrow = (double)(uint32_t)(factor * (double)(2 * ff / 3));
        ff = multiple * (uint32_t)((narrow + multiple - 1) / multiple);
    }
    gguf_keys_u32(k, ".feed_forward_length", ff);
    return KVANT_OK;
}

int convert_put_bool(const hf_config *c, const char *name, const char *key, gguf_keys *k, kvant_diag *diag)
{
    const gjson v = hf_find(c, name);

    if (v.p && *v.p != 't' && *v.p != 'f')
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: %s is %.*s, true or false wanted", name, hf_shown(v), v.p);
    if (v.p)
        gguf_keys_bool(k, key, *v.p == 't');
    return KVANT_OK;
}

/* The cache of latent attention holds the latent, which is v, and the rotated part. */
static int put_latent_lengths(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t rank = 512, rope = 0;

    KVANT_TRY(hf_u32(c, "kv_lora_rank", 0, &rank, diag));
    KVANT_TRY(hf_u32(c, "qk_rope_head_dim", 1, &rope, diag));
    if (rank > 1u << 20 || rope > 1u << 20)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: kv_lora_rank %u, qk_rope_head_dim %u, at most %d wanted",
                          rank, rope, 1 << 20);
    gguf_keys_u32(k, ".attention.key_length", rank + rope);
    gguf_keys_u32(k, ".attention.value_length", rank);
    return KVANT_OK;
}

static int put_ff(const convert_arch *a, const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    if (a->flags & CONVERT_BY_WINDOW)
        return convert_put_ff_by_layer(c, k, diag);
    return a->flags & CONVERT_FF_ADJUSTED ? put_adjusted_ff(c, k, diag) : put_u32s(c, &sizes[3], 1, k, diag);
}

/* Readers take hidden_size / heads where a file does not say. */
static int says_head_dim(const convert_arch *a, const hf_config *c, uint32_t dim)
{
    uint32_t hidden = 0, heads = 0;

    if (!(a->flags & CONVERT_NO_KEY_LENGTH))
        return hf_find(c, "head_dim").p || a->flags & CONVERT_HEAD_DIM;
    hf_u32(c, sizes[2].names, 1, &hidden, NULL);
    hf_u32(c, sizes[4].names, 1, &heads, NULL);
    return !(a->flags & CONVERT_KV_ONE) && (uint64_t)dim * heads != hidden;
}

int convert_put_keys(const convert_arch *a, const hf_config *c, int file_type, gguf_keys *k, kvant_diag *diag)
{
    uint32_t dim, layers = 0;

    KVANT_TRY(hf_u32(c, sizes[0].names, 1, &layers, diag));
    gguf_keys_u32(k, sizes[0].key, layers + c->further);
    KVANT_TRY(put_u32s(c, &sizes[1], 2, k, diag));
    KVANT_TRY(put_ff(a, c, k, diag));
    KVANT_TRY(put_u32s(c, &sizes[4], 1, k, diag));
    KVANT_TRY(put_kv_heads(a, c, k, diag));
    KVANT_TRY(convert_put_rope(a, c, k, diag));
    KVANT_TRY(convert_put_number(c, "rms_norm_eps norm_eps", ".attention.layer_norm_rms_epsilon", k, diag));
    KVANT_TRY(convert_put_number(c, "layer_norm_eps layer_norm_epsilon", ".attention.layer_norm_epsilon", k, diag));
    KVANT_TRY(put_u32s(c, experts, sizeof experts / sizeof *experts, k, diag));
    KVANT_TRY(put_gating(c, k, diag));
    KVANT_TRY((a->flags & CONVERT_BY_WINDOW ? convert_full_head_dim : convert_head_dim)(c, &dim, diag));
    if (says_head_dim(a, c, dim)) {
        gguf_keys_u32(k, ".attention.key_length", dim);
        gguf_keys_u32(k, ".attention.value_length", dim);
    }
    if (a->flags & CONVERT_KV_ONE)
        KVANT_TRY(put_latent_lengths(c, k, diag));
    gguf_keys_u32(k, "general.file_type", (uint32_t)file_type);
    if (a->keys)
        KVANT_TRY(a->keys(c, k, diag));
    if (c->further)
        gguf_keys_u32(k, ".nextn_predict_layers", c->further);
    return KVANT_OK;
}
