/* check_tokenizer.c: the tokenizer against the golden vectors of another implementation, under hostile vocabularies
 * and texts, on a 64 KiB stack.  Its parts: check_pretok.c, check_bpe.c, check_detok.c.
 *
 *   check_tokenizer                        the tests
 *   check_tokenizer --long                 also 16 MiB texts (a minute, 1 GiB)
 *   check_tokenizer --stdin VOCAB [PRE]    lines "special hextext" -> ids, for tools/check_tokenizer_hf.py */
#include <limits.h>
#include <pthread.h>
#include <time.h>
#include "base/mem.h"
#include "base/rng.h"
#include "kvant/engine.h"
#include "support/check.h"
#include "support/gguf_make.h"
#include "support/log_seen.h"
#include "support/random_text.h"
#include "support/text_file.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define VOCAB  "tests/golden/tokenizer/novella-vocab.gguf"
#define GOLDEN "tests/golden/tokenizer/golden.tsv"

static const char *const pres[] = { "qwen35", "qwen2", "llama-bpe", "gpt-2" };
enum { N_PRES = 4 };

/* ---- helpers ---- */

static tokenizer *open_or_exit(const char *path, const void *data, size_t n)
{
    kvant_diag diag;
    gguf *g = NULL;
    tokenizer *t = NULL;

    if (gguf_open_mem(data, n, &g, &diag) < 0 || tokenizer_open(g, &t, &diag) < 0) {
        printf("%s: %s\n", path, diag.text);
        exit(2);
    }
    gguf_close(g); /* the tokenizer keeps nothing of the file */
    return t;
}

static tokenizer *open_file(const char *path)
{
    size_t n;
    char *file = text_file_read(path, &n);
    tokenizer *t = open_or_exit(path, file, n);

    free(file);
    return t;
}

/* The vocabulary of the file behind another pre-tokenizer. */
static tokenizer *open_with_pre(const char *path, const char *pre)
{
    static const char key[] = "tokenizer.ggml.pre\x08\0\0\0";
    size_t n;
    char *file = text_file_read(path, &n);
    char *at = memmem(file, n, key, sizeof key - 1);
    gguf_make m = { 0 };

    if (!at)
        exit(2);
    at += sizeof key - 1;
    uint64_t len;
    memcpy(&len, at, 8);
    gguf_make_bytes(&m, file + 24, (size_t)(at - file) - 24);
    gguf_make_text(&m, pre, strlen(pre));
    gguf_make_bytes(&m, at + 8 + len, n - (size_t)(at - file) - 8 - (size_t)len);
    memcpy(&m.keys, file + 16, 8);
    gguf_make_finish(&m);
    tokenizer *t = open_or_exit(path, m.data, m.n);
    gguf_make_free(&m);
    free(file);
    return t;
}

/* Ids of a text, malloc'd. */
static int32_t *encode(const tokenizer *t, const char *s, size_t len, int flags, int *n)
{
    kvant_diag diag = { "" };
    int cap = (int)len + 8;
    int32_t *ids = malloc((size_t)cap * 4 * 3);
    int err = tokenizer_encode(t, s, len, flags, ids, cap * 3, n, &diag);

    CHECK(err == 0, "%s", diag.text);
    if (err < 0)
        *n = 0;
    return ids;
}

/* Bytes of the ids, control texts included; malloc'd. */
static char *decode(const tokenizer *t, const int32_t *ids, int n, size_t *len)
{
    size_t cap = 1024;
    char *out = malloc(cap);
    *len = 0;
    for (int i = 0; i < n; i++) {
        int k = tokenizer_bytes(t, ids[i], 1, NULL, 0);
        if (k < 0)
            exit(2);
        if (*len + (size_t)k > cap)
            out = realloc(out, cap = 2 * cap + (size_t)k);
        tokenizer_bytes(t, ids[i], 1, out + *len, k);
        *len += (size_t)k;
    }
    return out;
}

static double cpu_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* ---- golden ---- */

static int golden_line(tokenizer *const *toks, char *line, int no)
{
    char *field[4] = { line };
    for (int i = 1; i < 4; i++) {
        field[i] = strchr(field[i - 1], '\t');
        if (!field[i])
            return 0;
        *field[i]++ = 0;
    }
    const tokenizer *t = NULL;
    for (int i = 0; i < N_PRES; i++)
        if (strcmp(pres[i], field[0]) == 0)
            t = toks[i];
    size_t digits = strlen(field[2]);
    char *text = check_guarded(digits / 2, 1);
    int n, i = 0, len = text_from_hex(field[2], digits, text);
    if (!t || len < 0)
        return 0;
    int32_t *ids = encode(t, text, (size_t)len, field[1][0] == '1' ? KVANT_TOK_SPECIAL : 0, &n);
    char *p = field[3];
    for (; *p && *p != '\n'; i++) {
        long want = strtol(p, &p, 10);
        if (i >= n || ids[i] != want)
            break;
        while (*p == ' ')
            p++;
    }
    CHECK(i == n && (*p == 0 || *p == '\n'), "%s:%d: id %d of %d differs (%s, text %s)", GOLDEN, no, i, n, field[0],
          field[2]);
    CHECK(check_guard_ok(text), "%s:%d: text was written to", GOLDEN, no);
    check_guard_free(text);
    free(ids);
    return 1;
}

static void test_golden(tokenizer *const *toks)
{
    size_t n;
    char *file = text_file_read(GOLDEN, &n);
    int no = 0, cases = 0;

    for (char *line = file; *line;) {
        char *end = strchr(line, '\n');
        if (!end)
            break;
        *end = 0;
        no++;
        if (*line != '#')
            cases += golden_line(toks, line, no);
        line = end + 1;
    }
    CHECK(cases >= 1000 && cases == no - 2, "%d golden cases in %d lines", cases, no);
    printf("golden: %d cases\n", cases);
    free(file);
}

/* ---- round trips ---- */

static void test_round_trip(tokenizer *const *toks)
{
    rng r = { 11 };
    char text[512];

    for (int i = 0; i < 4000; i++) {
        const tokenizer *t = toks[i % N_PRES];
        int nfc = i % N_PRES < 2, n;
        size_t len = random_text(&r, text, sizeof text, i & 4), back;
        if (nfc) /* what NFC changes does not come back: ASCII only */
            for (size_t k = 0; k < len; k++)
                text[k] = (char)(text[k] & 0x7F);
        int32_t *ids = encode(t, text, len, i & 1 ? KVANT_TOK_SPECIAL : 0, &n);
        char *again = decode(t, ids, n, &back);
        CHECK(back == len && memcmp(again, text, len) == 0, "round trip %d", i);
        free(again);
        free(ids);
    }
    for (uint32_t pair = 0; pair < 65536; pair++) {
        char two[2] = { (char)(pair >> 8), (char)pair };
        int32_t ids[4];
        size_t back;
        int n = 0, err = tokenizer_encode(toks[3], two, 2, 0, ids, 4, &n, NULL);
        char *again = decode(toks[3], ids, n, &back);
        if (err || back != 2 || memcmp(again, two, 2) != 0)
            CHECK(0, "bytes %04x", pair);
        free(again);
    }
}

/* ---- long texts, small stack, time ---- */

typedef struct long_case {
    tokenizer *const *toks;
    size_t max;
} long_case;

static const char *const runs[] = { "A",
                                    "Z",
                                    "a",
                                    " ",
                                    "\n",
                                    ".",
                                    "7",
                                    "\xe4\xb8\xad",
                                    "\xcc\x81",
                                    "\xcc\xa3\xcc\x81",
                                    "\xcc\x81\xcc\xa3",
                                    "\xf0\x9f\x91\xa9\xe2\x80\x8d",
                                    " \n",
                                    "ab",
                                    "\xe1\x84\x80",
                                    "<|im_",
                                    "\xff",
                                    "'s",
                                    "\xe1\xa0\x8e" };

static char *make_run(const char *unit, size_t n)
{
    size_t k = strlen(unit);
    char *text = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        text[i] = unit[i % k];
    return text;
}

/* Least CPU time of `tries` runs; *count tokens. */
static double run_time(const tokenizer *t, const char *unit, size_t n, int tries, int *count)
{
    char *text = make_run(unit, n);
    int32_t *ids = malloc(3 * n * 4 + 4);
    kvant_diag diag = { "" };
    double best = 1e9;

    memset(ids, 0, 3 * n * 4); /* page faults are not ours */
    for (int i = 0; i < tries; i++) {
        double t0 = cpu_seconds();
        int err = tokenizer_encode(t, text, n, KVANT_TOK_SPECIAL, ids, (int)(3 * n), count, &diag);
        double dt = cpu_seconds() - t0;
        CHECK(err == 0, "%zu bytes of '%s': %s", n, unit, diag.text);
        best = dt < best ? dt : best;
    }
    free(ids);
    free(text);
    return best;
}

/* Time of a text over that of its half; measured again when the machine seems to have been busy. */
static double time_ratio(const tokenizer *t, const char *unit, size_t n, double *full, int counts[2])
{
    double best = 1e9;

    for (int again = 0; again < 4 && best > 2.3; again++) {
        double a = run_time(t, unit, n / 2, 1 + 2 * again, &counts[0]);
        *full = run_time(t, unit, n, 1 + 2 * again, &counts[1]);
        double ratio = *full / (a > 1e-3 ? a : 1e-3);
        best = ratio < best ? ratio : best;
    }
    return best;
}

static void *long_thread(void *arg)
{
    const long_case *c = arg;
    double worst = 0, worst_ratio = 0;

    for (int p = 0; p < N_PRES; p++)
        for (size_t u = 0; u < sizeof runs / sizeof runs[0]; u++) {
            int n[2];
            double full, ratio = time_ratio(c->toks[p], runs[u], c->max, &full, n);
            worst = full > worst ? full : worst;
            worst_ratio = ratio > worst_ratio ? ratio : worst_ratio;
            CHECK(ratio <= 3, "%s, '%s': %zu bytes take %.4f s, %.2f times half of them", pres[p], runs[u], c->max,
                  full, ratio);
            CHECK(n[1] >= 2 * n[0] - 300 && n[1] <= 2 * n[0] + 300, "%s, '%s': %d tokens, half the text %d", pres[p],
                  runs[u], n[1], n[0]);
        }
    printf("long runs of %zu bytes: at most %.3f s, at most %.2f times half of them\n", c->max, worst, worst_ratio);
    return NULL;
}

static void test_long(tokenizer *const *toks, size_t max)
{
    long_case c = { toks, max };
    pthread_attr_t attr;
    pthread_t th;
    const size_t stack = check_sanitized ? 512 * 1024 : 64 * 1024; /* instrumented frames are larger */

    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstacksize(&attr, stack) == 0, "stack size");
    int err = pthread_create(&th, &attr, long_thread, &c);
    CHECK(err == 0, "pthread_create: %d", err);
    if (err == 0)
        pthread_join(th, NULL);
    pthread_attr_destroy(&attr);
}

/* One tokenizer, many threads: it is never written to after it was opened. */
static void *share_thread(void *arg)
{
    tokenizer *const *toks = arg;
    rng r = { 41 };
    char text[512];
    uint64_t *hash = malloc(sizeof *hash);

    *hash = 0;
    for (int i = 0; i < 400; i++) {
        size_t len = random_text(&r, text, sizeof text, 1);
        int32_t ids[1600];
        int n = 0;
        if (tokenizer_encode(toks[i % N_PRES], text, len, i % 2, ids, 1600, &n, NULL) < 0)
            n = 0;
        for (int k = 0; k < n; k++)
            *hash = (*hash ^ (uint32_t)ids[k]) * 0x100000001B3u;
    }
    return hash;
}

static void test_shared(tokenizer *const *toks)
{
    pthread_t th[4];
    uint64_t *hash[4];

    for (int i = 0; i < 4; i++)
        if (pthread_create(&th[i], NULL, share_thread, (void *)toks))
            exit(2);
    for (int i = 0; i < 4; i++) {
        pthread_join(th[i], (void **)&hash[i]);
        CHECK(*hash[i] == *hash[0] && *hash[i] != 0, "thread %d differs", i);
    }
    for (int i = 0; i < 4; i++)
        free(hash[i]);
}

/* ---- special tokens ---- */

/* The vocabulary of a byte-level tokenizer with nothing but bytes, then `extra` tokens of the given types. */
static void make_bytes_vocab(gguf_make *m, const char *pre, const char *const *extra, const int32_t *types, int n)
{
    int32_t all[256 + 64];

    gguf_make_str(m, "tokenizer.ggml.model", "gpt2");
    gguf_make_str(m, "tokenizer.ggml.pre", pre);
    gguf_make_array(m, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)(256 + n));
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; b++) {
        uint8_t text[4];
        int plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        gguf_make_text(m, (char *)text, (size_t)utf8_encode(plain ? b : next++, text));
        all[b] = 1;
    }
    for (int i = 0; i < n; i++) {
        gguf_make_text(m, extra[i], strlen(extra[i]));
        all[256 + i] = types[i];
    }
    gguf_make_i32s(m, "tokenizer.ggml.token_type", all, (size_t)(256 + n));
}

static int open_made(gguf_make *m, tokenizer **t, kvant_diag *diag)
{
    gguf *g = NULL;

    gguf_make_finish(m);
    int err = gguf_open_mem(m->data, m->n, &g, diag);
    if (err == 0)
        err = tokenizer_open(g, t, diag);
    gguf_close(g);
    gguf_make_free(m);
    return err;
}

static void expect_ids(const tokenizer *t, const char *text, int flags, const int32_t *want, int n_want)
{
    int n;
    int32_t *ids = encode(t, text, strlen(text), flags, &n);
    CHECK(n == n_want && memcmp(ids, want, (size_t)n * 4) == 0, "'%s' flags %d: %d ids, first %d, wanted %d", text,
          flags, n, n ? ids[0] : -1, n_want);
    free(ids);
}

static void test_special(void)
{
    static const char *const extra[] = { "<a>", "<a><b>", "<b>c",       "{u}", "{u}{v}", "<unk>",
                                         "ab",  "[INST]", "<|im_end|>", "xy",  "dead" };
    static const int32_t types[] = { 3, 3, 3, 4, 4, 2, 1, 4, 1, 1, 5 };
    static const char *const merges[] = { "a b", "x y", NULL };
    gguf_make m = { 0 };
    tokenizer *t = NULL;
    kvant_diag diag = { "" };
    char buf[16];

    make_bytes_vocab(&m, "gpt-2", extra, types, 11);
    gguf_make_strs(&m, "tokenizer.ggml.merges", merges);
    gguf_make_u32(&m, "tokenizer.ggml.bos_token_id", 256);
    gguf_make_u32(&m, "tokenizer.ggml.eot_token_id", 257);
    gguf_make_bool(&m, "tokenizer.ggml.add_bos_token", 1);
    CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
    if (!t)
        return;
    expect_ids(t, "<a><b>c", KVANT_TOK_SPECIAL, (int32_t[]){ 257, 'c' }, 2); /* longest at the first place */
    expect_ids(t, "<a><b", KVANT_TOK_SPECIAL, (int32_t[]){ 256, '<', 'b' }, 3);
    expect_ids(t, "<<a>", KVANT_TOK_SPECIAL, (int32_t[]){ '<', 256 }, 2);
    expect_ids(t, "<a>", 0, (int32_t[]){ '<', 'a', '>' }, 3);
    expect_ids(t, "{u}{v}{u}{", 0, (int32_t[]){ 260, 259, '{' }, 3); /* user-defined: always */
    expect_ids(t, "<unk>", 0, (int32_t[]){ '<', 'u', 'n', 'k', '>' }, 5);
    expect_ids(t, "<unk>", KVANT_TOK_SPECIAL, (int32_t[]){ 261 }, 1);
    expect_ids(t, "abxy", KVANT_TOK_BOS, (int32_t[]){ 256, 262, 265 }, 3);
    expect_ids(t, "", KVANT_TOK_BOS, (int32_t[]){ 256 }, 1);
    expect_ids(t, "[INST]", 0, (int32_t[]){ '[', 'I', 'N', 'S', 'T', ']' }, 6); /* a chat marker, whatever its type */
    expect_ids(t, "[INST]<|im_end|>", KVANT_TOK_SPECIAL, (int32_t[]){ 263, 264 }, 2);
    CHECK(tokenizer_is_eog(t, 264) && tokenizer_is_eog(t, 257) && !tokenizer_is_eog(t, 256) &&
              !tokenizer_is_eog(t, -1) && !tokenizer_is_eog(t, 1 << 30),
          "end of generation");
    CHECK(tokenizer_bos(t) == 256 && tokenizer_eos(t) == -1 && tokenizer_add_bos(t) && tokenizer_count(t) == 267,
          "ids");
    CHECK(tokenizer_bytes(t, 256, 0, buf, 16) == 0 && tokenizer_bytes(t, 256, 1, buf, 16) == 3 &&
              memcmp(buf, "<a>", 3) == 0,
          "control text");
    CHECK(tokenizer_bytes(t, 259, 0, buf, 16) == 3 && tokenizer_bytes(t, 266, 1, buf, 16) == 0,
          "user-defined, unused text");
    CHECK(tokenizer_bytes(t, 267, 1, buf, 16) == KVANT_EINVAL && tokenizer_bytes(t, -1, 1, buf, 16) == KVANT_EINVAL,
          "range");
    for (int cap = 0; cap <= 4; cap++) { /* T-01: the needed size comes back, nothing beyond cap is written */
        char *out = check_guarded((size_t)cap, 0);
        CHECK(tokenizer_bytes(t, 256, 1, out, cap) == 3 && check_guard_ok(out), "cap %d", cap);
        check_guard_free(out);
    }
    for (int cap = 0; cap <= 3; cap++) {
        int32_t *ids = check_guarded((size_t)cap * 4, 0);
        int n = -7, err = tokenizer_encode(t, "ab xy", 5, 0, ids, cap, &n, &diag);
        CHECK(err == (cap < 3 ? KVANT_ENOSPC : 0) && n == 3 && check_guard_ok(ids), "cap %d: %d, n %d", cap, err, n);
        check_guard_free(ids);
    }
    tokenizer_close(t);
}

typedef struct known_case {
    const char *tokens[4];
    int32_t types[4];
    const char *wants; /* each token: e ends a generation, c control, w none of both */
} known_case;

/* What the texts of known chat formats are, beside what else the vocabulary has. */
static void test_known(void)
{
    static const known_case cases[] = {
        { { "<bos>", "<eos>", "<s>", "</s>" }, { 3, 3, 4, 4 }, "ceww" },
        { { "<bos>", "<eos>", "<s>", "</s>" }, { 1, 1, 4, 1 }, "ceww" },
        { { "<bos>", "<eos>", "<s>", "</s>" }, { 3, 3, 3, 3 }, "cece" },
        { { "<|turn>", "<turn|>", "<|tool_response>", "[e~[" }, { 3, 3, 4, 1 }, "ceee" },
        { { "<|end|>", "<|return|>", "<|call|>", "x" }, { 3, 3, 3, 1 }, "eeew" },
        { { "<|end|>", "<|return|>", "<|call|>", "<|channel|>" }, { 3, 3, 3, 3 }, "ceec" },
        { { "<|end|>", "<|calls|>", "<|flush|>", "x" }, { 3, 3, 3, 1 }, "ceew" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        const int n = strcmp(cases[i].tokens[3], "x") ? 4 : 3;
        char got[5] = "wwww";
        make_bytes_vocab(&m, "gpt-2", cases[i].tokens, cases[i].types, n);
        gguf_make_strs(&m, "tokenizer.ggml.merges", (const char *const[]){ NULL });
        CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
        for (int k = 0; t && k < n; k++)
            got[k] = tokenizer_is_eog(t, 256 + k) ? 'e' : tokenizer_bytes(t, 256 + k, 0, NULL, 0) == 0 ? 'c' : 'w';
        CHECK(strcmp(got, cases[i].wants) == 0, "case %zu: %s, want %s", i, got, cases[i].wants);
        tokenizer_close(t);
    }
}

/* The ids of the marks for filling in: in range, the last three end a generation. */
static void test_fill_in_keys(void)
{
    static const char *const keys[] = { "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep" };

    for (int k = 0; k < 6; k++)
        for (uint32_t id = 257; id <= 258; id++) {
            static const char *const extra[] = { "<p>", "<q>" };
            gguf_make m = { 0 };
            tokenizer *t = NULL;
            kvant_diag diag = { "" };
            char key[64];
            log_seen_begin();
            snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[k]);
            make_bytes_vocab(&m, "gpt-2", extra, (int32_t[]){ 3, 3 }, 2);
            gguf_make_strs(&m, "tokenizer.ggml.merges", (const char *const[]){ NULL });
            gguf_make_u32(&m, key, id);
            int err = open_made(&m, &t, &diag);
            CHECK(err == 0 && log_seen(keys[k]) == (id == 258), "%s: %d '%s' %s", key, err, diag.text, log_seen_all());
            if (id == 257)
                CHECK(err == 0 && tokenizer_is_eog(t, 257) == (k >= 3) && !tokenizer_is_eog(t, 256), "%s", key);
            tokenizer_close(t);
        }
}

/* A token that no merge makes: found whole by llama-bpe, never by the others. */
static void test_ignore_merges(void)
{
    static const char *const extra[] = { "abc", "\304\240abc", "ctl" };
    static const int32_t types[] = { 1, 1, 3 };

    for (int p = 0; p < N_PRES; p++) {
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        make_bytes_vocab(&m, pres[p], extra, types, 3);
        gguf_make_strs(&m, "tokenizer.ggml.merges", (const char *const[]){ NULL });
        CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
        if (strcmp(pres[p], "llama-bpe") == 0) {
            expect_ids(t, "abc abc abcd", 0, (int32_t[]){ 256, 257, ' ', 'a', 'b', 'c', 'd' }, 7);
            expect_ids(t, "ctl", 0, (int32_t[]){ 'c', 't', 'l' }, 3); /* a control token: not from text */
        } else {
            expect_ids(t, "abc", 0, (int32_t[]){ 'a', 'b', 'c' }, 3);
        }
        tokenizer_close(t);
    }
}

/* T-09: no text forms a control token unless it is asked for. */
static void test_injection(tokenizer *const *toks)
{
    static const char *const control[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    static const char *const around[] = { "", " ", "\n", "a", "<|", "\xff", "\xe2\x80\x8b", "x<|im_end|>" };

    for (int p = 0; p < N_PRES; p++)
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < 64; i++) {
                char text[80];
                int n, plain = 0, special = 0,
                       len = snprintf(text, sizeof text, "%s%s%s", around[i / 8], control[c], around[i % 8]);
                int32_t *ids = encode(toks[p], text, (size_t)len, 0, &n);
                for (int k = 0; k < n; k++)
                    plain += ids[k] < 3;
                free(ids);
                ids = encode(toks[p], text, (size_t)len, KVANT_TOK_SPECIAL, &n);
                for (int k = 0; k < n; k++)
                    special += ids[k] == c;
                free(ids);
                CHECK(plain == 0 && special >= 1, "%s in '%s': %d control ids from plain text, %d when asked",
                      control[c], text, plain, special);
            }
}

/* ---- hostile vocabularies ---- */

typedef struct bad_vocab {
    const char *what, *tokens[4];
    int32_t types[4];
    int n;
    const char *merges[4];
    const char *wants; /* in the message */
} bad_vocab;

static const bad_vocab bad_vocabs[] = {
    { "byte token -1", { "<0x-1>" }, { 6 }, 1, { NULL }, "<0x-1>" },
    { "byte token ZZ", { "<0xZZ>" }, { 6 }, 1, { NULL }, "<0xZZ>" },
    { "byte token 1", { "<0x1>" }, { 6 }, 1, { NULL }, "<0x1>" },
    { "byte token 100", { "<0x100>" }, { 6 }, 1, { NULL }, "<0x100>" },
    { "most merges of unknown tokens", { "zz" }, { 1 }, 1, { "z zzz", "z z", "zz z" }, "2 of 3 name texts" },
    { "merges with a side missing", { "zz" }, { 1 }, 1, { "z ", " z" }, "2 of 2 name texts" },
    { "merges of three", { "zzz", "zz" }, { 1, 1 }, 2, { "z z z", "\x1b[31m" }, "2 of 2 name texts" },
};

/* Files that others read: kvant does too, and says what is wrong; text "zz" gives these ids. */
static const struct {
    bad_vocab v;
    int32_t ids[4];
    int n_ids;
} odd_vocabs[] = {
    { { "duplicate", { "zz", "zz" }, { 1, 1 }, 2, { "z z" }, "'zz' (257)" }, { 256 }, 1 },
    { { "duplicate of three", { "zz", "zz", "zz" }, { 1, 1, 1 }, 3, { "z z" }, "2 texts are there twice" },
      { 256 },
      1 },
    { { "duplicate, the first one unused", { "zz", "zz" }, { 5, 1 }, 2, { "z z" }, "there twice" }, { 257 }, 1 },
    { { "duplicate, the first one normal", { "zz", "zz" }, { 1, 4 }, 2, { NULL }, "there twice" }, { 257 }, 1 },
    { { "duplicate user tokens", { "zz", "zz" }, { 4, 4 }, 2, { NULL }, "there twice" }, { 256 }, 1 },
    { { "duplicate of a byte", { "a" }, { 1 }, 1, { NULL }, "'a' (256)" }, { 'z', 'z' }, 2 },
    { { "empty token", { "zz", "" }, { 1, 1 }, 2, { "z z" }, "1 tokens have an empty text" }, { 256 }, 1 },
    { { "empty control token", { "", "zz" }, { 3, 1 }, 2, { "z z" }, "empty text" }, { 257 }, 1 },
    { { "empty tokens", { "", "", "", "zz" }, { 1, 4, 6, 1 }, 4, { "z z" }, "3 tokens" }, { 259 }, 1 },
    { { "type 7", { "zz" }, { 7 }, 1, { "z z" }, "1 tokens have a type" }, { 256 }, 1 },
    { { "type -1", { "zz" }, { -1 }, 1, { "z z" }, "1 tokens have a type" }, { 256 }, 1 },
    { { "merge without space", { "zz" }, { 1 }, 1, { "z z", "zz" }, "1 of 2" }, { 256 }, 1 },
    { { "merge of nothing", { "zz" }, { 1 }, 1, { "", "z z" }, "1 of 2" }, { 256 }, 1 },
    { { "merge with an empty side", { "zz" }, { 1 }, 1, { "z z", "z " }, "1 of 2" }, { 256 }, 1 },
    { { "merge of three", { "zzz", "zz" }, { 1, 1 }, 2, { "z z", "z z z" }, "1 of 2" }, { 257 }, 1 },
    { { "merge twice", { "zz" }, { 1 }, 1, { "z z", "z z" }, "1 of 2" }, { 256 }, 1 },
};

static void test_odd_vocabs(void)
{
    for (size_t i = 0; i < sizeof odd_vocabs / sizeof odd_vocabs[0]; i++) {
        const bad_vocab *b = &odd_vocabs[i].v;
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        log_seen_begin();
        make_bytes_vocab(&m, "qwen2", b->tokens, b->types, b->n);
        gguf_make_strs(&m, "tokenizer.ggml.merges", b->merges);
        const int err = open_made(&m, &t, &diag);
        CHECK(err == 0 && log_seen(b->wants), "%s: %d '%s' %s", b->what, err, diag.text, log_seen_all());
        if (t)
            expect_ids(t, "zz", 0, odd_vocabs[i].ids, odd_vocabs[i].n_ids);
        for (int k = 0; t && k < b->n; k++)
            CHECK(tokenizer_bytes(t, 256 + k, 1, NULL, 0) == (b->types[k] == 5 ? 0 : (int)strlen(b->tokens[k])),
                  "%s: token %d is written", b->what, 256 + k);
        tokenizer_close(t);
    }
}

/* T-01: a text of the longest length is fine, one byte more is refused. */
static void test_text_lengths(void)
{
    for (int over = 0; over < 2; over++) {
        static char longest[TOKENIZER_MAX_TEXT + 2];
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        memset(longest, 'z', sizeof longest - 1);
        longest[TOKENIZER_MAX_TEXT + over] = 0;
        make_bytes_vocab(&m, "qwen2", (const char *const[]){ longest }, (int32_t[]){ 1 }, 1);
        gguf_make_strs(&m, "tokenizer.ggml.merges", (const char *const[]){ NULL });
        int err = open_made(&m, &t, &diag);
        if (over)
            CHECK(err == KVANT_EFORMAT && strstr(diag.text, "4097 bytes"), "%d '%s'", err, diag.text);
        else
            CHECK(err == 0 && tokenizer_bytes(t, 256, 0, NULL, 0) == TOKENIZER_MAX_TEXT, "%d '%s'", err, diag.text);
        tokenizer_close(t);
    }
}

static void test_bad_vocabs(void)
{
    for (size_t i = 0; i < sizeof bad_vocabs / sizeof bad_vocabs[0]; i++) {
        const bad_vocab *b = &bad_vocabs[i];
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        make_bytes_vocab(&m, "qwen2", b->tokens, b->types, b->n);
        gguf_make_strs(&m, "tokenizer.ggml.merges", b->merges);
        int err = open_made(&m, &t, &diag);
        CHECK(err == KVANT_EFORMAT && !t && strstr(diag.text, b->wants), "%s: %d '%s'", b->what, err, diag.text);
        tokenizer_close(t);
    }
}

/* B25: a merge of what is no token is left out; the others keep their order. */
static void test_merges_left_out(void)
{
    static const char *const notes[] = { "ab", "abc", "cd" };
    static const char *const merges[] = {
        "a b", "c x", "c d", "ab c", "abc d", "d abc", "a abcdabcdabcd", "b b", NULL
    };
    gguf_make m = { 0 };
    tokenizer *t = NULL;
    kvant_diag diag = { "" };

    make_bytes_vocab(&m, "qwen2", notes, (int32_t[]){ 1, 1, 1 }, 3);
    gguf_make_strs(&m, "tokenizer.ggml.merges",
                   (const char *const[]){ merges[0], merges[1], merges[2], merges[3], merges[4], merges[7], NULL });
    CHECK(open_made(&m, &t, &diag) == KVANT_OK, "half of the merges are of tokens: '%s'", diag.text);
    if (t) {
        expect_ids(t, "abc", 0, (int32_t[]){ 257 }, 1);
        expect_ids(t, "abcd", 0, (int32_t[]){ 256, 258 }, 2); /* c d comes before ab c; the merge to abcd is left out */
        expect_ids(t, "cx", 0, (int32_t[]){ 'c', 'x' }, 2);
    }
    tokenizer_close(t);
    t = NULL;
    memset(&m, 0, sizeof m);
    make_bytes_vocab(&m, "qwen2", notes, (int32_t[]){ 1, 1, 1 }, 3);
    gguf_make_strs(&m, "tokenizer.ggml.merges", merges);
    CHECK(open_made(&m, &t, &diag) == KVANT_EFORMAT && strstr(diag.text, "5 of 8 name texts that are no tokens"),
          "'%s'", diag.text);
    tokenizer_close(t);
}

/* One key of an otherwise good file is replaced. */
static int open_variant(int variant, kvant_diag *diag)
{
    static const char *const merges[] = { NULL };
    gguf_make m = { 0 };
    tokenizer *t = NULL;
    float f = 1;

    if (variant == 1)
        gguf_make_str(&m, "tokenizer.ggml.model", "rwkv");
    else if (variant == 2)
        gguf_make_u32(&m, "tokenizer.ggml.model", 1);
    else if (variant != 3)
        gguf_make_str(&m, "tokenizer.ggml.model", "gpt2");
    if (variant == 4)
        gguf_make_str(&m, "tokenizer.ggml.pre", "no-such");
    else if (variant == 5)
        gguf_make_u32(&m, "tokenizer.ggml.pre", 5);
    else if (variant != 6)
        gguf_make_str(&m, "tokenizer.ggml.pre", "qwen2");
    if (variant == 7)
        gguf_make_i32s(&m, "tokenizer.ggml.tokens", (int32_t[]){ 1 }, 1);
    else if (variant == 8)
        gguf_make_strs(&m, "tokenizer.ggml.tokens", merges);
    else if (variant != 9)
        gguf_make_strs(&m, "tokenizer.ggml.tokens", (const char *const[]){ "a", "b", NULL });
    if (variant == 10)
        gguf_make_i32s(&m, "tokenizer.ggml.token_type", (int32_t[]){ 1, 1, 1 }, 3);
    if (variant == 11) {
        gguf_make_key(&m, "tokenizer.ggml.token_type", GGUF_F32);
        gguf_make_bytes(&m, &f, 4);
    }
    if (variant == 12)
        gguf_make_i32s(&m, "tokenizer.ggml.merges", (int32_t[]){ 1 }, 1);
    else if (variant != 13)
        gguf_make_strs(&m, "tokenizer.ggml.merges", merges);
    if (variant == 14)
        gguf_make_u32(&m, "tokenizer.ggml.bos_token_id", 2);
    if (variant == 15)
        gguf_make_u32(&m, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    if (variant == 16)
        gguf_make_bool(&m, "tokenizer.ggml.add_bos_token", 1);
    if (variant == 17)
        gguf_make_str(&m, "tokenizer.ggml.eot_token_id", "x");
    int err = open_made(&m, &t, diag);
    tokenizer_close(t);
    return err;
}

static void test_bad_keys(void)
{
    static const char warned[] = "egkopq";
    static const char *const wants[18] = { "",
                                           "'rwkv', want gpt2",
                                           "tokenizer.ggml.model",
                                           "tokenizer.ggml.model",
                                           "'no-such'",
                                           "tokenizer.ggml.pre",
                                           "tokenizer.ggml.pre: absent",
                                           "tokenizer.ggml.tokens",
                                           "0 tokens",
                                           "tokenizer.ggml.tokens",
                                           "3 entries",
                                           "token_type",
                                           "tokenizer.ggml.merges",
                                           "tokenizer.ggml.merges",
                                           "bos_token_id: 2 is ignored",
                                           "eos_token_id: 4294967295",
                                           "add_bos_token: true is ignored",
                                           "eot_token_id" };

    for (int i = 0; i < 18; i++) {
        kvant_diag diag = { "" };
        log_seen_begin();
        int err = open_variant(i, &diag);
        const int taken = strchr(warned, 'a' + i) != NULL; /* with a warning */
        CHECK(err == (i && !taken ? KVANT_EFORMAT : 0) &&
                  (taken ? log_seen(wants[i]) : strstr(diag.text, wants[i]) != NULL),
              "variant %d: %d '%s' %s", i, err, diag.text, log_seen_all());
    }
}

/* A byte without token is an error (or the unknown token), never a hole in the ids. */
static void test_missing_bytes(void)
{
    for (int unk = 0; unk < 2; unk++) {
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        int32_t ids[8];
        int n = -1;
        gguf_make_str(&m, "tokenizer.ggml.model", "gpt2");
        gguf_make_str(&m, "tokenizer.ggml.pre", "gpt-2");
        gguf_make_strs(&m, "tokenizer.ggml.tokens", (const char *const[]){ "a", "<0x62>", "<unk>", NULL });
        gguf_make_i32s(&m, "tokenizer.ggml.token_type", (int32_t[]){ 1, 6, 2 }, 3);
        gguf_make_strs(&m, "tokenizer.ggml.merges", (const char *const[]){ NULL });
        if (unk)
            gguf_make_u32(&m, "tokenizer.ggml.unknown_token_id", 2);
        CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
        int err = tokenizer_encode(t, "abc", 3, 0, ids, 8, &n, &diag);
        if (unk)
            CHECK(err == 0 && n == 3 && ids[0] == 0 && ids[1] == 1 && ids[2] == 2, "%d, %d ids", err, n);
        else
            CHECK(err == KVANT_EUNSUPPORTED && n == -1 && strstr(diag.text, "0x63"), "%d: %s", err, diag.text);
        tokenizer_close(t);
    }
}

/* Every allocation fails once: ENOMEM comes back, nothing leaks (ASan), nothing crashes. */
static void test_out_of_memory(void)
{
    const char *text = "the e\xcc\x81 number <|im_end|> of 48213";
    size_t size;
    char *file = text_file_read(VOCAB, &size);
    int n = 0, fails = 0;

    for (long at = 0; at < 1000; at++) {
        gguf *g = NULL;
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        int32_t ids[64];
        mem_fail_after(at, 0);
        int err = gguf_open_mem((uint8_t *)file, size, &g, &diag);
        if (err == 0)
            err = tokenizer_open(g, &t, &diag);
        if (err == 0)
            err = tokenizer_encode(t, text, strlen(text), KVANT_TOK_SPECIAL, ids, 64, &n, &diag);
        mem_fail_after(-1, 0);
        tokenizer_close(t);
        gguf_close(g);
        if (err == 0)
            break;
        fails++;
        CHECK(err == KVANT_ENOMEM && diag.text[0], "allocation %ld: %d '%s'", at, err, diag.text);
    }
    CHECK(fails > 10 && fails < 1000 && n > 5, "%d failing allocations, %d ids", fails, n);
    free(file);
}

/* ---- ids by lines ---- */

static int serve(const char *vocab, const char *pre)
{
    tokenizer *t = pre ? open_with_pre(vocab, pre) : open_file(vocab);
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    while ((n = getline(&line, &cap, stdin)) > 2) {
        size_t digits = (size_t)n - 2 - (line[n - 1] == '\n');
        char *text = malloc(digits / 2 + 1);
        int len = text_from_hex(line + 2, digits, text), count = 0;
        kvant_diag diag = { "" };
        int32_t *ids = malloc((3 * digits / 2 + 8) * 4);
        int err = tokenizer_encode(t, text, len < 0 ? 0 : (size_t)len, line[0] == '1' ? KVANT_TOK_SPECIAL : 0, ids,
                                   (int)(3 * digits / 2 + 8), &count, &diag);
        if (err < 0)
            printf("error %s", diag.text);
        for (int i = 0; err == 0 && i < count; i++)
            printf(i ? " %d" : "%d", ids[i]);
        printf("\n");
        fflush(stdout);
        free(ids);
        free(text);
    }
    free(line);
    tokenizer_close(t);
    return 0;
}

int main(int argc, char **argv)
{
    if ((argc == 3 || argc == 4) && strcmp(argv[1], "--stdin") == 0)
        return serve(argv[2], argc == 4 ? argv[3] : NULL);
    tokenizer *toks[N_PRES];
    for (int i = 0; i < N_PRES; i++)
        toks[i] = open_with_pre(VOCAB, pres[i]);
    test_golden(toks);
    test_round_trip(toks);
    test_shared(toks);
    test_special();
    test_known();
    test_fill_in_keys();
    test_ignore_merges();
    test_injection(toks);
    test_text_lengths();
    test_bad_vocabs();
    test_odd_vocabs();
    test_merges_left_out();
    test_bad_keys();
    test_missing_bytes();
    test_out_of_memory();
    test_long(toks, 131072);
    if (argc == 2 && strcmp(argv[1], "--long") == 0)
        test_long(toks, 16 << 20);
    for (int i = 0; i < N_PRES; i++)
        tokenizer_close(toks[i]);
    return check_end("check_tokenizer");
}
