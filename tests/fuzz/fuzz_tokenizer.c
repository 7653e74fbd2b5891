/* fuzz_tokenizer.c: libFuzzer target of the tokenizer and the detokeniser (reliability list, T-02 to T-06).
 *
 * First byte: bits 0-1 what the rest is, bits 2-3 the pre-tokenizer, bits 4-5 the flags, bit 6 a vocabulary of
 * characters with scores (then bit 2 is the space before a text) or, with bits 2 and 3, with merges.
 *   0, 1   a text for a fixed vocabulary
 *   2      a vocabulary and a text: lines "<kind digit>token", an empty line, lines of merges, an empty line, the text;
 *          with bits 6 and 3, not 2, a unigram one: a precompiled_charsmap of 256 bytes instead of the merges
 *   3      a GGUF file; the text is part of it
 * Promises: ids are in range, decode back to the text (exactly where nothing is normalised), no control id comes out of
 * text unless asked for, the count does not depend on the room given, and streamed characters are valid UTF-8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kvant/engine.h"
#include "support/gguf_make.h"
#include "support/promise.h"
#include "text/detok.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pres[] = { "gpt-2", "llama-bpe", "qwen2", "qwen35" };
enum { N_PRES = 4, N_CONTROL = 3, FIRST_CONTROL = 256 };
static const char *const special[] = { "<|im_start|>", "<|im_end|>", "<|im_end|><|", "{u}" };
/* Every token is made by one merge, in this order; some overlap, some repeat one letter. */
/* clang-format off */
static const char *const pairs[] = {
    "a a", "aa a", "aa aa", "t h", "th e", "\xc4\xa0 \xc4\xa0", "\xc4\xa0 t", "\xc4\x8a \xc4\x8a", "\xc3\x8c \xc4\xa3", ". .", ".. ..",
    "e r", "' s", "\xc3\xa4 \xc2\xb8", "1 2",
};
/* clang-format on */
enum { N_PAIRS = sizeof pairs / sizeof pairs[0] };

static tokenizer *fixed_vocab(const char *pre)
{
    gguf_make m = { 0 };
    gguf *g = NULL;
    tokenizer *t = NULL;
    int32_t types[256 + 4 + N_PAIRS];
    uint32_t next = 256;

    gguf_make_str(&m, "tokenizer.ggml.model", "gpt2");
    gguf_make_str(&m, "tokenizer.ggml.pre", pre);
    gguf_make_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, 256 + 4 + N_PAIRS);
    for (uint32_t b = 0; b < 256; b++) {
        uint8_t text[4];
        int as_is = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        gguf_make_text(&m, (char *)text, (size_t)utf8_encode(as_is ? b : next++, text));
    }
    for (int i = 0; i < 4; i++)
        gguf_make_text(&m, special[i], strlen(special[i]));
    for (int i = 0; i < N_PAIRS; i++) {
        char joined[32];
        const char *space = strchr(pairs[i], ' ');
        snprintf(joined, sizeof joined, "%.*s%s", (int)(space - pairs[i]), pairs[i], space + 1);
        gguf_make_text(&m, joined, strlen(joined));
    }
    for (int i = 0; i < 256 + 4 + N_PAIRS; i++)
        types[i] = i >= FIRST_CONTROL && i < FIRST_CONTROL + N_CONTROL ? 3 : i == FIRST_CONTROL + N_CONTROL ? 4 : 1;
    gguf_make_i32s(&m, "tokenizer.ggml.token_type", types, 256 + 4 + N_PAIRS);
    gguf_make_array(&m, "tokenizer.ggml.merges", GGUF_STRING, N_PAIRS);
    for (int i = 0; i < N_PAIRS; i++)
        gguf_make_text(&m, pairs[i], strlen(pairs[i]));
    gguf_make_finish(&m);
    PROMISE(gguf_open_mem(m.data, m.n, &g, NULL) == 0);
    PROMISE(tokenizer_open(g, &t, NULL) == 0);
    gguf_close(g);
    gguf_make_free(&m);
    return t;
}

/* Bytes as tokens, then pieces with scores, some equal; some pieces are made by several merges. */
static tokenizer *fixed_scores(int space_prefix)
{
    static const char *const pieces[] = {
        "\xe2\x96\x81",   "a",   "aa", "aaa", "aaaa", "t",    "h",         "th",
        "\xe2\x96\x81th", "the", "he", "e",   "\n",   "\n\n", "x\xc3\xa9", "\xc3\xa9y"
    };
    enum { N_PIECES = sizeof pieces / sizeof pieces[0], N = 256 + 4 + N_PIECES };
    gguf_make m = { 0 };
    gguf *g = NULL;
    tokenizer *t = NULL;
    int32_t types[N];

    gguf_make_str(&m, "tokenizer.ggml.model", "llama");
    gguf_make_bool(&m, "tokenizer.ggml.add_space_prefix", space_prefix);
    gguf_make_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, N);
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        gguf_make_text(&m, text, 6);
    }
    for (int i = 0; i < 4; i++)
        gguf_make_text(&m, special[i], strlen(special[i]));
    for (int i = 0; i < N_PIECES; i++)
        gguf_make_text(&m, pieces[i], strlen(pieces[i]));
    for (int i = 0; i < N; i++)
        types[i] = i < 256 ? 6 : i < FIRST_CONTROL + N_CONTROL ? 3 : i == FIRST_CONTROL + N_CONTROL ? 4 : 1;
    gguf_make_i32s(&m, "tokenizer.ggml.token_type", types, N);
    gguf_make_array(&m, "tokenizer.ggml.scores", GGUF_F32, N);
    for (int i = 0; i < N; i++) {
        const float score = (float)-(i / 3);
        gguf_make_bytes(&m, &score, 4);
    }
    gguf_make_finish(&m);
    PROMISE(gguf_open_mem(m.data, m.n, &g, NULL) == 0);
    PROMISE(tokenizer_open(g, &t, NULL) == 0);
    gguf_close(g);
    gguf_make_free(&m);
    return t;
}

/* All ids decoded; malloc'd. */
static char *decode(const tokenizer *t, const int32_t *ids, int n, size_t *len)
{
    size_t cap = 64;
    char *out = malloc(cap);

    *len = 0;
    for (int i = 0; i < n; i++) {
        PROMISE(ids[i] >= 0 && ids[i] < tokenizer_count(t));
        int k = tokenizer_bytes(t, ids[i], 1, NULL, 0);
        PROMISE(k >= 0);
        while (*len + (size_t)k > cap)
            out = realloc(out, cap *= 2);
        PROMISE(tokenizer_bytes(t, ids[i], 1, out + *len, k) == k);
        *len += (size_t)k;
    }
    return out;
}

static void stream(const char *bytes, size_t len, size_t step)
{
    kvant_detok d = { { 0 }, 0 };
    char out[3 * (16 + 3) + 1];
    int n;

    for (size_t at = 0; at < len; at += step) {
        int k = (int)(len - at < step ? len - at : step);
        n = detok_push(&d, bytes + at, k, out, sizeof out);
        PROMISE(n >= 0 && out[n] == 0 && utf8_valid_prefix((uint8_t *)out, (size_t)n) == (size_t)n);
    }
    n = detok_flush(&d, out, sizeof out);
    PROMISE(n == 0 || n == 3);
}

/* exact: nothing is normalised, all bytes have tokens, no token is unused. */
static void use(const tokenizer *t, const char *text, size_t len, int flags, int exact, int control)
{
    kvant_diag diag = { "" };
    int n = -1, again = -1;
    size_t back;
    int err = tokenizer_encode(t, text, len, flags, NULL, 0, &n, &diag);

    if (err != KVANT_OK && err != KVANT_ENOSPC) {
        PROMISE(!exact && diag.text[0]);
        return;
    }
    PROMISE(n >= 0 && (err == KVANT_OK) == (n == 0));
    int32_t *ids = malloc((size_t)n * sizeof *ids + 1);
    PROMISE(tokenizer_encode(t, text, len, flags, ids, n, &again, &diag) == KVANT_OK && again == n);
    char *bytes = decode(t, ids, n, &back);
    if (exact)
        PROMISE(back == len && memcmp(bytes, text, len) == 0);
    for (int i = 0; control && !(flags & KVANT_TOK_SPECIAL) && i < n; i++)
        PROMISE(ids[i] < FIRST_CONTROL || ids[i] >= FIRST_CONTROL + N_CONTROL);
    stream(bytes, back, 1 + len % 7);
    free(bytes);
    free(ids);
}

static size_t line_length(const uint8_t *p, size_t n)
{
    const uint8_t *end = memchr(p, '\n', n);
    return end ? (size_t)(end - p) : n;
}

/* Lines up to an empty one into an array of strings; skip: bytes at the start of a line that are not part of it. */
static size_t put_lines(gguf_make *m, const char *key, const uint8_t *p, size_t n, size_t skip)
{
    uint64_t count = 0;
    size_t at = 0, end = 0, k;

    for (; end < n && (k = line_length(p + end, n - end)) > 0; end += k + 1 <= n - end ? k + 1 : k)
        count += k >= skip;
    gguf_make_array(m, key, GGUF_STRING, count);
    for (; at < end; at += k + 1 <= n - at ? k + 1 : k) {
        k = line_length(p + at, n - at);
        if (k >= skip)
            gguf_make_text(m, (const char *)p + at + skip, k - skip);
    }
    return end < n ? end + 1 : n;
}

static void put_types(gguf_make *m, const uint8_t *p, size_t n)
{
    int32_t types[1024];
    size_t count = 0, k;

    for (size_t at = 0; at < n && (k = line_length(p + at, n - at)) > 0 && count < 1024; at += k + 1)
        types[count++] = p[at] - '0';
    gguf_make_i32s(m, "tokenizer.ggml.token_type", types, count);
}

/* A score for each line, some equal. */
static void put_scores(gguf_make *m, const uint8_t *p, size_t n)
{
    float scores[1024];
    size_t count = 0, k;

    for (size_t at = 0; at < n && (k = line_length(p + at, n - at)) > 0 && count < 1024; at += k + 1)
        scores[count++] = -(float)(p[at + k - 1] % 5);
    gguf_make_array(m, "tokenizer.ggml.scores", GGUF_F32, count);
    gguf_make_bytes(m, scores, 4 * count);
}

/* With the keys that only such a vocabulary has. */
static size_t put_map(gguf_make *m, const uint8_t *p, size_t n)
{
    const size_t size = n < 256 ? n : 256;

    gguf_make_bool(m, "tokenizer.ggml.remove_extra_whitespaces", size && p[0] & 1);
    gguf_make_bool(m, "tokenizer.ggml.add_space_prefix", size && p[0] & 2);
    gguf_make_array(m, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, size);
    gguf_make_bytes(m, p, size);
    return size;
}

/* The keys of kvant's own converter, by the bits of two bytes: flags of the first tokens, steps, spaces. */
static void put_rules(gguf_make *m, unsigned bits)
{
    static const char *const keys[] = { "kvant.tokenizer.lstrip", "kvant.tokenizer.rstrip",
                                        "kvant.tokenizer.single_word", "kvant.tokenizer.normalized",
                                        "kvant.tokenizer.symbols" };
    static const char *const modes[] = { "replace", "prepend", "always", "first", "never", "begin" };
    static const char *const steps[][5] = { { "nfc" },
                                            { "nfkd", "strip_accents" },
                                            { "lowercase", "strip_left", "strip_right" },
                                            { "replace", "a", "bb", "nfkc" } };

    for (unsigned i = 0; i < 5; i++)
        if (bits >> i & 1)
            gguf_make_i32s(m, keys[i], (const int32_t[]){ 0, 1, 2 }, 1 + i % 3);
    if (bits >> 5 & 1)
        gguf_make_strs(m, "kvant.tokenizer.normalizers", steps[bits >> 6 & 3]);
    if (bits >> 8 & 1)
        gguf_make_str(m, "kvant.tokenizer.spaces", modes[(bits >> 9) % 6]);
    gguf_make_bool(m, "kvant.tokenizer.by_rank", bits >> 12 & 1);
    gguf_make_bool(m, "kvant.tokenizer.split_spaces", bits >> 13 & 1);
    gguf_make_bool(m, "kvant.tokenizer.fuse_unk", bits >> 14 & 1);
}

static void use_vocab(const char *model, const char *pre, int flags, const uint8_t *p, size_t n)
{
    gguf_make m = { 0 };
    gguf *g = NULL;
    tokenizer *t = NULL;
    kvant_diag diag = { "" };

    gguf_make_str(&m, "tokenizer.ggml.model", model);
    gguf_make_str(&m, "tokenizer.ggml.pre", pre);
    put_scores(&m, p, n);
    put_types(&m, p, n);
    size_t at = put_lines(&m, "tokenizer.ggml.tokens", p, n, 1);
    at += strcmp(model, "t5") == 0 ? put_map(&m, p + at, n - at)
                                   : put_lines(&m, "tokenizer.ggml.merges", p + at, n - at, 0);
    gguf_make_u32(&m, "tokenizer.ggml.bos_token_id", 0);
    if (n >= 2)
        put_rules(&m, p[n - 1] + 256u * p[n - 2]);
    gguf_make_finish(&m);
    if (gguf_open_mem(m.data, m.n, &g, &diag) == 0) {
        if (tokenizer_open(g, &t, &diag) == 0)
            use(t, (const char *)p + at, n - at, flags, 0, 0);
        else
            PROMISE(diag.text[0] && !t);
    }
    tokenizer_close(t);
    gguf_close(g);
    gguf_make_free(&m);
}

static void use_file(const uint8_t *p, size_t n, int flags)
{
    gguf *g = NULL;
    tokenizer *t = NULL;
    kvant_diag diag = { "" };

    if (gguf_open_mem(p, n, &g, &diag) == 0 && tokenizer_open(g, &t, &diag) == 0)
        use(t, (const char *)p + n / 2, n - n / 2, flags, 0, 0);
    tokenizer_close(t);
    gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tokenizer *fixed[N_PRES], *scored[2];

    if (size < 1)
        return 0;
    const int what = data[0] & 3, pre = data[0] >> 2 & 3, flags = data[0] >> 4 & 3, scores = data[0] >> 6 & 1;
    const char *model = !scores ? "gpt2" : pre == 3 ? "gemma4" : pre == 2 ? "t5" : "llama";
    if (!fixed[pre])
        fixed[pre] = fixed_vocab(pres[pre]);
    if (!scored[pre & 1])
        scored[pre & 1] = fixed_scores(pre & 1);
    if (what < 2 && scores)
        use(scored[pre & 1], (const char *)data + 1, size - 1, flags,
            !(pre & 1) && !memmem(data + 1, size - 1, "\xe2\x96\x81", 3), 1);
    else if (what < 2)
        use(fixed[pre], (const char *)data + 1, size - 1, flags, pre < 2, 1);
    else if (what == 2)
        use_vocab(model, pres[pre], flags, data + 1, size - 1);
    else
        use_file(data + 1, size - 1, flags);
    return 0;
}
