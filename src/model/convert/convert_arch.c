/* convert_arch.c: see convert_arch.h.  Owns the table of architectures and the keys that single ones have. */
#include "model/convert/convert_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model/gguf/gguf.h"

/* ---- keys of single architectures ---- */

int convert_put_rotated(const hf_config *c, double part, gguf_keys *k, kvant_diag *diag)
{
    uint32_t dim;

    KVANT_TRY(convert_head_dim(c, &dim, diag));
    KVANT_TRY(hf_rope_number(c, "partial_rotary_factor", &part, diag));
    if (!(part > 0.0 && part <= 1.0))
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: partial_rotary_factor is %g, above 0 up to 1 wanted",
                          part);
    gguf_keys_u32(k, ".rope.dimension_count", (uint32_t)(part * dim));
    return KVANT_OK;
}

static int put_llama(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t dim;

    KVANT_TRY(convert_put_u32(c, "vocab_size", ".vocab_size", k, diag));
    KVANT_TRY(convert_head_dim(c, &dim, diag));
    gguf_keys_u32(k, ".rope.dimension_count", dim);
    return KVANT_OK;
}

/* Ministral 3 says more than the models of the same architecture before it. */
static int put_mistral3(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    static const char *const from[] = { "mscale_all_dim", "llama_4_scaling_beta" };
    static const char *const keys[] = { ".rope.scaling.yarn_log_multiplier", ".attention.temperature_scale" };

    KVANT_TRY(put_llama(c, k, diag));
    for (int i = 0; i < 2; i++) {
        double v = 0.0;
        if (!hf_rope(c, from[i]).p)
            continue;
        KVANT_TRY(hf_rope_number(c, from[i], &v, diag));
        gguf_keys_f32(k, keys[i], v);
    }
    return KVANT_OK;
}

static int put_qwen_moe(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_u32(c, "moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    return convert_put_u32(c, "shared_expert_intermediate_size", ".expert_shared_feed_forward_length", k, diag);
}

static int put_gemma2(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_number(c, "attn_logit_softcapping", ".attn_logit_softcapping", k, diag));
    KVANT_TRY(convert_put_number(c, "final_logit_softcapping", ".final_logit_softcapping", k, diag));
    return convert_put_u32(c, "sliding_window", ".attention.sliding_window", k, diag);
}

static int put_gemma3(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t pattern = 0;

    if (hf_find(c, "attn_logit_softcapping").p)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: attn_logit_softcapping in gemma3, none wanted");
    KVANT_TRY(convert_put_number(c, "final_logit_softcapping", ".final_logit_softcapping", k, diag));
    KVANT_TRY(hf_u32(c, "sliding_window_pattern", 0, &pattern, diag));
    return pattern == 1 ? KVANT_OK : convert_put_u32(c, "sliding_window", ".attention.sliding_window", k, diag);
}

static int put_phi3(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t window = 0, original = 0, most = 0;
    double theta = 10000.0;
    const gjson first = hf_rope(c, "original_max_position_embeddings");

    KVANT_TRY(hf_u32(c, "max_position_embeddings", 1, &most, diag));
    original = most;
    if (first.p)
        KVANT_TRY(hf_to_u32(first, "original_max_position_embeddings", &original, diag));
    gguf_keys_u32(k, ".rope.scaling.original_context_length", original);
    KVANT_TRY(convert_put_rotated(c, 1.0, k, diag));
    KVANT_TRY(hf_rope_number(c, "rope_theta", &theta, diag));
    gguf_keys_f32(k, ".rope.freq_base", theta);
    KVANT_TRY(hf_u32(c, "sliding_window", 0, &window, diag));
    gguf_keys_u32(k, ".attention.sliding_window", window);
    if (!hf_rope(c, "long_factor").p)
        return KVANT_OK;
    if (original < 2)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: original_max_position_embeddings is %u, 2 or more wanted",
                          original);
    const double scale = (double)most / original;
    gguf_keys_f32(k, ".rope.scaling.attn_factor", scale > 1.0 ? sqrt(1.0 + log(scale) / log(original)) : 1.0);
    return KVANT_OK;
}

static int is_word(gjson v, const char *word)
{
    const size_t n = strlen(word);
    return v.n == n + 2 && memcmp(v.p + 1, word, n) == 0;
}

/* Which layers have a window, by layer_types or by every n-th that has none. */
static int put_window(const hf_config *c, uint32_t every, gguf_keys *k, kvant_diag *diag)
{
    const gjson types = hf_find(c, "layer_types");
    gjson it = { NULL, 0 };
    uint32_t layers = 0, n = 0;

    if (!hf_find(c, "sliding_window").p)
        return KVANT_OK;
    KVANT_TRY(convert_put_u32(c, "sliding_window", ".attention.sliding_window", k, diag));
    KVANT_TRY(hf_u32(c, "num_hidden_layers", 1, &layers, diag));
    while (gjson_next(types, &it))
        n++;
    if (layers > 4096 || (types.p && n != layers) || (!types.p && every == 0))
        return kvant_fail(diag, KVANT_EFORMAT,
                          "config.json: layer_types has %u entries, num_hidden_layers is %u (up to "
                          "4096)",
                          n, layers);
    gguf_keys_array(k, ".attention.sliding_window_pattern", GGUF_BOOL, layers);
    it = (gjson){ NULL, 0 };
    for (uint32_t l = 0; l < layers; l++) {
        const int listed = gjson_next(types, &it);
        const int yes = listed ? is_word(it, "sliding_attention") : (l + 1) % every != 0;
        const uint8_t window = (uint8_t)yes;
        gguf_keys_put(k, &window, 1);
    }
    return KVANT_OK;
}

static int put_olmo(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    return put_window(c, 4, k, diag);
}

static int put_exaone4(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t every = 0;

    KVANT_TRY(convert_put_u32(c, "vocab_size", ".vocab_size", k, diag));
    if (!hf_find(c, "layer_types").p)
        KVANT_TRY(hf_u32(c, "sliding_window_pattern", hf_find(c, "sliding_window").p != NULL, &every, diag));
    return put_window(c, every, k, diag);
}

static int put_glm4(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    return convert_put_rotated(c, 0.5, k, diag);
}

static int put_granite(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(put_llama(c, k, diag));
    KVANT_TRY(convert_put_number(c, "attention_multiplier", ".attention.scale", k, diag));
    KVANT_TRY(convert_put_number(c, "embedding_multiplier", ".embedding_scale", k, diag));
    KVANT_TRY(convert_put_number(c, "residual_multiplier", ".residual_scale", k, diag));
    KVANT_TRY(convert_put_number(c, "logits_scaling", ".logit_scale", k, diag));
    return convert_put_u32(c, "shared_intermediate_size", ".expert_shared_feed_forward_length", k, diag);
}

/* ---- names of single architectures ---- */

static const convert_name norms_after[] = {
    { "post_attention_layernorm", "post_attention_norm" },
    { NULL, NULL },
};

static const convert_name glm4_names[] = {
    { "post_self_attn_layernorm", "post_attention_norm" },
    { "post_mlp_layernorm", "post_ffw_norm" },
    { NULL, NULL },
};

static const convert_name granite_moe_names[] = {
    { "block_sparse_moe.router.layer", "ffn_gate_inp" },   { "block_sparse_moe.input_linear.gate", "ffn_gate_exps" },
    { "block_sparse_moe.input_linear.up", "ffn_up_exps" }, { "block_sparse_moe.output_linear", "ffn_down_exps" },
    { "shared_mlp.input_linear.gate", "ffn_gate_shexp" },  { "shared_mlp.input_linear.up", "ffn_up_shexp" },
    { "shared_mlp.output_linear", "ffn_down_shexp" },      { NULL, NULL },
};

static const char *const glm4_special[] = { "eos",           "<|endoftext|>", "eot",           "<|user|>", "unk",
                                            "<|endoftext|>", "bos",           "<|endoftext|>", NULL };

enum { LLAMA = CONVERT_ROPE_PAIRS | CONVERT_SPACE_PREFIX | CONVERT_ROPE_FACTORS };

static const convert_arch archs[] = {
    { .hf = { "LlamaForCausalLM", "MistralForCausalLM" },
      .arch = "llama",
      .flags = LLAMA | CONVERT_HEAD_DIM,
      .keys = put_llama },
    { .hf = { "MixtralForCausalLM" },
      .arch = "llama",
      .flags = LLAMA,
      .keys = put_llama,
      .defaults = "{\"rope_theta\": 1000000.0}" },
    { .hf = { "SmolLM3ForCausalLM" },
      .arch = "smollm3",
      .flags = LLAMA,
      .keys = put_llama,
      .defaults = "{\"rope_theta\": 2000000.0}" },
    { .hf = { "GraniteForCausalLM" }, .arch = "granite", .flags = LLAMA | CONVERT_NO_KEY_LENGTH, .keys = put_granite },
    { .hf = { "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM" },
      .arch = "granitemoe",
      .flags = LLAMA | CONVERT_NO_KEY_LENGTH,
      .names = granite_moe_names,
      .keys = put_granite },
    { .hf = { "Qwen2ForCausalLM" }, .arch = "qwen2" },
    { .hf = { "Qwen2MoeForCausalLM" }, .arch = "qwen2moe", .keys = put_qwen_moe },
    { .hf = { "Qwen3ForCausalLM" }, .arch = "qwen3", .defaults = "{\"head_dim\": 128}" },
    { .hf = { "Qwen3MoeForCausalLM" }, .arch = "qwen3moe", .keys = put_qwen_moe },
    { .hf = { "Gemma2ForCausalLM" },
      .arch = "gemma2",
      .names = norms_after,
      .keys = put_gemma2,
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_NO_OUTPUT | CONVERT_NO_SPACE_PREFIX | CONVERT_FEW_KEYS,
      .defaults = "{\"head_dim\": 256, \"sliding_window\": 4096}" },
    { .hf = { "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration" },
      .arch = "gemma3",
      .names = norms_after,
      .keys = put_gemma3,
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_REAL_ROWS | CONVERT_NO_SPACE_PREFIX,
      .defaults =
          "{\"max_position_embeddings\": 131072, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
          "\"head_dim\": 256, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000.0, \"rope_local_base_freq\": 10000.0, "
          "\"sliding_window\": 4096, \"vocab_size\": 262208}" },
    { .hf = { "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration" },
      .arch = "gemma4",
      .names = convert_gemma4_names,
      .keys = convert_put_gemma4,
      .tensor = convert_gemma4_tensor,
      .flags = CONVERT_NO_OUTPUT | CONVERT_REAL_ROWS | CONVERT_ROPE_FACTORS | CONVERT_CHARACTERS | CONVERT_BY_WINDOW,
      .defaults = "{\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-6, \"head_dim\": 256, \"sliding_window\": 512}" },
    { .hf = { "Phi3ForCausalLM" }, .arch = "phi3", .flags = CONVERT_LONG_ROPE | CONVERT_FEW_KEYS, .keys = put_phi3 },
    { .hf = { "Olmo2ForCausalLM", "Olmo3ForCausalLM" }, .arch = "olmo2", .names = norms_after, .keys = put_olmo },
    { .hf = { "SeedOssForCausalLM" }, .arch = "seed_oss", .names = norms_after, .defaults = "{\"head_dim\": 128}" },
    { .hf = { "Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM" },
      .arch = "ernie4_5",
      .flags = CONVERT_SPACE_PREFIX,
      .defaults = "{\"head_dim\": 128, \"rope_theta\": 500000.0}" },
    { .hf = { "Exaone4ForCausalLM" },
      .arch = "exaone4",
      .names = norms_after,
      .flags = CONVERT_ROPE_FACTORS,
      .keys = put_exaone4 },
    { .hf = { "Glm4ForCausalLM" },
      .arch = "glm4",
      .names = glm4_names,
      .special = glm4_special,
      .keys = put_glm4,
      .defaults = "{\"head_dim\": 128}" },
    { .hf = { "Mistral3ForConditionalGeneration", "Ministral3ForCausalLM" },
      .arch = "mistral3",
      .flags = LLAMA | CONVERT_HEAD_DIM,
      .keys = put_mistral3 },
    { .hf = { "GptOssForCausalLM" },
      .arch = "gpt-oss",
      .flags = CONVERT_MXFP4,
      .names = convert_gpt_oss_names,
      .keys = convert_put_gpt_oss,
      .tensor = convert_gpt_oss_tensor,
      .defaults = "{\"head_dim\": 64, \"rope_theta\": 150000.0, \"sliding_window\": 128}" },
    { .hf = { "Glm4MoeForCausalLM" },
      .arch = "glm4moe",
      .names = convert_post_attention_names,
      .special = glm4_special,
      .keys = convert_put_glm4moe },
    { .hf = { "Dots1ForCausalLM" }, .arch = "dots1", .keys = convert_put_dots1 },
    { .hf = { "Ernie4_5_MoeForCausalLM" },
      .arch = "ernie4_5-moe",
      .flags = CONVERT_SPACE_PREFIX,
      .keys = convert_put_ernie_moe,
      .defaults = "{\"rope_theta\": 500000.0}" },
    { .hf = { "MiniMaxM2ForCausalLM" },
      .arch = "minimax-m2",
      .names = convert_minimax_names,
      .keys = convert_put_minimax },
    { .hf = { "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM" },
      .arch = "deepseek2",
      .flags = CONVERT_KV_ONE | CONVERT_NO_KEY_LENGTH,
      .names = convert_mla_names,
      .keys = convert_put_deepseek2,
      .tensor = convert_mla_tensor,
      .defaults = "{\"rms_norm_eps\": 1e-6}" },
    { .hf = { "Lfm2ForCausalLM", "LFM2ForCausalLM" },
      .arch = "lfm2",
      .flags = CONVERT_KV_BY_LAYER | CONVERT_FF_ADJUSTED,
      .names = convert_lfm2_names,
      .keys = convert_put_lfm2,
      .tensor = convert_lfm2_tensor },
    { .hf = { "Lfm2MoeForCausalLM" },
      .arch = "lfm2moe",
      .flags = CONVERT_KV_BY_LAYER,
      .names = convert_lfm2_names,
      .keys = convert_put_lfm2moe,
      .tensor = convert_lfm2_tensor },
    { .hf = { "Qwen3NextForCausalLM" },
      .arch = "qwen3next",
      .flags = CONVERT_NORM_PLUS_1,
      .names = convert_gdn_names,
      .keys = convert_put_qwen3next,
      .tensor = convert_qwen3next_tensor },
    { .hf = { "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration" },
      .arch = "qwen35",
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_MROPE,
      .names = convert_gdn_names,
      .keys = convert_put_qwen35,
      .tensor = convert_qwen35_tensor },
    { .hf = { "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration" },
      .arch = "qwen35moe",
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_MROPE,
      .names = convert_gdn_names,
      .keys = convert_put_qwen35,
      .tensor = convert_qwen35_tensor },
};

const convert_arch *convert_arch_at(int i)
{
    return i >= 0 && i < (int)(sizeof archs / sizeof archs[0]) ? &archs[i] : NULL;
}

int convert_arch_find(const hf_config *c, const convert_arch **out, kvant_diag *diag)
{
    char name[64] = "", known[1600] = "";
    size_t n = 0;

    gjson_text(gjson_at(c->root, "architectures.0"), name, sizeof name);
    for (int i = 0; convert_arch_at(i); i++)
        for (int j = 0; j < 4 && archs[i].hf[j]; j++) {
            if (strcmp(archs[i].hf[j], name) == 0) {
                *out = &archs[i];
                return KVANT_OK;
            }
            if (n < sizeof known)
                n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? " " : "", archs[i].hf[j]);
        }
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: architecture \"%.50s\", one of %s wanted", name, known);
}
