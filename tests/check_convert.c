/* check_convert.c: safetensors -> GGUF.  The folders of tests/convert give the bytes that the field's converter gave;
 * a broken header, folder, tokenizer or configuration gives an error that names it, and leaves nothing behind. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file/crc32c.h"
#include "base/file/file.h"
#include "base/mem.h"
#include "make/convert/convert.h"
#include "make/convert/hf_vocab.h"
#include "make/convert/safetensors.h"
#include "support/check.h"
#include "support/log_seen.h"

static char temp_dir[256];
static kvant_diag diag;

static const char *temp_path(const char *name)
{
    static char path[4][512];
    static int next;
    char *p = path[next++ % 4];

    snprintf(p, sizeof path[0], "%s/%s", temp_dir, name);
    return p;
}

static int files(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static int convert(const char *folder, const char *type)
{
    const convert_params p = { .type = kvant_wtype_find(type), .name = "Oracle" };

    diag.text[0] = 0;
    return model_convert(folder, temp_path("out.gguf"), &p, NULL, NULL, NULL, &diag);
}

/* ---- the field's bytes ---- */

static void check_digests(void)
{
    char line[160], name[32], type[16], folder[96];
    unsigned long bytes;
    unsigned crc;
    int n = 0;
    FILE *f = fopen("tests/convert/digests.txt", "r");

    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%31s %15s %lu %x", name, type, &bytes, &crc) != 4)
            continue;
        char *data = NULL;
        size_t size = 0;
        snprintf(folder, sizeof folder, "tests/convert/%s", name);
        CHECK(convert(folder, type) == KVANT_OK, "%s %s: %s", name, type, diag.text);
        CHECK(file_read(temp_path("out.gguf"), 1 << 24, &data, &size, &diag) == KVANT_OK, "%s", diag.text);
        CHECK(size == bytes && crc32c(0, data, size) == crc,
              "%s %s: %zu bytes, crc %08x; the field's file has %lu, %08x", name, type, size, crc32c(0, data, size),
              bytes, crc);
        kvant_free(data);
        n++;
    }
    if (f)
        fclose(f);
    CHECK(n == 27, "%d lines of digests.txt, 27 wanted", n);
}

static int stop_at_3(void *user, int i, int n)
{
    *(int *)user = n;
    return i == 3;
}

/* Without a type: the one that the matrices have; without a name: the folder's.  A stopped run leaves nothing. */
static void check_choices(void)
{
    const convert_params none = { .pre = "gpt-2" };
    convert_result r = { 0 };
    int n = 0;

    CHECK(model_convert("tests/convert/llama", temp_path("auto.gguf"), &none, NULL, NULL, &r, &diag) == KVANT_OK, "%s",
          diag.text);
    CHECK(strcmp(r.type, "F16") == 0 && strcmp(r.arch, "llama") == 0 && r.n_tensors == 30, "%s %s %d", r.type, r.arch,
          r.n_tensors);
    const int before = files(temp_dir);
    CHECK(model_convert("tests/convert/llama", temp_path("stop.gguf"), &none, stop_at_3, &n, NULL, &diag) ==
                  KVANT_ECANCELED &&
              n == 30 && files(temp_dir) == before,
          "stopped: %s", diag.text);
}

/* Tensors that predict further tokens are left out, and a warning says so. */
static void check_further(void)
{
    static const char says[] = "1 tensors of blocks that predict further tokens (MTP), the first model.layers.2.eh_proj";
    const convert_params p = { .pre = "gpt-2" };
    convert_result r = { 0 };

    log_seen_begin();
    CHECK(model_convert("tests/convert/deepseek2", temp_path("mtp.gguf"), &p, NULL, NULL, &r, &diag) == KVANT_OK &&
              r.n_left_out == 1 && log_seen(says), "%d left out: %s", r.n_left_out, log_seen_all());
    log_seen_begin();
    CHECK(model_convert("tests/convert/llama", temp_path("mtp.gguf"), &p, NULL, NULL, &r, &diag) == KVANT_OK &&
              !log_seen("(MTP)"), "%s", log_seen_all());
}

/* ---- headers ---- */

static void check_header(const char *json, size_t data, const char *says)
{
    uint8_t file[1024] = { 0 };
    const uint64_t n = strlen(json);
    st_files *s = NULL;

    memcpy(file, &n, sizeof n);
    memcpy(file + 8, json, n);
    const int rc = st_open_mem(file, 8 + n + data, &s, &diag);
    if (!says)
        CHECK(rc == KVANT_OK && st_count(s) == 2 && st_find(s, "b") && !st_find(s, "c"), "%s", diag.text);
    else
        CHECK(rc == KVANT_EFORMAT && strstr(diag.text, says), "%s: \"%s\", wanted \"%s\"", json, diag.text, says);
    st_close(s);
}

#define A(shape, from, to) "\"a\":{\"dtype\":\"F16\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
#define B(from, to)        ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" from "," to "]}"

static void check_headers(void)
{
    uint8_t file[8];

    check_header("{\"__metadata__\":{\"x\":\"y\"}," A("[2,3]", "0", "12") B("12", "20") "}", 20, NULL);
    check_header("{" A("[2,3]", "0", "12") B("12", "20") "}", 19, "b: \"data_offsets\" are 12 to 20, inside 19");
    check_header("{" A("[2,3]", "0", "12") B("12", "20") "}", 24, "24 bytes of data, the tensors cover 20");
    check_header("{" A("[2,3]", "0", "12") B("11", "19") "}", 20, "they overlap");
    check_header("{" A("[2,3]", "0", "12") B("13", "21") "}", 21, "a gap");
    check_header("{" A("[2,3]", "0", "10") "}", 10, "10 bytes of data, its shape wants 6 values of F16");
    check_header("{" A("[2,-3]", "0", "12") "}", 12, "dimension 1 is -3");
    check_header("{" A("[2,3.5]", "0", "12") "}", 12, "dimension 1 is 3.5");
    check_header("{" A("[1,2,1,1,1,3]", "0", "12") B("12", "20") "}", 20, NULL);
    check_header("{" A("[1,1,1,1,1,1,1,1,6]", "0", "12") "}", 12, "more than 8 dimensions");
    check_header("{" A("[2147483647,2147483647,2147483647]", "0", "12") "}", 12, "dimension 2");
    check_header("{" A("[6]", "12", "0") "}", 12, "\"data_offsets\" are 12 to 0");
    check_header("{" A("[6]", "0", "1e300") "}", 12, "\"data_offsets\" are 0 to -1");
    check_header("{\"a\":{\"dtype\":\"Q9\",\"shape\":[6],\"data_offsets\":[0,12]}}", 12, "\"dtype\" is \"Q9\"");
    check_header("{\"a\":{\"shape\":[6],\"data_offsets\":[0,12]}}", 12, "\"dtype\" is ");
    check_header("{" A("[6]", "0", "12") "," A("[6]", "12", "24") "}", 24, "a: is there twice");
    check_header("{\"\":{}}", 0, "a name of 0 bytes");
    check_header("{\"\\u001b[2J\":{}}", 0, "without controls");
    check_header("[]", 0, "no JSON object");
    check_header("{\"a\":", 0, "unexpected byte");
    memset(file, 0xFF, sizeof file);
    st_files *s = NULL;
    CHECK(st_open_mem(file, 8, &s, &diag) == KVANT_EFORMAT && strstr(diag.text, "a header of 18446744073709551615"),
          "%s", diag.text);
    CHECK(st_open_mem(file, 7, &s, &diag) == KVANT_EFORMAT, "seven bytes");
}

/* ---- folders ---- */

/* tests/convert/`from` copied, then the one `file` with its first `old` replaced by `new` (old NULL: the file goes). */
static const char *spoiled(const char *from, const char *file, const char *old, const char *new)
{
    char command[1200], *data = NULL;
    size_t size = 0;
    const char *folder = temp_path("folder");

    snprintf(command, sizeof command, "rm -rf '%s' && cp -r tests/convert/%s '%s'", folder, from, folder);
    CHECK(system(command) == 0, "%s", command);
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    CHECK(file_read(path, 1 << 24, &data, &size, &diag) == KVANT_OK, "%s", diag.text);
    unlink(path);
    char *at = old ? memmem(data, size, old, strlen(old)) : NULL;
    CHECK(!old || at, "%s: no %s in it", file, old);
    FILE *f = at ? fopen(path, "wb") : NULL;
    if (f) {
        fwrite(data, 1, (size_t)(at - data), f);
        fwrite(new, 1, strlen(new), f);
        fwrite(at + strlen(old), 1, size - (size_t)(at - data) - strlen(old), f);
        fclose(f);
    }
    kvant_free(data);
    return folder;
}

static void fails(const char *from, const char *file, const char *old, const char *new, int code, const char *says)
{
    const char *folder = spoiled(from, file, old, new);
    unlink(temp_path("out.gguf"));
    const int before = files(temp_dir), rc = convert(folder, "F32");

    CHECK(rc == code && strstr(diag.text, says), "%s: %s -> %s: %s \"%s\", wanted \"%s\"", file, old, new,
          kvant_error_name(rc), diag.text, says);
    CHECK(files(temp_dir) == before, "%s: something was left behind", says);
}

static void check_folders(void)
{
    static const char index[] = "model.safetensors.index.json";
    const int bad = KVANT_EFORMAT, unknown = KVANT_EUNSUPPORTED;

    fails("qwen3moe", "config.json", "Qwen3MoeForCausalLM", "Mamba9ForCausalLM", unknown,
          "\"Mamba9ForCausalLM\", one of LlamaForCausalLM");
    fails("qwen3moe", "config.json", NULL, "", KVANT_ENOENT, "no config.json");
    fails("qwen3moe", "config.json", "{", "[", bad, "a JSON object wanted");
    fails("qwen3moe", "config.json", "\"hidden_size\": 32", "\"hidden_size\": 3.5", bad, "hidden_size");
    fails("qwen3moe", "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", bad,
          "config.json has 1 layers");
    fails("qwen3moe", "config.json", "\"num_local_experts\": 4", "\"num_local_experts\": 5", bad,
          "12 matrices of experts, 3 x 5 wanted");
    fails("qwen3moe", "config.json", "\"num_local_experts\": 4", "\"num_local_experts\": 3", bad,
          "config.json has 3 experts");
    fails("qwen3moe", "config.json", "\"vocab_size\": 272", "\"vocab_size\": 200", bad, "at most 199 wanted");
    fails("qwen3moe", "config.json", "\"rope_type\": \"default\"", "\"rope_type\": \"helix\"", unknown,
          "rope_type \"helix\"");
    fails("qwen3moe", "config.json", "\"use_cache\"",
          "\"quantization_config\": {\"quant_method\": \"gptq\"}, \"use_cache\"", unknown, "quantized already");
    fails("qwen3moe", index, "model-00002-of", "../00002-of", bad, "a name of this folder");
    fails("qwen3moe", index, "model-00002-of", "model-00009-of", KVANT_ENOENT, "model-00009-of");
    fails("qwen3moe", index, "model.norm.weight", "model.gnome.weight", bad, "model.gnome.weight");
    fails("qwen3moe", "model-00003-of-00005.safetensors", NULL, "", KVANT_ENOENT, "model-00003-of-00005");
    fails("qwen3moe", "model-00005-of-00005.safetensors", "self_attn.q_proj", "self_attn.z_proj", bad,
          "self_attn.q_proj");
    fails("gemma3", "model.safetensors", "self_attn.q_proj", "self_attn.z_proj", unknown,
          "self_attn.z_proj.weight: no tensor of gemma3");
    fails("gemma3", "model.safetensors", NULL, "", bad, "no model*.safetensors");
    fails("gemma3", "model.safetensors", "\"F32\",\"shape\":[272,32]", "\"I32\",\"shape\":[272,32]", unknown,
          "type I32");
    fails("qwen3moe", "tokenizer.json", NULL, "", KVANT_ENOENT, "neither tokenizer.model nor tokenizer.json");
    fails("qwen3moe", "tokenizer.json", "\"type\":\"BPE\"", "\"type\":\"Unigram\"", unknown, "model \"Unigram\"");
    fails("qwen3moe", "tokenizer.json", "\"#\":2", "\"#\":3", bad, "id 3 has two tokens");
    fails("qwen3moe", "tokenizer.json", "\\\\p{N}|", "\\\\p{N}{1,7}|", unknown, "cuts as none of kvant's does");
    fails("qwen3moe", "tokenizer.json", "(?i:", "(?i:(", unknown, "a pattern of pre_tokenizer is not understood");
    fails("qwen3moe", "tokenizer.json", "(?i:", "(?:(?:(?:.*)*)*)*x(?i:", bad, "a pattern of pre_tokenizer failed");
    fails("qwen3moe", "tokenizer.json", "\"type\":\"Split\"", "\"type\":\"Metaspace\"", unknown, "\"Metaspace\"");
    fails("llama", "config.json", "\"num_key_value_heads\": 1", "\"num_key_value_heads\": 5", bad,
          "a multiple of 2 x 5 heads");
    fails("llama", "config.json", "\"factor\": 8.0", "\"factor\": 0", bad, "factor is 0");
    fails("qwen3moe", "config.json", "\"hidden_size\": 32", "\"hidden_size\": 64", bad,
          "could not be loaded: token_embd.weight: shape [32, 272, 1, 1], wanted [64, ");
    fails("llama", "config.json", "\"rms_norm_eps\"", "\"rms_norm_eps\": -1, \"rms_norm_gps\"", bad,
          "could not be loaded: llama.attention.layer_norm_rms_epsilon: -1");
    fails("qwen3moe", "config.json", "\"use_cache\"", "\"hidden_size\": 64, \"use_cache\"", bad,
          "found \"hidden_size\" twice");
    fails("llama", "config.json", "\"factor\": 8.0", "\"factor\": 8.0, \"factor\": 4.0", bad, "found \"factor\" twice");
    fails("gpt-oss", "config.json", "mxfp4", "mxfp5", unknown, "quant_method \"mxfp5\"");
    fails("gpt-oss", "model.safetensors", "layers.0.mlp.experts.down_proj_scales",
          "layers.0.mlp.experts.down_proj_scalds", bad, "layers.0.mlp.experts.down_proj_scales: is not there");
    fails("gpt-oss", "model.safetensors", "layers.0.mlp.experts.down_proj_blocks",
          "layers.0.mlp.experts.side_proj_blocks", unknown, "side_proj_blocks: no MXFP4 tensor");
    fails("qwen3moe", "config.json", "\"use_cache\"",
          "\"quantization_config\": {\"quant_method\": \"mxfp4\"}, \"use_cache\"", unknown, "quantized already");
    fails("deepseek2", "config.json", "\"v_head_dim\": 8", "\"v_head_dim\": 9", bad,
          "48 rows, 2 heads of qk_nope_head_dim 16 and v_head_dim 9 wanted");
    fails("deepseek2", "config.json", "\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 0", bad,
          "config.json has 2 layers");
    fails("qwen3next", "config.json", "\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 3", bad,
          "as many heads of v for each of k");
    fails("qwen3next", "config.json", "\"linear_value_head_dim\": 8", "\"linear_value_head_dim\": 9", unknown,
          "linear_value_head_dim 9, equal ones wanted");
    fails("qwen35", "config.json", "\"linear_key_head_dim\": 8", "\"linear_key_head_dim\": 7", unknown,
          "linear_key_head_dim is 7");
    fails("lfm2moe", "config.json", "\"conv\",", "", bad, "layer_types has 1 entries, num_hidden_layers is 2");
    fails("llama", "tokenizer.model", "<unk>", "<unk", bad, "tokenizer.model: ");
    fails("llama", "tokenizer.model", "okenizer\x18\x02", "okenizer\x18\x03", unknown,
          "model_type 3, 1 (unigram) or 2");
}

/* An end that is no id is named, as one of a list is; the tokenizer's files have another. */
static void check_ends(void)
{
    static const char *const ends[] = { "99999", "-1", "{}", "\"</s>\"", "2.5", "261" };
    char text[64], says[64];

    for (int i = 0; i < 6; i++) {
        snprintf(text, sizeof text, "\"eos_token_id\": %s", ends[i]);
        snprintf(says, sizeof says, "eos_token_id is %s, an id below 272", ends[i]);
        const char *folder = spoiled("qwen3moe", "config.json", "\"eos_token_id\": 261", text);
        log_seen_begin();
        CHECK(convert(folder, "F32") == KVANT_OK, "%s: %s", text, diag.text);
        CHECK(!log_seen(says) == (i == 5), "%s: %s", text, log_seen_all());
    }
}

/* Fields that mean what convert cannot say, or that say another thing than the tensors. */
static void check_fields(void)
{
    const int bad = KVANT_EFORMAT, unknown = KVANT_EUNSUPPORTED;

    fails("llama", "config.json", "\"attention_bias\": true", "\"attention_bias\": false", unknown, "attention_bias is not true");
    fails("llama", "config.json", "\"mlp_bias\": false", "\"mlp_bias\": true", bad, "mlp_bias is true, and no layer has mlp.gate_proj");
    fails("qwen3moe", "config.json", "\"attention_bias\": false", "\"attention_bias\": true", bad, "no layer has self_attn.q_proj.bias");
    fails("qwen3moe", "config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", bad, "there is no lm_head.weight");
    fails("lfm2moe", "config.json", "\"use_expert_bias\": true", "\"use_expert_bias\": false", unknown, "use_expert_bias is not true");
    fails("llama", "config.json", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", unknown, "hidden_act is \"gelu\"");
    fails("llama", "config.json", "\"rope_type\": \"llama3\"", "\"rope_type\": \"dynamic\"", unknown, "rope_type \"dynamic\"");
    fails("llama", "config.json", "\"rope_type\": \"llama3\"", "\"partial_rotary_factor\": 0.5", unknown, "partial_rotary_factor is 0.5");
    fails("llama", "config.json", "\"rope_type\": \"llama3\"", "\"full_attention\": {}", unknown, "one for all layers wanted");
    fails("gpt-oss", "config.json", "\"truncate\": false", "\"truncate\": true", unknown, "truncate of rope_parameters is true");
    fails("gpt-oss", "config.json", "\"full_attention\"", "\"chunked_attention\"", unknown, "layer_types has \"chunked_attention\"");
    fails("gpt-oss", "config.json", "\"sliding_window\": 32", "\"sliding_window\": 0", bad, "sliding_window is 0");
    fails("deepseek2", "config.json", "\"mscale\": 1.0", "\"mscale\": 0.5", unknown, "mscale 0.5, mscale_all_dim 1");
    fails("deepseek2", "config.json", "\"scoring_func\": \"sigmoid\"", "\"scoring_func\": \"softmax\"", unknown, "scoring_func");
    fails("gemma3", "config.json", "\"full_attention\"", "\"other_attention\"", unknown, "full_attention and sliding_attention wanted");
    fails("gemma3", "config.json", "\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 50.0", unknown, "attn_logit_softcapping");
    fails("gemma3", "config.json", "\"layer_types\": [", "\"layer_types\": [\"full_attention\", ", bad,
          "layer_types has 2 entries");
    fails("qwen35", "config.json", "\"linear_attention\"", "\"sliding_attention\"", unknown, "layer_types has \"sliding_attention\"");
    fails("qwen35", "config.json", "\"model_type\": \"qwen3_5_text\"", "\"model_type\": \"llama\"", unknown, "model_type is \"llama\"");
    fails("gemma3", "config.json", "\"vocab_size\": 272", "\"vocab_size\": 280", bad, "272 rows, vocab_size is 280");
}

/* A copy of tokenizer.model cut at every length: an error or fewer pieces, never more. */
static void check_pieces(void)
{
    char *data = NULL;
    size_t size = 0;
    int good = 0;

    CHECK(file_read("tests/convert/llama/tokenizer.model", 1 << 20, &data, &size, &diag) == KVANT_OK, "%s", diag.text);
    for (size_t n = 0; n <= size; n += n < 200 ? 1 : 37) {
        hf_vocab v = { .n = 330 };
        v.tokens = kvant_calloc(v.n, sizeof *v.tokens);
        v.names = kvant_alloc(n + 1);
        uint8_t *exact = malloc(n + 1);
        memcpy(exact + 1, data, n);
        const int rc = hf_vocab_read_spm(&v, exact + 1, n, &diag);
        CHECK(rc == KVANT_OK || (rc == KVANT_EFORMAT && strstr(diag.text, "tokenizer.model: ")), "%zu: %s", n,
              diag.text);
        good += rc == KVANT_OK;
        free(exact);
        hf_vocab_close(&v);
    }
    CHECK(good > 3, "%d lengths were whole", good);
    kvant_free(data);
}

static void check_memory_faults(void)
{
    int rc = KVANT_ENOMEM, n;

    unlink(temp_path("out.gguf"));
    for (n = 0; n < 400 && rc == KVANT_ENOMEM; n++) {
        const int before = files(temp_dir);
        mem_fail_after(n, 0);
        rc = convert("tests/convert/gemma3", "F32");
        mem_fail_after(-1, 0);
        CHECK(rc == KVANT_OK || (rc == KVANT_ENOMEM && files(temp_dir) == before), "allocation %d: %s, %s", n,
              kvant_error_name(rc), diag.text);
    }
    CHECK(rc == KVANT_OK && n > 20, "worked after %d failed allocations", n - 1);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char command[400];

    snprintf(temp_dir, sizeof temp_dir, "%.200s/kvant-convert-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(temp_dir))
        return 1;
    check_digests();
    check_choices();
    check_further();
    check_headers();
    check_folders();
    check_ends();
    check_fields();
    check_pieces();
    check_memory_faults();
    snprintf(command, sizeof command, "rm -rf '%s'", temp_dir);
    if (system(command) != 0)
        printf("could not remove %s\n", temp_dir);
    return check_end("check_convert");
}
