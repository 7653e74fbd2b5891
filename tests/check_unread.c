/* check_unread.c: nothing of a file is dropped in silence.  Every key and tensor of the gguf package has a decision;
 * planted into the models of tests/archs, each is read, refused or named in a warning unless it is harmless; values
 * that are neutral are taken; overrides stand in place of the file's values. */
#include <dirent.h>
#include <unistd.h>
#include "kvant/engine.h"
#include "model/unread/unread.h"
#include "support/check.h"
#include "support/gguf_change.h"
#include "support/log_seen.h"
#include "support/text_file.h"

#define INVENTORY "tests/inventory/gguf-package.txt"

static char path[64];
static kvant_diag diag;

/* ---- the inventory ---- */

/* A decision of the table's first part: keys of other writers are no answer for the package's. */
static const unread_row *decided(const char *key)
{
    const char *name = strncmp(key, "{arch}", 6) == 0 ? key + 6 : key;

    for (int i = 0; unread_key_at(i); i++) {
        const unread_row *r = unread_key_at(i);
        const size_t n = strlen(r->name);
        if (!r->more && (strcmp(r->name, name) == 0 || (r->name[n - 1] == '*' && strncmp(r->name, name, n - 1) == 0)))
            return r;
    }
    return NULL;
}

/* How many keys of the list nobody decided on; the last of them -> missing. */
static int undecided(char *list, char *missing, size_t cap, int *n)
{
    int bad = 0;

    *n = 0;
    for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "key ", 4) != 0)
            continue;
        ++*n;
        if (decided(line + 4))
            continue;
        bad++;
        snprintf(missing, cap, "%s", line + 4);
    }
    return bad;
}

static void check_inventory(void)
{
    char missing[100] = "",
         planted[] = "key general.name\nkey {arch}.rope.brand_new\nkey general.brand_new\nkey brand.new\n";
    size_t size = 0;
    char *list = text_file_read(INVENTORY, &size);
    int n;

    CHECK(undecided(list, missing, sizeof missing, &n) == 0 && n > 200, "%d keys of %s; no decision on %s", n,
          INVENTORY, missing);
    CHECK(undecided(planted, missing, sizeof missing, &n) == 3 && n == 4, "planted keys: %s", missing);
    for (int i = 0; unread_key_at(i); i++) {
        const unread_row *r = unread_key_at(i);
        CHECK((r->action == UNREAD_READ) == !*r->why, "%s: a reason, where it is not read", r->name);
    }
    free(list);
}

/* ---- planted into models ---- */

static int open_changed(const gguf *g, const gguf_change *c)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    kvant_model *m = NULL;

    diag.text[0] = 0;
    CHECK(gguf_change_write(g, c, path) == 0, "%s", path);
    log_seen_begin();
    const int rc = kvant_model_open(&mp, &m, &diag);
    kvant_model_close(m);
    return rc;
}

static const unread_row *harmless_tensor(const char *name)
{
    int number;

    for (int i = 0; unread_tensor_at(i); i++) {
        const unread_row *r = unread_tensor_at(i);
        if (r->action == UNREAD_HARMLESS && unread_fits(r->name, name, strlen(name), &number))
            return r;
    }
    return NULL;
}

/* Every tensor that the package gives the architecture, and a few that nobody has. */
static void plant_tensors(const gguf *g, const char *arch, char *list)
{
    static const char *const parts[] = { "weight", "bias" };
    static const char *const nobody[] = { "blk.0.attn_magic.weight", "blk.0.attn_q.lora", "output_norm.scale2",
                                          "magic" };
    char name[64], want[80];
    int n = 0;

    snprintf(want, sizeof want, "tensor %s ", arch);
    for (char *line = list; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, want, strlen(want)) != 0)
            continue;
        for (int p = 0; p < 2; p++) {
            const char *t = line + strlen(want);
            const size_t len = strcspn(t, "\n"), hash = strcspn(t, "#\n");
            if (hash < len)
                snprintf(name, sizeof name, "%.*s0%.*s.%s", (int)hash, t, (int)(len - hash - 1), t + hash + 1,
                         parts[p]);
            else
                snprintf(name, sizeof name, "%.*s.%s", (int)len, t, parts[p]);
            if (gguf_tensor_find(g, name))
                continue;
            n++;
            const int rc = open_changed(g, &(gguf_change){ .tensor = name, .n = 1 });
            CHECK(strstr(diag.text, name) || (rc == 0 && (log_seen(name) || harmless_tensor(name))),
                  "%s with %s: %d %s %s", arch, name, rc, diag.text, log_seen_all());
        }
    }
    for (int i = 0; i < 4; i++, n++) {
        const int rc = open_changed(g, &(gguf_change){ .tensor = nobody[i], .n = 7 });
        CHECK(rc == KVANT_EUNSUPPORTED && strstr(diag.text, nobody[i]), "%s with %s: %d %s", arch, nobody[i], rc,
              diag.text);
    }
    CHECK(n > 4, "%s: tensors", arch);
}

/* Values that count only beside experts, a window, heads, pairs of neighbours, or no newer key. */
static int counts_only_with(const unread_row *r)
{
    static const char *const conditions[] = { "=dense", "=nowindow", "=nohead", "=neox", "=newer" };

    for (int i = 0; i < 5; i++)
        if (strstr(r->if_so, conditions[i]))
            return 1;
    return 0;
}

/* A text where a number belongs: who reads the key says so, who does not refuses or names it. */
static void plant_keys(const gguf *g, const char *arch)
{
    char key[96];

    for (int i = 0; unread_key_at(i); i++) {
        const unread_row *r = unread_key_at(i);
        if (*r->name != '.' || strchr(r->name, '*'))
            continue;
        snprintf(key, sizeof key, "%s%s", arch, r->name);
        const int rc = open_changed(g, &(gguf_change){ .key = key, .type = GGUF_STRING, .value = "junk" });
        CHECK(strstr(diag.text, key) || (rc != 0 && strstr(r->name, "window_pattern")) || /* the window is refused */
                  (rc == 0 && (log_seen(key) || r->action == UNREAD_HARMLESS || counts_only_with(r) ||
                               strstr(key, "layer_norm_epsilon"))),
              "%s = junk: %d %s %s", key, rc, diag.text, log_seen_all());
    }
    snprintf(key, sizeof key, "%s.attention.brand_new", arch);
    const int rc = open_changed(g, &(gguf_change){ .key = key, .type = GGUF_STRING, .value = "junk" });
    CHECK(rc == 0 && log_seen(key), "%s: %d %s %s", key, rc, diag.text, log_seen_all());
}

static void check_archs(void)
{
    DIR *d = opendir("tests/archs");
    struct dirent *e;
    char done[2000] = " ", file[300], arch[64], mark[70];
    size_t size = 0;
    char *list = text_file_read(INVENTORY, &size);

    while (d && (e = readdir(d)) != NULL) {
        gguf *g = NULL;
        gguf_str name;
        if (!strstr(e->d_name, ".gguf"))
            continue;
        snprintf(file, sizeof file, "tests/archs/%s", e->d_name);
        CHECK(gguf_open(file, &g, &diag) == 0 && gguf_string(g, "general.architecture", 1, &name, &diag) == 0, "%s: %s",
              file, diag.text);
        snprintf(arch, sizeof arch, "%.*s", (int)name.n, name.s);
        snprintf(mark, sizeof mark, " %s ", arch);
        const int rc = open_changed(g, &(gguf_change){ .key = NULL });
        CHECK(rc == 0 && (!log_seen("") || strstr(log_seen_all(), "n_deepstack_layers")), "%s as it is: %s %s", file,
              diag.text, log_seen_all());
        if (!strstr(done, mark) && (!check_sanitized || strlen(done) < 20)) {
            strncat(done, mark + 1, sizeof done - strlen(done) - 1);
            plant_tensors(g, arch, list);
            plant_keys(g, arch);
        }
        gguf_close(g);
    }
    free(list);
    if (d)
        closedir(d);
}

/* ---- values ---- */

enum { TAKEN, WARNED, REFUSED };

typedef struct value_case {
    const char *key;
    int type;
    const void *value;
    size_t n;
    int wants, elem, count;
} value_case;

static void try_values(const value_case *cases, size_t n)
{
    gguf *g = NULL;

    CHECK(gguf_open("tests/golden/tiny/llama.gguf", &g, &diag) == 0, "%s", diag.text);
    for (size_t i = 0; g && i < n; i++) {
        const gguf_change c = { .key = cases[i].key,
                                .type = cases[i].type,
                                .elem = cases[i].elem,
                                .count = (uint64_t)cases[i].count,
                                .value = cases[i].value,
                                .bytes = cases[i].n };
        const int rc = open_changed(g, &c);
        const int got = rc == 0 ? log_seen(c.key) ? WARNED : TAKEN : strstr(diag.text, c.key) ? REFUSED : -1;
        CHECK(got == cases[i].wants && (rc != 0 || got == WARNED || !log_seen("")), "case %zu, %s: %d %s %s", i, c.key,
              rc, diag.text, log_seen_all());
    }
    gguf_close(g);
}

/* Keys that files of 2026 have. */
static void check_newer_values(void)
{
    static const float one = 1, two = 2;
    static const uint32_t u1 = 1, u7 = 7;
    const value_case cases[] = {
        { "llama.num_loops", GGUF_U32, &u1, 4, TAKEN, 0, 0 },
        { "llama.num_loops", GGUF_U32, &u7, 4, REFUSED, 0, 0 },
        { "llama.attention.value_scale", GGUF_F32, &one, 4, TAKEN, 0, 0 },
        { "llama.attention.value_scale", GGUF_F32, &two, 4, REFUSED, 0, 0 },
        { "llama.attention.rope_pattern", GGUF_ARRAY, (uint8_t[]){ 1, 0 }, 2, REFUSED, GGUF_BOOL, 2 },
        { "llama.attention.rope_pattern", GGUF_ARRAY, (uint8_t[]){ 1, 1 }, 2, TAKEN, GGUF_BOOL, 2 },
        { "llama.attention.recurrent_layers", GGUF_ARRAY, (uint8_t[]){ 0, 1 }, 2, REFUSED, GGUF_BOOL, 2 },
        { "llama.hidden_activation", GGUF_STRING, "relu", 0, REFUSED, 0, 0 },
        { "llama.hidden_activation", GGUF_STRING, "silu", 0, TAKEN, 0, 0 },
        { "llama.hyper_connection.count", GGUF_U32, &u7, 4, REFUSED, 0, 0 },
        { "general.sampling.brand_new", GGUF_F32, &one, 4, WARNED, 0, 0 },
    };

    try_values(cases, sizeof cases / sizeof cases[0]);
}

static void check_values(void)
{
    static const float one = 1, two = 2, four = 4;
    static const uint32_t zero = 0, u1 = 1, u7 = 7, wide = 1u << 20;
    static const double d1 = 1;
    static const uint8_t yes = 1, no = 0;
    static const uint32_t zeros[] = { 0, 0 }, mixed[] = { 0, 64 };
    const value_case cases[] = {
        { "llama.logit_scale", GGUF_F32, &one, 4, TAKEN, 0, 0 },
        { "llama.logit_scale", GGUF_F64, &d1, 8, TAKEN, 0, 0 },
        { "llama.logit_scale", GGUF_F32, &two, 4, REFUSED, 0, 0 },
        { "llama.residual_scale", GGUF_F32, &two, 4, REFUSED, 0, 0 },
        { "llama.embedding_scale", GGUF_F32, &one, 4, TAKEN, 0, 0 },
        { "llama.embedding_scale", GGUF_F32, &four, 4, REFUSED, 0, 0 },
        { "llama.attn_logit_softcapping", GGUF_F32, &four, 4, REFUSED, 0, 0 },
        { "llama.final_logit_softcapping", GGUF_U32, &zero, 4, TAKEN, 0, 0 },
        { "llama.final_logit_softcapping", GGUF_U32, &u7, 4, REFUSED, 0, 0 },
        { "llama.attention.sliding_window_pattern", GGUF_U32, &u7, 4, TAKEN, 0, 0 },
        { "llama.attention.temperature_scale", GGUF_F32, &one, 4, REFUSED, 0, 0 },
        { "llama.attention.clamp_kqv", GGUF_F32, &four, 4, REFUSED, 0, 0 },
        { "llama.attention.max_alibi_bias", GGUF_F32, &four, 4, REFUSED, 0, 0 },
        { "llama.attention.sliding_window", GGUF_U32, &u7, 4, REFUSED, 0, 0 },
        { "llama.attention.sliding_window", GGUF_U32, &wide, 4, TAKEN, 0, 0 },
        { "llama.attention.sliding_window", GGUF_U64, (uint64_t[]){ 0 }, 8, TAKEN, 0, 0 },
        { "llama.attention.head_count_kv", GGUF_ARRAY, (int32_t[]){ 2, 0 }, 8, REFUSED, GGUF_I32, 2 },
        { "llama.attention.scale", GGUF_F32, &two, 4, TAKEN, 0, 0 },
        { "llama.attention.causal", GGUF_BOOL, &yes, 1, TAKEN, 0, 0 },
        { "llama.attention.causal", GGUF_BOOL, &no, 1, REFUSED, 0, 0 },
        { "llama.use_parallel_residual", GGUF_BOOL, &yes, 1, TAKEN, 0, 0 },
        { "llama.swin_norm", GGUF_BOOL, &yes, 1, REFUSED, 0, 0 },
        { "llama.swin_norm", GGUF_U8, &no, 1, TAKEN, 0, 0 },
        { "llama.expert_gating_func", GGUF_U32, &u7, 4, TAKEN, 0, 0 }, /* there are no experts */
        { "llama.leading_dense_block_count", GGUF_U32, &u1, 4, REFUSED, 0, 0 },
        { "llama.attention.shared_kv_layers", GGUF_U32, &u1, 4, REFUSED, 0, 0 },
        { "llama.rope.freq_base_swa", GGUF_F32, &four, 4, TAKEN, 0, 0 }, /* no layer has a window */
        { "llama.rope.scaling.factor", GGUF_F32, &four, 4, TAKEN, 0, 0 },
        { "llama.rope.scale_linear", GGUF_F32, &four, 4, TAKEN, 0, 0 },
        { "llama.rope.scale_linear", GGUF_U32, &u7, 4, TAKEN, 0, 0 },
        { "llama.rope.scaling.alpha", GGUF_F32, &four, 4, REFUSED, 0, 0 },
        { "llama.rope.dimension_sections", GGUF_ARRAY, zeros, 8, TAKEN, GGUF_U32, 2 },
        { "llama.rope.dimension_sections", GGUF_ARRAY, mixed, 8, REFUSED, GGUF_U32, 2 },
        { "llama.swiglu_clamp_exp", GGUF_ARRAY, zeros, 8, TAKEN, GGUF_F32, 2 },
        { "llama.ssm.state_size", GGUF_U32, &u7, 4, REFUSED, 0, 0 },
        { "llama.full_attention_interval", GGUF_U32, &u7, 4, REFUSED, 0, 0 },
        { "llama.vocab_size", GGUF_U32, &u7, 4, WARNED, 0, 0 },
        { "llama.context_length", GGUF_U32, &zero, 4, WARNED, 0, 0 },
        { "llama.context_length", GGUF_U32, NULL, 0, WARNED, 0, 0 },
        { "llama.rope.dimension_count", GGUF_U32, &zero, 4, WARNED, 0, 0 },
        { "llama.vision.block_count", GGUF_U32, &u7, 4, WARNED, 0, 0 },
        { "llama.wholly_new", GGUF_F32, &one, 4, WARNED, 0, 0 },
        { "qwen2.rope.freq_base", GGUF_F32, &one, 4, WARNED, 0, 0 }, /* of another architecture */
        { "vendor.note", GGUF_U32, &one, 4, WARNED, 0, 0 },
        { "general.brand_new", GGUF_U32, &one, 4, TAKEN, 0, 0 },
        { "general.type", GGUF_STRING, "model", 0, TAKEN, 0, 0 },
        { "general.type", GGUF_STRING, "adapter", 0, REFUSED, 0, 0 },
        { "adapter.type", GGUF_STRING, "lora", 0, REFUSED, 0, 0 },
        { "general.sampling.temp", GGUF_F32, &one, 4, WARNED, 0, 0 },
        { "tokenizer.ggml.add_sep_token", GGUF_BOOL, &yes, 1, WARNED, 0, 0 },
        { "tokenizer.ggml.add_sep_token", GGUF_BOOL, &no, 1, TAKEN, 0, 0 },
        { "tokenizer.ggml.seperator_token_id", GGUF_U32, &wide, 4, WARNED, 0, 0 },
        { "tokenizer.ggml.brand_new", GGUF_U32, &wide, 4, WARNED, 0, 0 },
        { "tokenizer.ggml.pre", GGUF_STRING, "default", 0, WARNED, 0, 0 },
        { "tokenizer.ggml.pre", GGUF_STRING, "mine-42", 0, WARNED, 0, 0 },
        { "tokenizer.ggml.pre", GGUF_STRING, NULL, 0, WARNED, 0, 0 },
        { "tokenizer.ggml.eos_token_ids", GGUF_ARRAY, (uint32_t[]){ 3, 7 }, 8, TAKEN, GGUF_U32, 2 },
        { "tokenizer.ggml.eos_token_ids", GGUF_U32, &u7, 4, TAKEN, 0, 0 },
        { "tokenizer.ggml.padding_token_id", GGUF_U64, (uint64_t[]){ UINT64_MAX }, 8, WARNED, 0, 0 },
        { "tokenizer.ggml.mask_token_id", GGUF_I64, (int64_t[]){ -1 }, 8, WARNED, 0, 0 },
        { "tokenizer.ggml.padding_token_id", GGUF_STRING, "x", 0, REFUSED, 0, 0 },
        { "tokenizer.ggml.suppress_tokens", GGUF_ARRAY, (uint32_t[]){ 3, UINT32_MAX, 512 }, 12, WARNED, GGUF_U32, 3 },
        { "tokenizer.ggml.suppress_tokens", GGUF_ARRAY, (int32_t[]){ 3, 4 }, 8, TAKEN, GGUF_I32, 2 },
        { "general.name", GGUF_U32, &u7, 4, TAKEN, 0, 0 },
        { "tokenizer.ggml.eos_token_id", GGUF_ARRAY, (int64_t[]){ 3, -1 }, 16, WARNED, GGUF_I64, 2 },
        { "llama.attention.head_count", GGUF_ARRAY, (uint16_t[]){ 4, 4, 4, 4 }, 8, TAKEN, GGUF_U16, 4 },
        { "llama.rope.freq_base", GGUF_U32, (uint32_t[]){ 10000 }, 4, TAKEN, 0, 0 },
    };

    try_values(cases, sizeof cases / sizeof cases[0]);
}

/* ---- overrides ---- */

static int open_with(const char *const *list, int n, kvant_model **m)
{
    const kvant_model_params mp = { sizeof(kvant_model_params), .path = "tests/golden/tiny/llama.gguf",
                                    .overrides = list, .n_overrides = n };

    diag.text[0] = 0;
    log_seen_begin();
    return kvant_model_open(&mp, m, &diag);
}

static void check_bad_overrides(void)
{
    static const char *const bad[] = {
        "",
        "=int:1",
        "a",
        "a=",
        "a=int",
        "a=int:",
        "a=int:x",
        "a=int:1x",
        "a=int:99999999999999999999",
        "a=float:",
        "a=float:x",
        "a=float:nan",
        "a=float:inf",
        "a=bool:",
        "a=bool:TRUE",
        "a=bool:1",
        "a=u32:1",
        "a=INT:1",
        "a=string:x",
        "llama.block_count=str:4",
        "llama.block_count=float:4",
        "llama.rope.freq_base=int:1",
        "tokenizer.ggml.tokens=str:x",
        "tokenizer.ggml.tokens=int:1",
        "general.architecture=int:1",
        "llama.block_count=int:-1",
        "llama.block_count=int:4294967296",
        "general.architecture=str:no-such",
    };
    char longest[200];
    kvant_model *m = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(open_with(&bad[i], 1, &m) < 0 && !m && diag.text[0], "\"%s\" is taken", bad[i]);
        kvant_model_close(m);
        m = NULL;
    }
    memset(longest, 'k', sizeof longest);
    memcpy(longest + 128, "=int:1", 7);
    const char *one = longest;
    CHECK(open_with(&one, 1, &m) == KVANT_EINVAL, "a key of 128 bytes");
}

static void check_overrides(void)
{
    static const char *const list[] = { "llama.context_length=int:77",
                                        "general.name=str:a, b=c:\"d\"",
                                        "tokenizer.ggml.add_bos_token=bool:false",
                                        "tokenizer.ggml.eos_token_id=int:7",
                                        "llama.rope.freq_base=float:500000.5",
                                        "llama.context_length=int:99" };
    static const char *const idle[] = { "llama.no_such=int:1" }, *const numbers[] = { "llama.logit_scale=float:3" };
    static const char *const pre[] = { "tokenizer.ggml.pre=str:gpt-2" };
    kvant_model *m = NULL;

    CHECK(open_with(list, 6, &m) == 0 && !log_seen(""), "%s %s", diag.text, log_seen_all());
    if (m) {
        const kvant_model_info *i = kvant_model_get_info(m);
        CHECK(i->n_ctx_train == 99 && strcmp(i->name, "a, b=c:\"d\"") == 0, "%d %s", i->n_ctx_train, i->name);
        CHECK(!kvant_token_add_bos(m) && kvant_token_eos(m) == 7 && kvant_token_is_eog(m, 7), "tokenizer");
        CHECK((double)m->hp.rope.base == 500000.5, "%g", (double)m->hp.rope.base);
    }
    kvant_model_close(m);
    m = NULL;
    CHECK(open_with(idle, 1, &m) == 0 && log_seen("llama.no_such") && log_seen("--override-kv"), "%s", log_seen_all());
    kvant_model_close(m);
    m = NULL;
    CHECK(open_with(numbers, 1, &m) == KVANT_EUNSUPPORTED && strstr(diag.text, "llama.logit_scale: 3"), "%s",
          diag.text);
    CHECK(open_with(pre, 1, &m) == 0 && !log_seen(""), "%s %s", diag.text, log_seen_all());
    kvant_model_close(m);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/check_unread.%d.gguf", (int)getpid());
    check_inventory();
    check_values();
    check_newer_values();
    check_bad_overrides();
    check_overrides();
    check_archs();
    unlink(path);
    return check_end("check_unread");
}
