/* check_convert_text.c: chat templates and special tokens of a folder -> keys: every place where a template may be,
 * lists of templates, ends of an answer, tokens that an architecture has whatever the files say. */
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "make/convert/hf_config.h"
#include "make/convert/hf_vocab.h"
#include "model/gguf/gguf.h"
#include "support/check.h"
#include "text/added/added.h"

static char root[256], warned[2048];
static kvant_diag diag;
static gguf_keys keys;

static void keep_warning(void *user, int level, const char *text)
{
    (void)user;
    if (level == LOG_WARN)
        snprintf(warned + strlen(warned), sizeof warned - strlen(warned), "%s\n", text);
}

static const char *path_of(const char *name)
{
    static char path[600];

    snprintf(path, sizeof path, "%s/m/%s", root, name);
    return path;
}

static void put_file(const char *name, const char *text)
{
    FILE *f = fopen(path_of(name), "w");

    CHECK(f, "%s", name);
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

/* An empty folder; names and texts, NULL after the last. */
static void make_folder(const char *const *files)
{
    char command[700];

    snprintf(command, sizeof command, "rm -rf '%s/m' && mkdir -p '%s/m/additional_chat_templates'", root, root);
    CHECK(system(command) == 0, "%s", command);
    for (; files[0]; files += 2)
        put_file(files[0], files[1]);
}

static int has(const void *bytes, size_t n)
{
    return keys.bytes.s && memmem(keys.bytes.s, keys.bytes.n, bytes, n) != NULL;
}

static size_t head_of(const char *key, uint32_t type, char *out)
{
    const uint64_t n = strlen(key);

    memcpy(out, &n, 8);
    memcpy(out + 8, key, n);
    memcpy(out + 8 + n, &type, 4);
    return 12 + (size_t)n;
}

static int has_text(const char *key, const char *text)
{
    char b[1024];
    size_t n = head_of(key, GGUF_STRING, b);
    const uint64_t len = strlen(text);

    memcpy(b + n, &len, 8);
    memcpy(b + n + 8, text, len);
    return has(b, n + 8 + len);
}

static int has_u32(const char *key, uint32_t v)
{
    char b[256];
    size_t n = head_of(key, GGUF_U32, b);

    memcpy(b + n, &v, 4);
    return has(b, n + 4);
}

/* ---- chat templates ---- */

static int templates_of(const char *const *files)
{
    hf_vocab v = { 0 };

    make_folder(files);
    gguf_keys_free(&keys);
    keys = (gguf_keys){ 0 };
    warned[0] = diag.text[0] = 0;
    char folder[300];
    snprintf(folder, sizeof folder, "%s/m", root);
    v.folder = folder;
    int rc = hf_read(folder, "tokenizer_config.json", &v.config_text, &v.config, &diag);
    rc = rc == KVANT_OK ? hf_vocab_put_template(&v, &keys, &diag) : rc;
    kvant_free(v.config_text);
    return rc;
}

#define CONFIG "tokenizer_config.json"
#define JINJA  "chat_template.jinja"
#define JSON   "chat_template.json"
#define MORE   "additional_chat_templates/"
#define LIST   "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, {\"name\": \"tool-use\", \"template\": \"T\\n\"}]}"

/* wanted: names behind tokenizer.chat_template and their texts, NULL after the last; n_keys of the file. */
static void give(const char *says, const char *const *files, const char *const *wanted, uint64_t n_keys,
                 const char *warns)
{
    char key[128];
    const int rc = templates_of(files);

    CHECK(rc == KVANT_OK && keys.n == n_keys, "%s: %s, %llu keys, %llu wanted", says, diag.text,
          (unsigned long long)keys.n, (unsigned long long)n_keys);
    for (; wanted[0]; wanted += 2) {
        snprintf(key, sizeof key, "tokenizer.chat_template%s%s", *wanted[0] ? "." : "", wanted[0]);
        CHECK(has_text(key, wanted[1]), "%s: no %s of \"%s\"", says, key, wanted[1]);
    }
    CHECK(warns ? strstr(warned, warns) != NULL : !*warned, "%s: warnings \"%s\", wanted \"%s\"", says, warned,
          warns ? warns : "");
}

#define ALL(...) (const char *const[]){ __VA_ARGS__, NULL, NULL }

static void check_templates(void)
{
    static const char *const none[] = { NULL, NULL };

    give("none", none, none, 0, NULL);
    give("null", ALL(CONFIG, "{\"chat_template\": null}"), none, 0, NULL);
    give("a text", ALL(CONFIG, "{\"chat_template\": \"A\\u00e9\"}"), ALL("", "A\xC3\xA9"), 1, NULL);
    give("a list", ALL(CONFIG, LIST), ALL("", "D", "tool_use", "T\n"), 3, NULL);
    give("a file", ALL(JINJA, "J\n", CONFIG, "{}"), ALL("", "J\n"), 1, NULL);
    give("a file and no tokenizer_config.json", ALL(JINJA, "J"), ALL("", "J"), 1, NULL);
    give("a processor's", ALL(JSON, "{\"chat_template\": \"P\"}"), ALL("", "P"), 1, NULL);
    give("an object", ALL(CONFIG, "{\"chat_template\": {\"default\": \"D\", \"rag\": \"R\"}}"),
         ALL("", "D", "rag", "R"), 3, NULL);
    give("a processor's settings", ALL("processor_config.json", "{\"chat_template\": \"S\"}"), ALL("", "S"), 1,
         NULL);
    give("a processor's list", ALL(JSON, LIST, CONFIG, "{\"chat_template\": null}"), ALL("", "D", "tool_use", "T\n"), 3,
         NULL);
    give("files", ALL(JINJA, "J", MORE "tool_use.jinja", "T", MORE "rag.jinja", "R"),
         ALL("", "J", "tool_use", "T", "rag", "R"), 4, NULL);
    give("no default one", ALL(MORE "tool_use.jinja", "T"), ALL("tool_use", "T"), 2, NULL);
    give("another file", ALL(JINJA, "J", MORE "README.md", "no template"), ALL("", "J"), 1, NULL);
    give("two equal places", ALL(JINJA, "J", CONFIG, "{\"chat_template\": \"J\"}"), ALL("", "J"), 1, NULL);
    give("the file before the others", ALL(JINJA, "J", CONFIG, "{\"chat_template\": \"C\"}"), ALL("", "J"), 1,
         "tokenizer_config.json has another one");
    give("tokenizer_config.json before a processor's", ALL(CONFIG, "{\"chat_template\": \"C\"}", JSON, "{\"chat_template\": \"P\"}"),
         ALL("", "C"), 1, "chat_template.json has another one");
    CHECK(has_text("tokenizer.chat_template", "C"), "kept");
}

static void refuse(const char *const *files, const char *says)
{
    const int rc = templates_of(files);

    CHECK(rc == KVANT_EFORMAT && strstr(diag.text, says), "%s \"%s\", wanted \"%s\"", kvant_error_name(rc), diag.text,
          says);
}

static void check_broken_templates(void)
{
    refuse(ALL(CONFIG, "{\"chat_template\": 7}"), "tokenizer_config.json: chat_template is 7");
    refuse(ALL(CONFIG, "{\"chat_template\": [\"x\"]}"), "{\"name\", \"template\"} wanted");
    refuse(ALL(CONFIG, "{\"chat_template\": [{\"name\": \"a\", \"template\": 7}]}"), "\"a\" is 7, a text wanted");
    refuse(ALL(CONFIG, "{\"chat_template\": [{\"name\": \"\", \"template\": \"x\"}]}"), "names of 1 to 63 bytes");
    refuse(ALL(CONFIG, "{\"chat_template\": [{\"name\": \"a-b\", \"template\": \"x\"}, {\"name\": \"a.b\", \"template\": \"y\"}]}"),
           "there are two of this name");
    refuse(ALL(JSON, "[]"), "a JSON object wanted");
    refuse(ALL(MORE "a.b.jinja", "x", MORE "a_b.jinja", "y"), "there are two of this name");
}

/* ---- special tokens ---- */

#define TOKENIZER                                                                                                      \
    "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, "  \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}, \"added_tokens\": ["                                     \
    "{\"id\": 1, \"content\": \"[gMASK]\", \"special\": true}, {\"id\": 2, \"content\": \"<|user|>\", \"special\": true},"    \
    "{\"id\": 3, \"content\": \"<|observation|>\", \"special\": true}, {\"id\": 4, \"content\": \"<|im_end|>\"}]}"

static void special_of(const char *config, const char *generation, const char *const *names)
{
    gjson json = { NULL, 0 };
    hf_vocab v;
    char folder[300];

    make_folder(ALL("tokenizer.json", TOKENIZER, CONFIG, "{\"eos_token\": \"<|im_end|>\"}", "generation_config.json",
                    generation));
    gguf_keys_free(&keys);
    keys = (gguf_keys){ 0 };
    warned[0] = diag.text[0] = 0;
    snprintf(folder, sizeof folder, "%s/m", root);
    CHECK(gjson_parse(config, strlen(config), &json, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(hf_vocab_open(folder, 8, NULL, 0, &v, &diag) == KVANT_OK &&
              hf_vocab_put_special(&v, json, names, &keys, &diag) == KVANT_OK,
          "%s", diag.text);
    hf_vocab_close(&v);
}

/* The array of all ends, of n; n 0: there is none. */
static void ends(const char *config, const char *generation, const uint32_t *ids, uint32_t n)
{
    char b[256];
    const uint32_t elem = GGUF_I32;
    const uint64_t count = n;

    special_of(config, generation, NULL);
    size_t at = head_of("tokenizer.ggml.eos_token_ids", GGUF_ARRAY, b);
    memcpy(b + at, &elem, 4);
    memcpy(b + at + 4, &count, 8);
    if (n)
        memcpy(b + at + 12, ids, n * sizeof *ids);
    CHECK(n ? has(b, at + 12 + n * sizeof *ids) : !has("eos_token_ids", 13), "%s %s: %u ends", config, generation, n);
}

static void check_special(void)
{
    static const char *const glm[] = { "!bos", "[gMASK]", "!eot", "<|user|>", "eom", "<|observation|>",
                                       "eos",  "[gMASK]", NULL };
    static const uint32_t three[] = { 4, 2, 3 }, two[] = { 4, 2 };

    ends("{}", "{\"eos_token_id\": [4, 2, 3]}", three, 3);
    ends("{}", "{\"eos_token_id\": [4]}", NULL, 0);
    ends("{}", "{\"eos_token_id\": 4}", NULL, 0);
    ends("{\"eos_token_id\": [4, 2]}", "{}", two, 2);
    ends("{\"text_config\": {\"eos_token_id\": [4, 2]}}", "{}", two, 2);
    ends("{\"eos_token_id\": [4, 2, 3]}", "{\"eos_token_id\": [4]}", NULL, 0);
    ends("{}", "{\"eos_token_id\": [4, 2, 99]}", two, 2);
    CHECK(strstr(warned, "eos_token_id has 99"), "warnings: \"%s\"", warned);
    special_of("{\"bos_token_id\": 4}", "{}", glm);
    CHECK(has_u32("tokenizer.ggml.bos_token_id", 1), "bos is [gMASK]");
    CHECK(has_u32("tokenizer.ggml.eot_token_id", 2) && has_u32("tokenizer.ggml.eom_token_id", 3), "eot and eom");
    CHECK(has_u32("tokenizer.ggml.eos_token_id", 4), "eos as the files say");
    special_of("{\"bos_token_id\": 4}", "{\"eos_token_id\": [4, 2, 3]}", glm);
    CHECK(!has("eos_token_ids", 13), "ids that have keys need no array");
}

/* What tokenizer_config.json has and tokenizer.json lacks: added where its id is free, named where it is not. */
static void check_further(void)
{
    static const char config[] =
        "{\"eos_token\": \"<|im_end|>\", \"pad_token\": \"<pad0>\", \"bos_token\": null, "
        "\"added_tokens_decoder\": {"
        "\"1\": {\"content\": \"[gMASK]\"}, \"4\": {\"content\": \"<other>\"}, \"9\": {\"content\": \"<far>\"}, "
        "\"6\": {\"content\": \"<extra>\", \"special\": true, \"rstrip\": true}}, "
        "\"additional_special_tokens\": [\"<extra>\", {\"content\": \"<lost>\"}]}";
    static const char *const says[] = { "token 4 of added_tokens_decoder, \"<other>\", is left out: tokenizer.json has",
                                        "token 9 of added_tokens_decoder, \"<far>\", is left out: the embedding",
                                        "\"pad_token\" has \"<pad0>\"", "\"additional_special_tokens\" has \"<lost>\"" };
    hf_vocab v;
    char folder[300];

    make_folder(ALL("tokenizer.json", TOKENIZER, CONFIG, config));
    snprintf(folder, sizeof folder, "%s/m", root);
    warned[0] = 0;
    CHECK(hf_vocab_open(folder, 8, NULL, 0, &v, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(v.tokens[6].s && v.tokens[6].n == 7 && memcmp(v.tokens[6].s, "<extra>", 7) == 0, "token 6 is added");
    CHECK(v.tokens[6].type == TOKEN_CONTROL && (v.tokens[6].flags & ADDED_RSTRIP), "as a special one, with its flag");
    CHECK(!v.tokens[5].s && !v.tokens[7].s && v.tokens[4].n == 10, "no other token");
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        CHECK(strstr(warned, says[i]), "warnings \"%s\", wanted \"%s\"", warned, says[i]);
    CHECK(!strstr(warned, "has \"<extra>\"") && !strstr(warned, "token 1 of"), "warnings \"%s\"", warned);
    hf_vocab_close(&v);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char command[400];

    snprintf(root, sizeof root, "%.200s/kvant-text-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(root))
        return 1;
    log_set_sink(keep_warning, NULL, LOG_WARN);
    check_templates();
    check_broken_templates();
    check_special();
    check_further();
    gguf_keys_free(&keys);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    if (system(command) != 0)
        printf("could not remove %s\n", root);
    return check_end("check_convert_text");
}
