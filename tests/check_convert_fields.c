/* check_convert_fields.c: every field of config.json is read, known to change nothing, or named.  The inventory of
 * Transformers' classes has a decision for each field; what one says of a field holds: READ is read by code, ONLY
 * refuses other values, an unknown field is named in a warning. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file/crc32c.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "make/convert/convert_arch.h"
#include "make/convert/fields/hf_fields.h"
#include "support/check.h"

static char folder[256], warned[4096];
static kvant_diag diag;

static void keep_warning(void *user, int level, const char *text)
{
    (void)user;
    if (level == LOG_WARN)
        snprintf(warned + strlen(warned), sizeof warned - strlen(warned), "%s\n", text);
}

/* ---- the tables ---- */

static void check_inventory(void)
{
    char names[2048];
    int n = 0;

    for (; hf_class_at(n); n++)
        CHECK(hf_class_undecided(hf_class_at(n), names, sizeof names) == 0,
              "%s: no decision in hf_decisions.def for: %s", hf_class_at(n)->name, names);
    CHECK(n > 40, "%d classes", n);
    const hf_class planted = { .name = "LlamaConfig", .fields = "{\"vocab_size\": 1, \"attention_twist\": 0.5}",
                               .more = "[\"head_dim\", \"helix\"]", .renamed = "{}" };
    CHECK(hf_class_undecided(&planted, names, sizeof names) == 2 && strcmp(names, "attention_twist helix") == 0,
          "planted: \"%s\"", names);
    for (int i = 0; convert_arch_at(i); i++)
        for (int j = 0; j < 4 && convert_arch_at(i)->hf[j]; j++) {
            hf_config c = { 0 };
            CHECK(hf_fields_classes(&c, convert_arch_at(i)->hf[j], &diag) == KVANT_OK,
                  "%s: run tools/gen_hf_fields.py: %s", convert_arch_at(i)->hf[j], diag.text);
        }
}

/* The text of all of convert's code, one after another. */
static char *sources(void)
{
    static const char *const dirs[] = { "src/make/convert", "src/make/convert/fields", "src/make/convert/archs" };
    char path[512], *all = calloc(1, 1 << 20), *data = NULL;
    size_t n = 0, at = 0;

    for (int i = 0; i < 3; i++) {
        DIR *d = opendir(dirs[i]);
        for (struct dirent *e; d && (e = readdir(d));) {
            snprintf(path, sizeof path, "%s/%s", dirs[i], e->d_name);
            if (strstr(e->d_name, ".c") && file_read(path, 1 << 20, &data, &n, &diag) == KVANT_OK && at + n < 1 << 20) {
                memcpy(all + at, data, n);
                at += n;
                kvant_free(data);
            }
        }
        if (d)
            closedir(d);
    }
    return all;
}

static int is_part(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* 1: the word stands in a text of the code, as a name that is looked for. */
static int is_read(const char *code, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = code; (at = strstr(at, word)); at += n)
        if (at > code && (at[-1] == '"' || at[-1] == ' ' || at[-1] == '.') && !is_part(at[n]) && at[n] != ':')
            return 1;
    return 0;
}

static void check_readers(void)
{
    char word[64], *code = sources();
    int n = 0, named;

    for (int i = 0; hf_class_at(i); i++) {
        gjson all = { NULL, 0 }, key = { NULL, 0 }, it = { NULL, 0 };
        CHECK(gjson_parse(hf_class_at(i)->fields, strlen(hf_class_at(i)->fields), &all, &diag) == KVANT_OK, "%s",
              diag.text);
        while (gjson_member(all, &key, &it)) {
            gjson_text(key, word, sizeof word);
            const hf_decision *d = hf_decision_of(hf_class_at(i)->name, word, &named);
            if (!d || d->kind != HF_READ)
                continue;
            const size_t tail = strlen(word) > 9 ? strlen(word) - 9 : 0; /* bos_token_id is put together from "bos" */
            CHECK(strcmp(word + tail, "_token_id") == 0 || is_read(code, word),
                  "%s.%s: READ in hf_decisions.def, and no code of convert reads it", hf_class_at(i)->name, word);
            n++;
        }
    }
    CHECK(n > 500, "%d fields are read", n);
    CHECK(!is_read(code, "attention_twist"), "a name that no code has");
    free(code);
}

/* ---- files ---- */

static const char *temp_config(void)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/config.json", folder);
    return path;
}

static int open_config(const char *architecture, const char *json)
{
    hf_config c;
    FILE *f = fopen(temp_config(), "w");

    if (!f)
        return KVANT_EIO;
    fputs(json, f);
    fclose(f);
    warned[0] = diag.text[0] = 0;
    int rc = hf_config_open(folder, &c, &diag);
    rc = rc == KVANT_OK ? hf_config_class(&c, architecture, &diag) : rc;
    hf_config_close(&c);
    return rc;
}

static void refused(const char *architecture, const char *json, const char *says)
{
    const int rc = open_config(architecture, json);

    CHECK(rc == KVANT_EUNSUPPORTED && strstr(diag.text, says), "%s %s: %s \"%s\", wanted \"%s\"", architecture, json,
          kvant_error_name(rc), diag.text, says);
}

/* says NULL: no warning. */
static void taken(const char *architecture, const char *json, const char *says)
{
    const int rc = open_config(architecture, json);

    CHECK(rc == KVANT_OK && (says ? strstr(warned, says) != NULL : !*warned),
          "%s %s: %s \"%s\", warnings \"%s\", wanted \"%s\"", architecture, json, kvant_error_name(rc), diag.text,
          warned, says ? says : "none");
}

static void check_refused(void)
{
    refused("LlamaForCausalLM", "{\"hidden_act\": \"relu\"}", "config.json: hidden_act is \"relu\"");
    refused("LlamaForCausalLM", "{\"hidden_act\": \"gelu_pytorch_tanh\"}", "one of silu swish wanted (LlamaConfig)");
    refused("Qwen2ForCausalLM", "{\"hidden_act\": \"gelu\"}", "hidden_act is \"gelu\"");
    refused("Gemma2ForCausalLM", "{\"hidden_activation\": \"gelu\"}", "hidden_activation is \"gelu\"");
    refused("Gemma3ForCausalLM", "{\"use_bidirectional_attention\": true}", "use_bidirectional_attention is true");
    refused("GptOssForCausalLM", "{\"swiglu_limit\": 8.0}", "swiglu_limit is 8.0, 7.0 wanted");
    refused("DeepseekV3ForCausalLM", "{\"rope_interleave\": false}", "rope_interleave is false");
    refused("DeepseekV3ForCausalLM", "{\"scoring_func\": \"softmax\"}", "scoring_func is \"softmax\"");
    refused("DeepseekV2ForCausalLM", "{\"topk_method\": \"noaux_tc\"}", "topk_method is \"noaux_tc\"");
    refused("Qwen3MoeForCausalLM", "{\"decoder_sparse_step\": 2}", "decoder_sparse_step is 2");
    refused("Qwen2MoeForCausalLM", "{\"mlp_only_layers\": [0]}", "mlp_only_layers is [0]");
    refused("Ernie4_5_MoeForCausalLM", "{\"moe_layer_interval\": 2}", "moe_layer_interval is 2");
    refused("Lfm2ForCausalLM", "{\"conv_bias\": true}", "conv_bias is true");
    refused("Qwen3_5ForConditionalGeneration", "{\"text_config\": {\"hidden_act\": \"relu\"}}", "text_config: hidden_act");
    refused("Mistral3ForConditionalGeneration", "{\"text_config\": {\"model_type\": \"mamba\"}}", "\"mamba\"");
    refused("LlamaForCausalLM", "{\"model_type\": \"mistral\"}", "model_type is \"mistral\", \"llama\" wanted");
    refused("MixtralForCausalLM", "{\"num_experts\": 3, \"num_local_experts\": 4}", "num_experts is 3, and num_local_experts");
    refused("Ernie4_5_MoeForCausalLM", "{\"use_bias\": true}", "use_bias is true");
    refused("DeepseekV2ForCausalLM", "{\"norm_topk_prob\": true}", "norm_topk_prob is true");
    refused("Gemma3ForCausalLM", "{\"attn_logit_softcapping\": 50.0}", "attn_logit_softcapping is 50.0, null wanted");
    refused("LlamaForCausalLM", "{\"is_encoder_decoder\": true}", "is_encoder_decoder is true");
    refused("LlamaForCausalLM", "{\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}}", "fmt is \"e5m2\"");
}

/* RoPE's object, and numbers that are none. */
static void check_no_object(void)
{
    static const char *const bad[][2] = { { "{\"rope_scaling\": \"linear\"}", "rope_parameters: is \"linear\", an object" },
                                          { "{\"rope_scaling\": 4}", "rope_parameters: is 4, an object" },
                                          { "{\"rope_parameters\": [1]}", "rope_parameters: is [1], an object" } };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(open_config("LlamaForCausalLM", bad[i][0]) == KVANT_EFORMAT && strstr(diag.text, bad[i][1]), "%s: %s",
              bad[i][0], diag.text);
}

static void check_taken(void)
{
    taken("LlamaForCausalLM", "{\"hidden_act\": \"silu\", \"attention_dropout\": 0.5, \"use_cache\": false}", NULL);
    taken("LlamaForCausalLM", "{\"_name_or_path\": \"x\", \"torch_dtype\": \"float32\", \"auto_map\": {}}", NULL);
    taken("Glm4MoeForCausalLM", "{\"num_local_experts\": 8, \"n_routed_experts\": 8.0}", NULL);
    taken("MixtralForCausalLM", "{\"num_experts\": 4, \"rope_theta\": 1e6}", NULL);
    taken("LlamaForCausalLM", "{\"attention_twist\": 0.5}", "attention_twist (0.5) is not read: LlamaConfig has no such field");
    taken("LlamaForCausalLM", "{\"attention_twist\": null, \"helix\": false, \"n\": 0, \"l\": []}", NULL);
    taken("LlamaForCausalLM", "{\"sliding_window\": 64}", "sliding_window (64) is not read");
    taken("Qwen3ForCausalLM", "{\"attn_logit_softcapping\": 30.0}", "attn_logit_softcapping (30.0) is not read");
    taken("LlamaForCausalLM", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"helix\": 3}}",
          "rope_parameters: helix (3) is not read");
    taken("Gemma3ForConditionalGeneration", "{\"text_config\": {\"twist\": \"x\"}, \"vision_config\": {\"any\": 1}}",
          "text_config: twist (\"x\")");
    taken("Gemma2ForCausalLM", "{\"hidden_act\": \"gelu_pytorch_tanh\", \"cache_implementation\": \"hybrid\"}", NULL);
    taken("DeepseekV3ForCausalLM", "{\"model_type\": \"kimi_k2\"}", "model_type is \"kimi_k2\", which is read as");
    taken("GptOssForCausalLM", "{\"swiglu_limit\": 7, \"swiglu_alpha\": 1.7020}", NULL);
}

/* null is no default: DeepSeek's q_lora_rank; a default: Mixtral's base of RoPE; names in order of the places. */
static void check_values(void)
{
    hf_config c;
    uint32_t n = 0;
    double theta = 0.0;

    CHECK(open_config("DeepseekV3ForCausalLM", "{\"q_lora_rank\": null, \"num_local_experts\": 6}") == KVANT_OK, "%s", diag.text);
    CHECK(hf_config_open(folder, &c, &diag) == KVANT_OK &&
              hf_config_class(&c, "DeepseekV3ForCausalLM", &diag) == KVANT_OK,
          "%s", diag.text);
    CHECK(!hf_find(&c, "q_lora_rank").p, "null takes no default");
    CHECK(hf_u32(&c, "kv_lora_rank", 1, &n, &diag) == KVANT_OK && n == 512, "the class's default: %u", n);
    CHECK(hf_u32(&c, "n_routed_experts num_local_experts", 1, &n, &diag) == KVANT_OK && n == 6,
          "the file's name before the default of another: %u", n);
    hf_config_close(&c);
    CHECK(open_config("MixtralForCausalLM", "{}") == KVANT_OK, "%s", diag.text);
    CHECK(hf_config_open(folder, &c, &diag) == KVANT_OK && hf_config_class(&c, "MixtralForCausalLM", &diag) == KVANT_OK,
          "%s", diag.text);
    CHECK(hf_rope_number(&c, "rope_theta", &theta, &diag) == KVANT_OK && theta == 1e6, "rope_theta %g", theta);
    hf_config_close(&c);
    CHECK(open_config("Qwen3MoeForCausalLM", "{\"scoring_func\": \"sigmoid\", \"n_group\": 4, \"num_experts\": 4}") == KVANT_OK,
          "%s", diag.text);
    CHECK(hf_config_open(folder, &c, &diag) == KVANT_OK &&
              hf_config_class(&c, "Qwen3MoeForCausalLM", &diag) == KVANT_OK,
          "%s", diag.text);
    CHECK(!hf_find(&c, "scoring_func").p && !hf_find(&c, "n_group").p && hf_find(&c, "num_experts").p,
          "fields that the class does not have are not there");
    hf_config_close(&c);
    unlink(temp_config());
}

/* ---- published configurations ---- */

/* Which keys a configuration becomes, as a CRC; or the error. */
static void outcome_of(gjson config, char *out, size_t size)
{
    const convert_arch *a = NULL;
    const char *name = "";
    char architecture[64] = "", *text = malloc(config.n + 1);
    gguf_keys keys = { 0 };
    hf_config c = { 0 };

    memcpy(text, config.p, config.n);
    text[config.n] = 0;
    gjson_text(gjson_at(config, "architectures.0"), architecture, sizeof architecture);
    open_config(architecture, text);
    int rc = hf_config_open(folder, &c, &diag);
    rc = rc == KVANT_OK ? convert_arch_find(&c, &a, &name, &diag) : rc;
    rc = rc == KVANT_OK ? hf_config_class(&c, architecture, &diag) : rc;
    keys.arch = a ? a->arch : "";
    rc = rc == KVANT_OK ? convert_put_keys(a, &c, 0, &keys, &diag) : rc;
    if (rc == KVANT_OK)
        snprintf(out, size, "%s %d %08x", keys.arch, (int)keys.n, crc32c(0, keys.bytes.s, keys.bytes.n));
    else
        snprintf(out, size, "%s: %.60s", kvant_error_name(rc), diag.text);
    gguf_keys_free(&keys);
    hf_config_close(&c);
    free(text);
}

/* tests/convert/published.txt has what tools/hf_configs.json became when Transformers' log-probabilities were equal
 * (tools/check_hf_configs.py published): a line each, in order.  --record prints them. */
static void check_published(int record)
{
    char *text = NULL, line[256], got[160], name[80], want[256];
    size_t n = 0;
    gjson all = { NULL, 0 }, key = { NULL, 0 }, it = { NULL, 0 };
    FILE *f = fopen("tests/convert/published.txt", "r");
    int count = 0;

    CHECK(file_read("tools/hf_configs.json", 1 << 22, &text, &n, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(text && gjson_parse(text, n, &all, &diag) == KVANT_OK, "%s", diag.text);
    for (; gjson_member(all, &key, &it); count++) {
        gjson_text(key, name, sizeof name);
        outcome_of(it, got, sizeof got);
        snprintf(line, sizeof line, "%s | %s", name, got);
        if (record) {
            puts(line);
            continue;
        }
        if (!f || !fgets(want, sizeof want, f))
            want[0] = 0;
        want[strcspn(want, "\n")] = 0;
        CHECK(strcmp(line, want) == 0, "published.txt: \"%s\", wanted \"%s\"", line, want);
    }
    CHECK(record || count > 100, "%d configurations", count);
    if (f)
        fclose(f);
    kvant_free(text);
}

/* A class that has windows has them in the file, too: another size, other keys. */
static void check_windows(void)
{
    static const char more[] = "\"use_sliding_window\": true, \"max_window_layers\": 1, \"num_hidden_layers\": 4, "
                               "\"layer_types\": [\"sliding_attention\", \"full_attention\", "
                               "\"sliding_attention\", \"full_attention\"], \"head_dim\": 16, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2";
    char json[512], got[2][160];
    int n = 0;

    for (int i = 0; convert_arch_at(i); i++)
        for (int j = 0; j < 4 && convert_arch_at(i)->hf[j]; j++) {
            hf_config c = { 0 };
            if (hf_fields_classes(&c, convert_arch_at(i)->hf[j], &diag) < 0 || *c.cls->text ||
                !strstr(c.cls->fields, "\"sliding_window\""))
                continue;
            for (int k = 0; k < 2; k++) {
                snprintf(json, sizeof json, "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", "
                         "\"sliding_window\": %d, %s}", convert_arch_at(i)->hf[j], c.cls->model_type, 24 + k, more);
                gjson v = { NULL, 0 };
                CHECK(gjson_parse(json, strlen(json), &v, &diag) == KVANT_OK, "%s", diag.text);
                outcome_of(v, got[k], sizeof got[k]);
            }
            CHECK(strcmp(got[0], got[1]) != 0, "%s: sliding_window 24 and 25 give \"%s\"", c.cls->name, got[0]);
            n++;
        }
    CHECK(n >= 10, "%d classes with windows", n);
}

/* Mistral's layer_types count at the root (AutoModel takes Ministral's class then), not in a text_config. */
static void check_mistral(void)
{
    static const char *const types[] = { "\"full_attention\", \"full_attention\"",
                                         "\"full_attention\", \"sliding_attention\"",
                                         "\"sliding_attention\", \"sliding_attention\"" };
    static const char *const around[] = { "{\"architectures\": [\"MistralForCausalLM\"], %s}",
                                          "{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"text_config\": "
                                          "{\"model_type\": \"mistral\", %s}}" };
    char fields[256], json[512], got[2][3][160];

    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            gjson v = { NULL, 0 };
            snprintf(fields, sizeof fields, "\"sliding_window\": 32, \"num_hidden_layers\": 2, \"layer_types\": [%s]",
                     types[k]);
            snprintf(json, sizeof json, around[i], fields);
            CHECK(gjson_parse(json, strlen(json), &v, &diag) == KVANT_OK, "%s", diag.text);
            outcome_of(v, got[i][k], sizeof got[i][k]);
        }
    CHECK(strcmp(got[0][0], got[0][1]) != 0 && strcmp(got[0][1], got[0][2]) != 0 && strcmp(got[0][0], got[0][2]) != 0,
          "at the root: %s, %s, %s", got[0][0], got[0][1], got[0][2]);
    CHECK(strcmp(got[1][0], got[1][1]) == 0 && strcmp(got[1][1], got[1][2]) == 0 && !strstr(got[1][0], "KVANT"),
          "in a text_config: %s, %s, %s", got[1][0], got[1][1], got[1][2]);
}

int main(int argc, char **argv)
{
    const int record = argc > 1 && strcmp(argv[1], "--record") == 0;
    const char *tmp = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%.200s/kvant-fields-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return 1;
    log_set_sink(keep_warning, NULL, LOG_WARN);
    if (record) {
        check_published(1);
        unlink(temp_config());
        return rmdir(folder) != 0;
    }
    check_inventory();
    check_readers();
    check_published(0);
    check_refused();
    check_no_object();
    check_taken();
    check_values();
    check_windows();
    check_mistral();
    rmdir(folder);
    return check_end("check_convert_fields");
}
