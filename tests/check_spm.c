/* check_spm.c: vocabularies of characters (SentencePiece's with scores, BPE and unigram; Gemma's with merges) against
 * golden ids of the `sentencepiece` package, made vocabularies, hostile files and texts. */
#include <math.h>
#include <time.h>
#include "base/mem.h"
#include "base/rng.h"
#include "kvant/engine.h"
#include "make/convert/hf_vocab.h"
#include "support/check.h"
#include "support/gguf_make.h"
#include "support/log_seen.h"
#include "support/random_text.h"
#include "support/text_file.h"
#include "text/detok.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define GOLDEN "tests/golden/tokenizer/spm.tsv"
#define SP     "\xe2\x96\x81"

/* The last one comes from tokenizer.model, through kvant convert's reader. */
static const char *const names[] = { "prefix", "plain", "unk", "best", "user", "best" };
enum { N_NAMES = 6 };

static tokenizer *open_golden(const char *name)
{
    char path[80];
    size_t n;
    gguf *g = NULL;
    tokenizer *t = NULL;
    kvant_diag diag = { "" };

    snprintf(path, sizeof path, "tests/golden/tokenizer/spm-%s.gguf", name);
    char *file = text_file_read(path, &n);
    if (gguf_open_mem((uint8_t *)file, n, &g, &diag) < 0 || tokenizer_open(g, &t, &diag) < 0) {
        printf("%s: %s\n", path, diag.text);
        exit(2);
    }
    gguf_close(g);
    free(file);
    return t;
}

static tokenizer *open_converted(void)
{
    hf_vocab v = { 0 };
    gguf_keys keys = { 0 };
    gguf *g = NULL;
    tokenizer *t = NULL;
    kvant_diag d = { "" };
    const uint32_t version = 3;
    const uint64_t tensors = 0;
    sbuf file = { 0 };

    CHECK(hf_vocab_open("tests/golden/tokenizer/unigram", 620, NULL, 0, &v, &d) == KVANT_OK &&
              hf_vocab_put(&v, &keys) == KVANT_OK,
          "%s", d.text);
    sbuf_put(&file, "GGUF", 4);
    sbuf_put(&file, (const char *)&version, 4);
    sbuf_put(&file, (const char *)&tensors, 8);
    sbuf_put(&file, (const char *)&keys.n, 8);
    sbuf_put(&file, keys.bytes.s, keys.bytes.n);
    CHECK(gguf_open_mem((uint8_t *)file.s, file.n, &g, &d) == 0 && tokenizer_open(g, &t, &d) == 0, "%s", d.text);
    gguf_close(g);
    sbuf_free(&file);
    gguf_keys_free(&keys);
    hf_vocab_close(&v);
    return t;
}

/* Ids of a text, malloc'd. */
static int32_t *encode(const tokenizer *t, const char *s, size_t len, int flags, int *n)
{
    kvant_diag diag = { "" };
    const int cap = (int)(3 * len) + 8;
    int32_t *ids = malloc((size_t)cap * 4);
    int err = tokenizer_encode(t, s, len, flags, ids, cap, n, &diag);

    CHECK(err == 0, "%s", diag.text);
    if (err < 0)
        *n = 0;
    return ids;
}

static void test_golden(tokenizer *const *toks)
{
    size_t n;
    char *file = text_file_read(GOLDEN, &n), *save = NULL;
    int cases = 0;

    for (char *line = strtok_r(file, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *hex = strchr(line, '\t'), *p = hex ? strchr(hex + 1, '\t') : NULL;
        if (*line == '#' || !p)
            continue;
        *hex++ = 0;
        *p++ = 0;
        char *text = malloc(strlen(hex) / 2 + 1);
        const int len = text_from_hex(hex, strlen(hex), text);
        int count = 0;
        for (int i = 0; i < N_NAMES; i++) {
            if (strcmp(names[i], line) != 0)
                continue;
            int32_t *ids = encode(toks[i], text, (size_t)len, 0, &count);
            char *want = p;
            int same = len >= 0;
            for (int k = 0; k < count; k++)
                same = same && *want && strtol(want, &want, 10) == ids[k];
            CHECK(same && !*want, "%s: text %s: %d ids", line, hex, count);
            free(ids);
            cases++;
        }
        free(text);
    }
    CHECK(cases > 900, "%d golden cases", cases);
    free(file);
}

/* What comes back through the streaming detokeniser, whatever it was: one space more where the file asks for it. */
static void test_round_trip(tokenizer *const *toks)
{
    rng r = { 12 };
    char text[512], again[2048];

    for (int i = 0; i < 3000; i++) {
        const int prefix = i % 2 == 0;
        kvant_detok d = { { 0 }, 0 };
        size_t len = random_text(&r, text, sizeof text, 0), n = 0;
        int count;
        if (!len)
            continue;
        int32_t *ids = encode(toks[prefix ? 0 : 1], text, len, 0, &count);
        for (int k = 0; k < count; k++) {
            char bytes[TOKENIZER_MAX_TEXT];
            int size = tokenizer_bytes(toks[prefix ? 0 : 1], ids[k], 1, bytes, sizeof bytes);
            n += (size_t)detok_push(&d, bytes, size, again + n, (int)(sizeof again - n));
        }
        CHECK(n == len + (size_t)prefix && memcmp(again + prefix, text, len) == 0 && (!prefix || again[0] == ' ') &&
                  d.n_pending == 0,
              "round trip %d: %zu bytes, %zu back", i, len, n);
        free(ids);
    }
}

/* ---- made vocabularies ---- */

typedef struct made {
    const char *text;
    int32_t kind;
    float score;
} made;

/* <unk>, the 256 bytes where asked for, then the tokens. */
static void put_vocab(gguf_make *m, const char *model, const made *tokens, int n, int bytes)
{
    int32_t kinds[300];
    int count = 0;

    gguf_make_str(m, "tokenizer.ggml.model", model);
    gguf_make_array(m, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)(1 + 256 * bytes + n));
    gguf_make_text(m, "<unk>", 5);
    kinds[count++] = 2;
    for (int b = 0; b < 256 * bytes; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        gguf_make_text(m, text, 6);
        kinds[count++] = 6;
    }
    for (int i = 0; i < n; i++) {
        gguf_make_text(m, tokens[i].text, strlen(tokens[i].text));
        kinds[count++] = tokens[i].kind;
    }
    gguf_make_i32s(m, "tokenizer.ggml.token_type", kinds, (size_t)count);
    gguf_make_u32(m, "tokenizer.ggml.unknown_token_id", 0);
    gguf_make_array(m, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        const float score = i < count - n ? 0 : tokens[i - (count - n)].score;
        gguf_make_bytes(m, &score, 4);
    }
}

static int open_made(gguf_make *m, tokenizer **t, kvant_diag *diag)
{
    gguf *g = NULL;

    *t = NULL;
    gguf_make_finish(m);
    int err = gguf_open_mem(m->data, m->n, &g, diag);
    if (err == 0)
        err = tokenizer_open(g, t, diag);
    gguf_close(g);
    gguf_make_free(m);
    return err;
}

/* wants: ids separated by spaces. */
static void expect(const tokenizer *t, const char *text, int flags, const char *wants)
{
    char got[256] = "";
    int n;
    int32_t *ids = encode(t, text, strlen(text), flags, &n);

    for (int i = 0; i < n && i < 40; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), i ? " %d" : "%d", ids[i]);
    CHECK(strcmp(got, wants) == 0, "'%s' flags %d: %s, want %s", text, flags, got, wants);
    free(ids);
}

static void test_scores(void)
{
    /* 1..: bytes no; "xé" and "éy" of a character that is no token itself; equal scores: leftmost. */
    static const made tokens[] = {
        { .text = SP, .kind = 1, .score = -9 },    { .text = "a", .kind = 1, .score = -9 },
        { .text = "b", .kind = 1, .score = -9 },   { .text = "ab", .kind = 1, .score = -1 },
        { .text = "ba", .kind = 1, .score = -1 },  { .text = "aab", .kind = 1, .score = 0 },
        { .text = "x", .kind = 1, .score = -9 },   { .text = "x\xc3\xa9", .kind = 1, .score = -2 },
        { .text = "<c>", .kind = 3, .score = 0 },  { .text = "{u}", .kind = 4, .score = 0 },
        { .text = SP "a", .kind = 1, .score = -3 }
    };
    gguf_make m = { 0 };
    tokenizer *t = NULL;
    kvant_diag diag = { "" };
    char buf[8];

    put_vocab(&m, "llama", tokens, 11, 0);
    gguf_make_u32(&m, "tokenizer.ggml.bos_token_id", 9);
    CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
    if (!t)
        return;
    expect(t, "aba", 0, "1 4 2");  /* leftmost of equals, before the better score that it prevents */
    expect(t, "baab", 0, "1 5 4"); /* "aab" needs "ab" beside an "a" that has gone */
    expect(t, "aab", 0, "1 6");
    expect(t, "a x\xc3\xa9", 0, "11 1 8");    /* a part that is no token */
    expect(t, "\xc3\xa9\xc3\xa9z", 0, "1 0"); /* unknown characters: one token for a run */
    expect(t,
           "\xc3\xa9"
           "a\xc3\xa9",
           0, "1 0 2 0");
    expect(t, "<c>a", KVANT_TOK_SPECIAL | KVANT_TOK_BOS, "9 9 11"); /* a space after every special token */
    expect(t, "a{u}a", 0, "11 10 11");
    expect(t, "", KVANT_TOK_BOS, "9");
    CHECK(tokenizer_add_bos(t) == 1, "the beginning is added unless the file says no");
    CHECK(tokenizer_bytes(t, 11, 0, buf, 8) == 2 && memcmp(buf, " a", 2) == 0, "a space comes back as one");
    CHECK(tokenizer_bytes(t, 9, 0, buf, 8) == 0 && tokenizer_bytes(t, 10, 0, buf, 8) == 3, "control and user-defined");
    tokenizer_close(t);
}

/* Tokens that reach over a space or a line end: no text is cut there. */
static void test_no_cuts(void)
{
    static const made tokens[] = { { .text = SP, .kind = 1, .score = -9 },
                                   { .text = "a", .kind = 1, .score = -9 },
                                   { .text = "\n", .kind = 1, .score = -9 },
                                   { .text = "a" SP, .kind = 1, .score = -1 },
                                   { .text = "a\n", .kind = 1, .score = -2 } };
    gguf_make m = { 0 };
    tokenizer *t = NULL;
    kvant_diag diag = { "" };

    put_vocab(&m, "llama", tokens, 5, 0);
    gguf_make_bool(&m, "tokenizer.ggml.add_bos_token", 0);
    CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
    if (!t)
        return;
    expect(t, "a a\n", KVANT_TOK_BOS, "1 4 5");
    tokenizer_close(t);
}

static void test_merges(void)
{
    static const made tokens[] = { { .text = SP, .kind = 1 },   { .text = "a", .kind = 1 },
                                   { .text = "b", .kind = 1 },  { .text = SP "a", .kind = 1 },
                                   { .text = "\n", .kind = 1 }, { .text = "\n\n", .kind = 1 } };
    static const char *const merges[] = { SP " a", "\n \n", NULL };
    gguf_make m = { 0 };
    tokenizer *t = NULL;
    kvant_diag diag = { "" };

    put_vocab(&m, "gemma4", tokens, 6, 1);
    gguf_make_strs(&m, "tokenizer.ggml.merges", merges);
    CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
    if (!t)
        return;
    expect(t, "a a", 0, "258 260");
    expect(t, "b\n\n\n b", 0, "259 262 261 257 259");
    expect(t, "\xc3\xa9\xff", 0, "196 170 256"); /* bytes: of a character without token, and of none */
    tokenizer_close(t);
}

/* ---- unigram ---- */

/* precompiled_charsmap: "A" is "a", a tab a space, "B" nothing, "AC" two characters; the units that are asked for. */
enum { UNITS = 1024 };

static void put_map(gguf_make *m, uint32_t units[UNITS], const char *texts, size_t n)
{
    const uint32_t array = 4 * UNITS;

    gguf_make_array(m, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, 4 + array + n);
    gguf_make_bytes(m, &array, 4);
    gguf_make_bytes(m, units, array);
    gguf_make_bytes(m, texts, n);
}

/* A unit for a byte after those that end at `base`, whose value lies at unit at ^ 768.  Returns that. */
static uint32_t lead(uint32_t units[UNITS], uint32_t base, char byte, uint32_t value)
{
    const uint32_t at = base ^ (uint8_t)byte, end = at ^ 768;

    units[at] = (uint8_t)byte | 0x100u | (at ^ end) << 10;
    units[end] = 0x80000000u | value;
    return end;
}

static void put_small_map(gguf_make *m)
{
    static const char texts[] = "a\0 \0\0bb";
    uint32_t units[UNITS] = { 256 << 10 };

    lead(units, 256, '\t', 2);
    lead(units, 256, 'B', 4);
    lead(units, lead(units, 256, 'A', 0), 'C', 5);
    put_map(m, units, texts, sizeof texts);
}

static const made unigram_pieces[] = {
    { .text = SP, .kind = 1, .score = -3 },    { .text = "a", .kind = 1, .score = -2 },
    { .text = "b", .kind = 1, .score = -2 },   { .text = "ab", .kind = 1, .score = -3 },
    { .text = "abb", .kind = 1, .score = -6 }, { .text = "<c>", .kind = 3, .score = 0 },
    { .text = "{u}", .kind = 4, .score = 0 },  { .text = SP "a", .kind = 1, .score = -4 },
    { .text = "bb", .kind = 5, .score = 0 },   { .text = "ba", .kind = 1, .score = -3 },
};
enum { N_PIECES = sizeof unigram_pieces / sizeof unigram_pieces[0] };

static tokenizer *open_unigram(int bytes, int squeeze, int prefix)
{
    gguf_make m = { 0 };
    tokenizer *t = NULL;
    kvant_diag diag = { "" };

    put_vocab(&m, "t5", unigram_pieces, N_PIECES, bytes);
    put_small_map(&m);
    gguf_make_bool(&m, "tokenizer.ggml.remove_extra_whitespaces", squeeze);
    gguf_make_bool(&m, "tokenizer.ggml.add_space_prefix", prefix);
    gguf_make_u32(&m, "tokenizer.ggml.bos_token_id", 0);
    CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
    return t;
}

static void test_unigram(void)
{
    tokenizer *t = open_unigram(0, 0, 0);

    if (!t)
        return;
    expect(t, "abb", KVANT_TOK_BOS, "4 3"); /* -5 beats -6; the unused token is none; no BOS unless asked for */
    expect(t, "A\taB", 0, "2 8");           /* "a a" */
    expect(t, "ACA", 0, "3 10");            /* the longest text of the map: "bb" */
    expect(t, "zz a", 0, "0 8");            /* unknown characters: one token for a run */
    expect(t, "  ", 0, "1 1");
    expect(t, "aba", 0, "2 10");         /* of equals the longer last token */
    expect(t, "a{u}a<c>", 0, "2 7 2 0"); /* "<c>" is no token: four unknown characters... */
    expect(t, "<c>a", KVANT_TOK_SPECIAL, "6 2");
    expect(t, "", 0, "");
    tokenizer_close(t);
    t = open_unigram(1, 1, 1);
    if (!t)
        return;
    expect(t, "  A \t b ", 0, "264 257 259"); /* " a b" */
    expect(t, " \t ", 0, "");
    expect(t, "B", 0, "");
    expect(t, "a\xff\xc3\xa9", 0, "264 256 196 170"); /* bytes: of none, and of a character without token */
    tokenizer_close(t);
}

/* Arrays of chance, and one that leads round in circles. */
static void test_bad_maps(void)
{
    rng r = { 5 };
    char text[512], *a = malloc(1 << 18);
    uint32_t units[UNITS] = { 0 };
    kvant_diag diag = { "" };
    int n;

    for (int i = 0; i < 400; i++) {
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        for (int k = 0; k < UNITS; k++)
            units[k] = (uint32_t)rng_u64(&r) & (i % 4 == 0 ? UINT32_MAX : i % 4 == 1 ? 0xFFFFDu : 0x1FFFFu);
        for (int k = 0; i % 4 == 3 && k < UNITS; k++)
            units[k] = (uint32_t)(k & 255) | 0x100u | (uint32_t)(rng_u64(&r) & 0x300) << 10;
        put_vocab(&m, "t5", unigram_pieces, N_PIECES, 1);
        put_map(&m, units, "a\0\xff b", 6);
        CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
        for (int k = 0; t && k < 10; k++)
            free(encode(t, text, random_text(&r, text, sizeof text, 0), 0, &n));
        tokenizer_close(t);
    }
    gguf_make m = { 0 };
    tokenizer *t = NULL;
    memset(units, 0, sizeof units);
    units['a'] = 'a' | (uint32_t)'a' << 10; /* from 'a' by 'a' to 'a', and no text ends */
    put_vocab(&m, "t5", unigram_pieces, N_PIECES, 1);
    put_map(&m, units, "", 1);
    CHECK(open_made(&m, &t, &diag) == 0, "%s", diag.text);
    memset(a, 'a', 1 << 18);
    if (t) {
        free(encode(t, a, 1 << 18, 0, &n));
        CHECK(n == 1 << 18, "a circle in the map: %d tokens", n);
    }
    tokenizer_close(t);
    free(a);
}

/* ---- hostile files and texts ---- */

static void expect_error(gguf_make *m, int code, const char *wants)
{
    tokenizer *t;
    kvant_diag diag = { "" };
    int err = open_made(m, &t, &diag);

    CHECK(err == code && !t && strstr(diag.text, wants), "%d '%s', want '%s'", err, diag.text, wants);
    tokenizer_close(t);
}

static void test_bad_files(void)
{
    static char text[258];
    made one = { .text = "ab", .kind = 1, .score = NAN };
    gguf_make m = { 0 };

    put_vocab(&m, "llama", &one, 1, 0);
    expect_error(&m, KVANT_EFORMAT, "scores[1]: not a number");
    memset(text, 'a', 257);
    one = (made){ .text = text, .kind = 1, .score = 0 };
    put_vocab(&m, "llama", &one, 1, 0);
    expect_error(&m, KVANT_EFORMAT, "tokens[1]: 257 bytes, want at most 256");
}

/* Scores that are missing, too few, too many or of another type: the longest merge first, and a warning. */
static void test_odd_scores(void)
{
    static const char *const tokens[] = { "<unk>", "a", "b", "ab", "x", "bb", NULL };
    static const double d[] = { 0, -1, -1, -1, -2, -3, -4 };

    for (int i = 0; i < 4; i++) {
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        int n = 0;
        log_seen_begin();
        gguf_make_str(&m, "tokenizer.ggml.model", "llama");
        gguf_make_strs(&m, "tokenizer.ggml.tokens", tokens);
        gguf_make_i32s(&m, "tokenizer.ggml.token_type", (int32_t[]){ 2, 1, 1, 1, 1, 1 }, 6);
        gguf_make_bool(&m, "tokenizer.ggml.add_space_prefix", 0);
        if (i > 0)
            gguf_make_array(&m, "tokenizer.ggml.scores", GGUF_F64, i == 1 ? 6 : i == 2 ? 4 : 7);
        if (i > 0)
            gguf_make_bytes(&m, d, (i == 1 ? 6 : i == 2 ? 4 : 7) * sizeof *d);
        CHECK(open_made(&m, &t, &diag) == 0 && log_seen("tokenizer.ggml.scores") == (i != 1), "%d: %s %s", i, diag.text,
              log_seen_all());
        int32_t *ids = t ? encode(t, "abb", 3, 0, &n) : NULL;
        CHECK(n == 2 && ids[0] == 3 && ids[1] == 2, "%d: %d ids", i, n); /* ab before bb */
        free(ids);
        tokenizer_close(t);
    }
}

/* Types that are absent, or 0 for all that is normal: bytes and special tokens by their texts. */
static void test_odd_types(void)
{
    static const char *const tokens[] = { "<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "a", "b", "ab", NULL };
    static const int32_t kinds[3][8] = { { 0 }, { 2, 3, 3, 6, 6, 0, 0, 0 }, { 2, 3, 3, 6, 6, 1, 1, 0 } };
    static const char *const wants[3] = { "7 3 4", "7 3 4", "5 6 3 4" };

    for (int i = 0; i < 3; i++) {
        gguf_make m = { 0 };
        tokenizer *t = NULL;
        kvant_diag diag = { "" };
        log_seen_begin();
        gguf_make_str(&m, "tokenizer.ggml.model", "llama");
        gguf_make_strs(&m, "tokenizer.ggml.tokens", tokens);
        if (i > 0)
            gguf_make_i32s(&m, "tokenizer.ggml.token_type", kinds[i], 8);
        gguf_make_bool(&m, "tokenizer.ggml.add_space_prefix", 0);
        gguf_make_bool(&m, "tokenizer.ggml.add_bos_token", 1);
        CHECK(open_made(&m, &t, &diag) == 0 && log_seen("tokenizer.ggml.token_type") == (i < 2), "%d: %s %s", i,
              diag.text, log_seen_all());
        if (t)
            expect(t, "ab\xc3\xa9", 0, wants[i]);
        CHECK(t && tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2, "%d: <s> and </s> without keys", i);
        tokenizer_close(t);
    }
}

static void expect_bad_map(uint32_t array, size_t n, const char *wants)
{
    static const char zeros[600] = "";
    gguf_make m = { 0 };

    put_vocab(&m, "t5", unigram_pieces, N_PIECES, 0);
    gguf_make_array(&m, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, n);
    gguf_make_bytes(&m, &array, n < 4 ? n : 4);
    for (size_t i = 4; i < n; i++)
        gguf_make_bytes(&m, i + 1 < n || array == 12 ? "x" : zeros, 1);
    expect_error(&m, KVANT_EFORMAT, wants);
}

static void test_bad_unigrams(void)
{
    made one = { .text = "ab", .kind = 1, .score = INFINITY };
    gguf_make m = { 0 };

    put_vocab(&m, "t5", &one, 1, 0);
    expect_error(&m, KVANT_EFORMAT, "scores[1]: not finite");
    expect_bad_map(4, 3, "precompiled_charsmap: 3 bytes with an array of 0");
    expect_bad_map(6, 20, "20 bytes with an array of 6");
    expect_bad_map(0, 20, "20 bytes with an array of 0");
    expect_bad_map(UINT32_MAX - 3, 20, "20 bytes with an array of 4294967292");
    expect_bad_map(12, 20, "its texts (4 bytes), want a NUL at the end");
    expect_bad_map(16, 20, "its texts (0 bytes), want a NUL at the end");
    expect_bad_map(4, 4 + 4 + 258, "its texts (258 bytes), want a NUL at the end and after at most 256");
}

static double run_time(const tokenizer *t, const char *text, size_t n)
{
    double best = 1e9;

    for (int i = 0; i < 3; i++) {
        struct timespec a, b;
        int count;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        free(encode(t, text, n, 0, &count));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        const double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        best = s < best ? s : best;
    }
    return best;
}

/* Words without end: no place to cut. */
static void test_long(tokenizer *const *toks)
{
    enum { N = 1 << 18 };
    static const char *const units[] = { "a", " ", SP, "\n", "th", "\xe4\xb8\xad", "ab ", "\xff", "\xf0\x9f\x91\xa9" };
    char *text = malloc(N);
    double worst = 0, worst_ratio = 0;

    for (int p = 0; p < N_NAMES; p++)
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            const size_t k = strlen(units[u]), len = N / k * k;
            for (size_t i = 0; i < len; i++)
                text[i] = units[u][i % k];
            const double half = run_time(toks[p], text, len / 2 / k * k), full = run_time(toks[p], text, len);
            const double ratio = full / (half > 5e-3 ? half : 5e-3);
            worst = full > worst ? full : worst;
            worst_ratio = ratio > worst_ratio ? ratio : worst_ratio;
            CHECK(ratio < 4, "%s, '%s': %zu bytes take %.3f s, %.1f times half of them", names[p], units[u], len, full,
                  ratio);
        }
    printf("long runs of %d bytes: at most %.3f s, at most %.1f times half of them\n", N, worst, worst_ratio);
    free(text);
}

int main(void)
{
    tokenizer *toks[N_NAMES];

    for (int i = 0; i + 1 < N_NAMES; i++)
        toks[i] = open_golden(names[i]);
    toks[N_NAMES - 1] = open_converted();
    test_golden(toks);
    test_round_trip(toks);
    test_scores();
    test_no_cuts();
    test_merges();
    test_unigram();
    test_bad_maps();
    test_bad_files();
    test_odd_scores();
    test_odd_types();
    test_bad_unigrams();
    test_long(toks);
    for (int i = 0; i < N_NAMES; i++)
        tokenizer_close(toks[i]);
    return check_end("check_spm");
}
