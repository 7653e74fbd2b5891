/* convert_arch.c: see convert_arch.h.  Owns the table of architectures and the keys that single ones have. */
#include "make/convert/convert_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "make/convert/fields/hf_fields.h"

/* ---- keys of single architectures ---- */

static int put_llama(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t dim;

    KVANT_TRY(convert_put_u32(c, "vocab_size", ".vocab_size", k, diag));
    KVANT_TRY(convert_head_dim(c, &dim, diag));
    gguf_keys_u32(k, ".rope.dimension_count", dim);
    return convert_put_window(c, k, diag);
}

/* Ministral 3 says more than the models of the same architecture before it. */
static int put_mistral3(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    double beta = 0.0;

    KVANT_TRY(put_llama(c, k, diag));
    if (strcmp(c->text_cls->name, "Ministral3Config") != 0 || !hf_rope(c, "llama_4_scaling_beta").p)
        return KVANT_OK;
    KVANT_TRY(hf_rope_number(c, "llama_4_scaling_beta", &beta, diag));
    gguf_keys_f32(k, ".attention.temperature_scale", beta);
    return KVANT_OK;
}

/* Writes whether the weights of the chosen experts sum to one, if readers would take the other answer. */
int convert_put_norm(const hf_config *c, int by_reader, gguf_keys *k, kvant_diag *diag)
{
    const gjson v = hf_find(c, "norm_topk_prob");

    return v.p && (*v.p == 't') != by_reader ? convert_put_bool(c, "norm_topk_prob", ".expert_weights_norm", k, diag)
                                             : KVANT_OK;
}

static int put_qwen_moe(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_norm(c, strcmp(c->text_cls->name, "Qwen3MoeConfig") == 0, k, diag));
    KVANT_TRY(convert_put_window(c, k, diag));
    KVANT_TRY(convert_put_u32(c, "moe_intermediate_size", ".expert_feed_forward_length", k, diag));
    return convert_put_u32(c, "shared_expert_intermediate_size", ".expert_shared_feed_forward_length", k, diag);
}

/* A cap of 0 says that there is none: without a key, readers take the number of the first models. */
static int put_cap(const hf_config *c, const char *name, const char *key, int by_reader, gguf_keys *k, kvant_diag *diag)
{
    double v = 0.0;

    KVANT_TRY(hf_number(c, name, 0, &v, diag));
    if (v != 0.0 || by_reader)
        gguf_keys_f32(k, key, v);
    return KVANT_OK;
}

/* Scores are divided by the root of query_pre_attn_scalar.  Readers take the head's size, in the largest model (of
 * `big` layers) hidden_size / heads; a key where that is another number. */
static int put_query_scale(const hf_config *c, uint32_t big, gguf_keys *k, kvant_diag *diag)
{
    uint32_t dim = 0, hidden = 0, heads = 1, layers = 0;
    double q = 256.0;

    KVANT_TRY(hf_number(c, "query_pre_attn_scalar", 0, &q, diag));
    KVANT_TRY(convert_head_dim(c, &dim, diag));
    KVANT_TRY(hf_u32(c, "hidden_size", 1, &hidden, diag));
    KVANT_TRY(hf_u32(c, "num_attention_heads", 1, &heads, diag));
    KVANT_TRY(hf_u32(c, "num_hidden_layers", 1, &layers, diag));
    if (!(q > 0.0 && q < 1e9) || heads == 0)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: query_pre_attn_scalar is %g, num_attention_heads %u, numbers "
                          "above 0 wanted", q, heads);
    if (q != (layers == big ? hidden / heads : dim))
        gguf_keys_f32(k, ".attention.scale", 1.0 / sqrt(q));
    return KVANT_OK;
}

static int put_gemma2(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(put_cap(c, "attn_logit_softcapping", ".attn_logit_softcapping", 1, k, diag));
    KVANT_TRY(put_cap(c, "final_logit_softcapping", ".final_logit_softcapping", 1, k, diag));
    KVANT_TRY(put_query_scale(c, 46, k, diag));
    return convert_put_window(c, k, diag);
}

static int put_gemma3(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(put_cap(c, "final_logit_softcapping", ".final_logit_softcapping", 0, k, diag));
    KVANT_TRY(put_query_scale(c, 62, k, diag));
    return convert_put_window(c, k, diag);
}

static int put_phi3(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t window = 0;

    KVANT_TRY(convert_put_rotated(c, k, diag));
    KVANT_TRY(hf_u32(c, "sliding_window", 0, &window, diag));
    gguf_keys_u32(k, ".attention.sliding_window", window);
    return KVANT_OK;
}

static int put_smollm3(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    gjson it = { NULL, 0 };
    uint32_t every = 4, l = 0;

    KVANT_TRY(hf_u32(c, "no_rope_layer_interval", 0, &every, diag));
    if (!hf_find(c, "no_rope_layers").p && every != 4)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: no_rope_layer_interval is %u, 4 wanted", every);
    for (; gjson_next(hf_find(c, "no_rope_layers"), &it); l++)
        if (gjson_number(it) != ((l + 1) % 4 != 0))
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: no_rope_layers has %.*s for layer %u, no RoPE (0) in "
                              "every fourth layer and 1 in the others wanted", hf_shown(it), it.p, l);
    return put_llama(c, k, diag);
}

static int put_exaone4(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    KVANT_TRY(convert_put_u32(c, "vocab_size", ".vocab_size", k, diag));
    return convert_put_window(c, k, diag);
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

/* An answer of GLM-4.5 and later also ends where a tool's is awaited. */
static const char *const glm4moe_special[] = { "!bos", "[gMASK]",       "eos",  "<|endoftext|>",   "!eot", "<|user|>",
                                               "!unk", "<|endoftext|>", "!eom", "<|observation|>", NULL };

enum { LLAMA = CONVERT_ROPE_PAIRS | CONVERT_SPACE_PREFIX };

static const convert_arch archs[] = {
    { .hf = { "LlamaForCausalLM", "MistralForCausalLM" },
      .arch = "llama",
      .flags = LLAMA | CONVERT_HEAD_DIM,
      .keys = put_llama },
    { .hf = { "MixtralForCausalLM" }, .arch = "llama", .flags = LLAMA, .keys = put_llama },
    { .hf = { "SmolLM3ForCausalLM" }, .arch = "smollm3", .flags = LLAMA, .keys = put_smollm3 },
    { .hf = { "GraniteForCausalLM" }, .arch = "granite", .flags = LLAMA | CONVERT_NO_KEY_LENGTH, .keys = put_granite },
    { .hf = { "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM" },
      .arch = "granitemoe",
      .flags = LLAMA | CONVERT_NO_KEY_LENGTH,
      .names = granite_moe_names,
      .keys = put_granite },
    { .hf = { "Qwen2ForCausalLM" }, .arch = "qwen2", .keys = convert_put_window },
    { .hf = { "Qwen2MoeForCausalLM" }, .arch = "qwen2moe", .keys = put_qwen_moe },
    { .hf = { "Qwen3ForCausalLM" }, .arch = "qwen3", .keys = convert_put_window },
    { .hf = { "Qwen3MoeForCausalLM" }, .arch = "qwen3moe", .keys = put_qwen_moe },
    { .hf = { "Gemma2ForCausalLM" },
      .arch = "gemma2",
      .names = norms_after,
      .keys = put_gemma2,
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_NO_OUTPUT | CONVERT_NO_SPACE_PREFIX },
    { .hf = { "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration" },
      .arch = "gemma3",
      .names = norms_after,
      .keys = put_gemma3,
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_NO_SPACE_PREFIX },
    { .hf = { "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration" },
      .arch = "gemma4",
      .names = convert_gemma4_names,
      .keys = convert_put_gemma4,
      .tensor = convert_gemma4_tensor,
      .flags = CONVERT_NO_OUTPUT | CONVERT_CHARACTERS | CONVERT_BY_WINDOW },
    { .hf = { "Phi3ForCausalLM" }, .arch = "phi3", .flags = CONVERT_PARTIAL, .keys = put_phi3 },
    { .hf = { "Olmo2ForCausalLM", "Olmo3ForCausalLM" },
      .arch = "olmo2",
      .names = norms_after,
      .keys = convert_put_window },
    { .hf = { "SeedOssForCausalLM" }, .arch = "seed_oss", .names = norms_after },
    { .hf = { "Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM" }, .arch = "ernie4_5", .flags = CONVERT_SPACE_PREFIX },
    { .hf = { "Exaone4ForCausalLM" }, .arch = "exaone4", .names = norms_after, .keys = put_exaone4 },
    { .hf = { "Glm4ForCausalLM" },
      .arch = "glm4",
      .names = glm4_names,
      .special = glm4_special,
      .flags = CONVERT_PARTIAL,
      .keys = convert_put_rotated },
    { .hf = { "Mistral3ForConditionalGeneration", "Ministral3ForCausalLM" },
      .arch = "mistral3",
      .flags = LLAMA | CONVERT_HEAD_DIM,
      .keys = put_mistral3 },
    { .hf = { "GptOssForCausalLM" },
      .arch = "gpt-oss",
      .flags = CONVERT_MXFP4,
      .names = convert_gpt_oss_names,
      .keys = convert_put_gpt_oss,
      .tensor = convert_gpt_oss_tensor },
    { .hf = { "Glm4MoeForCausalLM" },
      .arch = "glm4moe",
      .names = convert_post_attention_names,
      .special = glm4moe_special,
      .flags = CONVERT_PARTIAL | CONVERT_FURTHER,
      .keys = convert_put_glm4moe },
    { .hf = { "Dots1ForCausalLM" }, .arch = "dots1", .keys = convert_put_dots1 },
    { .hf = { "Ernie4_5_MoeForCausalLM" },
      .arch = "ernie4_5-moe",
      .flags = CONVERT_SPACE_PREFIX,
      .keys = convert_put_ernie_moe },
    { .hf = { "MiniMaxM2ForCausalLM" },
      .arch = "minimax-m2",
      .flags = CONVERT_PARTIAL,
      .names = convert_minimax_names,
      .keys = convert_put_minimax },
    { .hf = { "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM" },
      .arch = "deepseek2",
      .flags = CONVERT_KV_ONE | CONVERT_NO_KEY_LENGTH | CONVERT_FURTHER,
      .names = convert_mla_names,
      .keys = convert_put_deepseek2,
      .tensor = convert_mla_tensor },
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
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_PARTIAL | CONVERT_FURTHER,
      .names = convert_gdn_names,
      .keys = convert_put_qwen3next,
      .tensor = convert_qwen3next_tensor },
    { .hf = { "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration" },
      .arch = "qwen35",
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_MROPE | CONVERT_PARTIAL | CONVERT_FURTHER,
      .names = convert_gdn_names,
      .keys = convert_put_qwen35,
      .tensor = convert_qwen35_tensor },
    { .hf = { "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration" },
      .arch = "qwen35moe",
      .flags = CONVERT_NORM_PLUS_1 | CONVERT_MROPE | CONVERT_PARTIAL | CONVERT_FURTHER,
      .names = convert_gdn_names,
      .keys = convert_put_qwen35,
      .tensor = convert_qwen35_tensor },
};

const convert_arch *convert_arch_at(int i)
{
    return i >= 0 && i < (int)(sizeof archs / sizeof archs[0]) ? &archs[i] : NULL;
}

int convert_arch_find(const hf_config *c, const convert_arch **out, const char **its_name, kvant_diag *diag)
{
    char name[64] = "", known[1600] = "";
    size_t n = 0;

    gjson_text(gjson_at(c->root, "architectures.0"), name, sizeof name);
    for (int i = 0; convert_arch_at(i); i++)
        for (int j = 0; j < 4 && archs[i].hf[j]; j++) {
            if (strcmp(archs[i].hf[j], name) == 0) {
                *out = &archs[i];
                *its_name = archs[i].hf[j];
                return KVANT_OK;
           }
            if (n < sizeof known)
                n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? " " : "", archs[i].hf[j]);
       }
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: architecture \"%.50s\", one of %s wanted", name, known);
}
