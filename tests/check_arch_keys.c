/* check_arch_keys.c: hostile values of the keys that architectures read: a model of tests/archs with one value spoiled
 * is refused with the key's or tensor's name; and which of LongRoPE's factors an engine takes. */
#include "support/check.h"

#include <stdint.h>
#include <unistd.h>
#include "model/model.h"
#include "support/text_file.h"

static char path[64];

/* Where the n bytes of `what` lie in data; NULL: nowhere. */
static char *find(char *data, size_t size, const char *what, size_t n)
{
    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(data + i, what, n) == 0)
            return data + i;
    return NULL;
}

static void check_refused(const char *data, size_t n, const char *model, const char *named)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    kvant_diag d = { "" };
    kvant_model *m = NULL;
    FILE *f = fopen(path, "wb");

    CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, "%s", path);
    const int code = kvant_model_open(&mp, &m, &d);
    CHECK((code == KVANT_EFORMAT || code == KVANT_EUNSUPPORTED) && strstr(d.text, named), "%s with a wrong %s: %d, %s",
          model, named, code, d.text);
    kvant_model_close(m);
}

/* A 4-byte value follows its key and its type; a string's text follows its length too. */
static void spoil(const char *model, const char *key, const void *value, size_t n, int at)
{
    char name[96];
    size_t size = 0;
    snprintf(name, sizeof name, "tests/archs/%s.gguf", model);
    char *data = text_file_read(name, &size), *p = find(data, size, key, strlen(key));
    CHECK(p != NULL, "%s has no %s", name, key);
    if (p) {
        memcpy(p + strlen(key) + at, value, n);
        check_refused(data, size, model, key);
    }
    free(data);
}

static void spoil_f32(const char *model, const char *key, float v)
{
    spoil(model, key, &v, sizeof v, 4);
}

static void spoil_u32(const char *model, const char *key, uint32_t v)
{
    spoil(model, key, &v, sizeof v, 4);
}

static void check_keys(void)
{
    spoil_u32("llama-yarn", "attention.head_count", 0); /* 0 is for models without attention */
    spoil_u32("mamba2", "mamba2.ssm.group_count", 0);
    spoil_u32("mamba2", "mamba2.ssm.state_size", 0);
    spoil_u32("mamba2", "mamba2.ssm.time_step_rank", 0);
    spoil_u32("kimi-linear", "kimi-linear.kda.head_dim", 0);
    spoil_u32("kimi-linear", "kimi-linear.kda.head_dim", 257);
    spoil_u32("kimi-linear", "kimi-linear.ssm.conv_kernel", 9);
    spoil_u32("kimi-linear", "kimi-linear.attention.kv_lora_rank", 0);
    spoil_u32("kimi-linear", "kimi-linear.attention.key_length_mla", 0);
    spoil_u32("kimi-linear", "kimi-linear.attention.value_length_mla", 1 << 17);
    spoil("kimi-linear", "kimi-linear.attention.key_length_mla", "_MLA", 4, -4); /* old files: attn_kv_b in one */
    spoil_f32("llama-yarn", "llama.rope.scaling.factor", 0.0f);
    spoil_f32("llama-yarn", "llama.rope.scaling.factor", NAN);
    spoil_f32("llama-yarn", "llama.rope.scaling.yarn_beta_fast", -1.0f);
    spoil_f32("llama-yarn", "llama.rope.scaling.yarn_beta_slow", 0.0f);
    spoil_u32("llama-yarn", "llama.rope.scaling.original_context_length", 0);
    spoil_u32("llama-yarn", "llama.rope.scaling.original_context_length", UINT32_MAX);
    spoil("llama-yarn", "llama.rope.scaling.type", "yarx", 4, 12);
    spoil_f32("mistral3", "mistral3.attention.temperature_scale", -0.1f);
    spoil_f32("mistral4", "mistral4.attention.temperature_scale", NAN);
    spoil_u32("mistral4", "mistral4.attention.temperature_length", 33);
    spoil_u32("mistral4", "mistral4.attention.temperature_length", 0);
    spoil_u32("mistral4", "mistral4.expert_group_count", 4);
    spoil_f32("mistral3", "mistral3.rope.scaling.yarn_log_multiplier", INFINITY);
    spoil_f32("granite", "granite.embedding_scale", 0.0f);
    spoil_f32("granite", "granite.residual_scale", -1.0f);
    spoil_f32("granite", "granite.logit_scale", 0.0f);
    spoil_f32("phi3", "phi3.rope.scaling.attn_factor", 0.0f);
    spoil_f32("olmo3", "olmo2.rope.freq_base_swa", 0.0f);
    spoil_u32("exaone4", "exaone4.attention.sliding_window", UINT32_MAX);
}

/* The n-th of an array of 4-byte values. */
static void spoil_nth(const char *model, const char *key, int n, uint32_t v)
{
    spoil(model, key, &v, sizeof v, 16 + 4 * n);
}

/* gemma4-e: five layers, windowed but the second and the last; the last three read the first two. */
static void check_layers_that_differ(void)
{
    spoil_u32("gemma4-e", "gemma4.attention.sliding_window", 0);
    spoil_u32("gemma4-e", "gemma4.attention.key_length_swa", UINT32_MAX);
    spoil_u32("gemma4-e", "gemma4.attention.value_length_swa", MODEL_MAX_HEAD_DIM + 1);
    spoil_u32("gemma4-e", "gemma4.rope.dimension_count_swa", 34);
    spoil_f32("gemma4-e", "gemma4.rope.freq_base_swa", NAN);
    spoil_u32("gemma4-e", "gemma4.attention.shared_kv_layers", 4);
    spoil_u32("gemma4-e", "gemma4.attention.shared_kv_layers", 5);
    spoil_u32("gemma4-e", "gemma4.embedding_length_per_layer_input", UINT32_MAX);
    spoil_nth("gemma4-e", "gemma4.feed_forward_length", 3, 0);
    spoil_nth("gemma4", "gemma4.attention.head_count_kv", 2, 3);
    spoil_nth("gemma4", "gemma4.attention.head_count_kv", 1, 0);
    spoil("gemma4", "rope_freqs", "X", 1, -1);
    spoil("gemma4", "blk.2.attn_k_norm", "X", 1, -1);
    spoil("gemma4-moe", "blk.1.ffn_gate_inp.scale", "X", 1, -1);
    spoil_nth("lfm2", "lfm2.attention.head_count_kv", 0, 2); /* no other architecture takes such layers */
}

/* One of the two sets of factors under another name. */
static void check_factors(void)
{
    spoil("phi3", "rope_factors_short", "X", 1, -1);
    spoil("phi3", "rope_factors_long", "X", 1, -1);
}

/* The long factors where the context may exceed the original one (64 here), the short ones elsewhere. */
static void check_long(void)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = "tests/archs/phi3.gguf" };
    kvant_model *m = NULL;
    kvant_diag d = { "" };
    float few[MODEL_MAX_HEAD_DIM], many[MODEL_MAX_HEAD_DIM];

    CHECK(kvant_model_open(&mp, &m, &d) == KVANT_OK, "%s", d.text);
    if (!m)
        return;
    rope_frequencies(m, 64, few);
    rope_frequencies(m, 65, many);
    for (int i = 0; i < m->hp.n_rot / 2; i++)   /* tests/archs: 1 + 0.05 i and 1 + 0.7 i */
        CHECK_CLOSE(few[i] / many[i], (1.0 + 0.7 * i) / (1.0 + 0.05 * i), 1e-5, "factors of pair %d", i);
    kvant_model_close(m);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/kvant-keys-%ld.gguf", (long)getpid());
    check_keys();
    check_layers_that_differ();
    check_factors();
    check_long();
    CHECK(remove(path) == 0, "%s", path);
    return check_end("check_arch_keys");
}
