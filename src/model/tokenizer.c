/* tokenizer.c: text -> ids.  Owns the order of the steps; each step has its own file.
 *
 *   1. special tokens are cut out of the raw text: user-defined ones always, control and unknown ones with
 *      KVANT_TOK_SPECIAL; the leftmost first, at one place the longest (as the tokenizers that made the vocabularies).
 *   2. between them, bytes that are not UTF-8 become their byte tokens, one each, and pieces end there: every valid run
 *      is tokenised as a text of its own.
 *   3. a valid run is normalised to NFC where its pre-tokenizer asks for it, then cut into pieces (pretok.c).
 *   4. a piece becomes byte tokens, merged by rank (tokenizer_bpe.c); with ignore_merges a piece that is a normal token
 *      is that token.
 * No recursion; memory: about 24 bytes per byte of the longest piece, plus 4 per code point where NFC has work. */
#include "model/tokenizer.h"

#include <limits.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "kvant/engine.h"
#include "model/pretok.h"
#include "model/tokenizer_bpe.h"
#include "model/tokenizer_vocab.h"
#include "model/utf8.h"

struct tokenizer {
    vocab v;
    bpe b;
    pretok *pre;
    int32_t bos, eos, unk;
    int add_bos;
};

/* ---- opening ---- */

static int read_model(const gguf *g, kvant_diag *diag)
{
    gguf_str model = { "", 0 };
    char shown[48];

    KVANT_TRY(gguf_string(g, "tokenizer.ggml.model", 1, &model, diag));
    if (model.n == 4 && memcmp(model.s, "gpt2", 4) == 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.model: '%s', want gpt2 (byte-level BPE)",
                      vocab_show(model.s, model.n, shown, sizeof shown));
}

static int read_pre(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    gguf_str pre = { "", 0 };

    if (!gguf_find(g, "tokenizer.ggml.pre"))
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.pre: absent, want qwen2, qwen35, llama-bpe or gpt-2");
    KVANT_TRY(gguf_string(g, "tokenizer.ggml.pre", 1, &pre, diag));
    return pretok_open(pre.s, pre.n, 0, &t->pre, diag);
}

/* What a line of the merges may be. */
enum { MERGE_OK, MERGE_MALFORMED, MERGE_NO_TOKEN };

/* Ids of "left right" and of both joined. */
static int merge_ids(const tokenizer *t, gguf_str line, char *joined, uint32_t ids[3])
{
    const char *space = line.n > 1 ? memchr(line.s + 1, ' ', line.n - 1) : NULL;

    if (!space || space + 1 == line.s + line.n || memchr(space + 1, ' ', line.n - 1 - (size_t)(space - line.s)))
        return MERGE_MALFORMED;
    if (line.n - 1 > t->v.longest)
        return MERGE_NO_TOKEN;
    size_t left = (size_t)(space - line.s), right = line.n - left - 1;
    memcpy(joined, line.s, left);
    memcpy(joined + left, space + 1, right);
    int32_t found[3] = { vocab_find(&t->v, joined, left), vocab_find(&t->v, space + 1, right),
                         vocab_find(&t->v, joined, left + right) };
    for (int i = 0; i < 3; i++) {
        if (found[i] < 0)
            return MERGE_NO_TOKEN;
        ids[i] = (uint32_t)found[i];
    }
    return MERGE_OK;
}

/* A merge of what is no token is left out and counted in *left_out: such a symbol could never come out as one. */
static int add_merge(tokenizer *t, uint32_t i, gguf_str line, char *joined, int *left_out, kvant_diag *diag)
{
    const char *key = "tokenizer.ggml.merges";
    char shown[80];
    uint32_t ids[3], rank;

    const int kind = merge_ids(t, line, joined, ids);
    if (kind == MERGE_MALFORMED)
        return kvant_fail(diag, KVANT_EFORMAT, "%s[%u]: '%s', want two tokens and one space between", key, i,
                          vocab_show(line.s, line.n, shown, sizeof shown));
    if (kind == MERGE_NO_TOKEN) {
        if ((*left_out)++ == 0)
            log_msg(LOG_DEBUG, "%s[%u]: '%s', left out: not both sides and their joint text are tokens", key, i,
                    vocab_show(line.s, line.n, shown, sizeof shown));
        return KVANT_OK;
    }
    for (int j = 0; j < 3; j++)
        if (vocab_is_control(&t->v, (int32_t)ids[j]))
            return KVANT_OK; /* left out: control tokens never come out of text */
    t->v.tokens[ids[2]].made = 1;
    if (bpe_add(&t->b, ids[0], ids[1], ids[2], &rank) < 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s[%u]: '%s' %s", key, i,
                          vocab_show(line.s, line.n, shown, sizeof shown),
                          rank == UINT32_MAX ? "collides with others beyond chance" : "is there twice");
    return KVANT_OK;
}

/* Some files carry a few merges too many, and their readers take them.  Where most are, the list is of another
 * vocabulary, and every text would come out wrong. */
static int judge_left_out(int left_out, int n, kvant_diag *diag)
{
    if (left_out > n / 2)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "tokenizer.ggml.merges: %d of %d name texts that are no tokens, want at most half", left_out,
                          n);
    if (left_out)
        log_msg(LOG_INFO, "tokenizer.ggml.merges: %d of %d name texts that are no tokens, and are left out", left_out,
                n);
    return KVANT_OK;
}

static int read_merges(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    enum { MAX_MERGES = 1 << 24 }; /* files with all splits of each token have up to 10 merges a token */
    gguf_iter it;
    gguf_str line;
    int n = 0, err, left_out = 0;
    uint32_t i = 0;

    KVANT_TRY(gguf_strings(g, "tokenizer.ggml.merges", 1, &it, &n, diag));
    if (n < 0 || n > MAX_MERGES)
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.merges: %d merges, want 0 to %d", n, MAX_MERGES);
    KVANT_TRY(bpe_init(&t->b, (uint32_t)n, diag));
    char *joined = kvant_alloc((size_t)t->v.longest + 1);
    if (!joined)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.merges: out of memory");
    for (err = KVANT_OK; err == 0 && i < (uint32_t)n && gguf_next(&it, &line); i++)
        err = add_merge(t, i, line, joined, &left_out, diag);
    kvant_free(joined);
    if (err == KVANT_OK)
        err = judge_left_out(left_out, n, diag);
    return err < 0 ? err : bpe_finish(&t->b, t->v.n, diag);
}

static int read_id(const tokenizer *t, const gguf *g, const char *key, int32_t *id, kvant_diag *diag)
{
    uint32_t v = 0;

    *id = -1;
    if (!gguf_find(g, key))
        return KVANT_OK;
    KVANT_TRY(gguf_u32(g, key, 1, &v, diag));
    if (v >= t->v.n)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, want below %u tokens", key, v, t->v.n);
    *id = (int32_t)v;
    return KVANT_OK;
}

static int read_ids(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    static const char *const ends[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    int32_t id;

    KVANT_TRY(read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, diag));
    KVANT_TRY(read_id(t, g, "tokenizer.ggml.padding_token_id", &id, diag));
    KVANT_TRY(read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unk, diag));
    for (int i = 0; i < 3; i++) {
        KVANT_TRY(read_id(t, g, ends[i], &id, diag));
        if (i == 0)
            t->eos = id;
        if (id >= 0)
            t->v.tokens[id].eog = 1;
    }
    t->add_bos = pretok_add_bos(t->pre) && t->bos >= 0;
    KVANT_TRY(gguf_bool(g, "tokenizer.ggml.add_bos_token", 0, &t->add_bos, diag));
    if (t->add_bos && t->bos < 0)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "tokenizer.ggml.add_bos_token: true, but tokenizer.ggml.bos_token_id is absent");
    return KVANT_OK;
}

int tokenizer_open(const gguf *g, tokenizer **out, kvant_diag *diag)
{
    tokenizer *t = kvant_calloc(1, sizeof *t);

    if (!t)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer: out of memory");
    int err = read_model(g, diag);
    if (err == 0)
        err = read_pre(t, g, diag);
    if (err == 0)
        err = vocab_open(&t->v, g, diag);
    if (err == 0)
        err = read_merges(t, g, diag);
    if (err == 0)
        err = vocab_finish(&t->v, diag);
    if (err == 0)
        err = read_ids(t, g, diag);
    if (err < 0) {
        tokenizer_close(t);
        return err;
    }
    *out = t;
    return KVANT_OK;
}

void tokenizer_close(tokenizer *t)
{
    if (!t)
        return;
    vocab_close(&t->v);
    bpe_free(&t->b);
    pretok_close(t->pre);
    kvant_free(t);
}

/* ---- encoding ---- */

typedef struct encoder {
    const tokenizer *t;
    int32_t *ids;
    int cap;
    int64_t n; /* tokens so far, also beyond cap */
    pretok_scan *scan;
    bpe_work work;
    pretok_buf nfc;
    char *piece; /* a piece in the byte alphabet, v.longest + 2 bytes */
    kvant_diag *diag;
} encoder;

static void put(encoder *e, int32_t id)
{
    if (e->n < e->cap)
        e->ids[e->n] = id;
    e->n++;
}

static int32_t byte_token(const encoder *e, uint8_t byte)
{
    int32_t id = e->t->v.byte_id[byte];
    return id >= 0 ? id : e->t->unk;
}

static int no_byte(const encoder *e, uint8_t byte)
{
    return kvant_fail(e->diag, KVANT_EUNSUPPORTED, "text: byte 0x%02X has no token in this vocabulary", byte);
}

static int put_byte(encoder *e, uint8_t byte)
{
    int32_t id = byte_token(e, byte);

    if (id < 0)
        return no_byte(e, byte);
    put(e, id);
    return KVANT_OK;
}

/* The normal token with exactly these bytes, or -1. */
static int32_t whole_piece(encoder *e, const uint8_t *s, size_t n)
{
    const vocab *v = &e->t->v;
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        if (len >= v->longest)
            return -1;
        len += (size_t)vocab_alphabet(s[i], e->piece + len);
    }
    int32_t id = vocab_find(v, e->piece, len);
    return id >= 0 && v->tokens[id].kind == VOCAB_NORMAL ? id : -1;
}

static int encode_piece(encoder *e, const uint8_t *s, size_t n)
{
    size_t left;

    if (n == 1)
        return put_byte(e, s[0]);
    if (pretok_ignore_merges(e->t->pre)) {
        int32_t id = whole_piece(e, s, n);
        if (id >= 0) {
            put(e, id);
            return KVANT_OK;
        }
    }
    if (bpe_reserve(&e->work, n) < 0)
        goto no_memory;
    for (size_t i = 0; i < n; i++) {
        int32_t id = byte_token(e, s[i]);
        if (id < 0)
            return no_byte(e, s[i]);
        e->work.id[i] = (uint32_t)id;
    }
    if (bpe_merge_ids(&e->t->b, &e->work, n, &left) < 0)
        goto no_memory;
    for (size_t i = 0; i < left; i++)
        put(e, (int32_t)e->work.id[i]);
    return KVANT_OK;
no_memory:
    return kvant_fail(e->diag, KVANT_ENOMEM, "text: no memory to merge a piece of %zu bytes", n);
}

static int scan_open(encoder *e)
{
    if (e->scan)
        return KVANT_OK;
    e->piece = kvant_alloc((size_t)e->t->v.longest + 2);
    if (!e->piece)
        return kvant_fail(e->diag, KVANT_ENOMEM, "text: out of memory");
    return pretok_scan_open(e->t->pre, &e->scan, e->diag);
}

static int encode_valid(encoder *e, const char *s, size_t len)
{
    KVANT_TRY(scan_open(e));
    if (pretok_nfc(e->t->pre))
        KVANT_TRY(pretok_to_nfc(&e->nfc, s, len, &s, &len, e->diag));
    pretok_scan_limits(e->scan, len);
    for (size_t at = 0, end; at < len; at = end) {
        KVANT_TRY(pretok_next(e->scan, s, len, at, &end, e->diag));
        KVANT_TRY(encode_piece(e, (const uint8_t *)s + at, end - at));
    }
    return KVANT_OK;
}

static int encode_span(encoder *e, const char *s, size_t len)
{
    size_t at = 0;

    while (at < len) {
        size_t n = utf8_valid_prefix((const uint8_t *)s + at, len - at);
        if (n)
            KVANT_TRY(encode_valid(e, s + at, n));
        at += n;
        if (at < len)
            KVANT_TRY(put_byte(e, (uint8_t)s[at++]));
    }
    return KVANT_OK;
}

static int encode_text(encoder *e, const char *text, size_t len, int flags)
{
    size_t at = 0, from = 0, to = 0;
    int32_t id;

    if ((flags & KVANT_TOK_BOS) && e->t->add_bos)
        put(e, e->t->bos);
    while ((id = vocab_next_special(&e->t->v, text, len, at, flags & KVANT_TOK_SPECIAL, &from, &to)) >= 0) {
        KVANT_TRY(encode_span(e, text + at, from - at));
        put(e, id);
        at = to;
    }
    return encode_span(e, text + at, len - at);
}

int tokenizer_encode(const tokenizer *t, const char *text, size_t len, int flags, int32_t *ids, int cap, int *n,
                     kvant_diag *diag)
{
    encoder e = { .t = t, .ids = ids, .cap = cap, .diag = diag };

    if (cap < 0 || (cap > 0 && !ids) || (len > 0 && !text))
        return kvant_fail(diag, KVANT_EINVAL, "kvant_tokenize: no buffer");
    if (len > INT_MAX / 2) /* ids are counted in int; NFC may lengthen the text */
        return kvant_fail(diag, KVANT_EINVAL, "text: %zu bytes, want at most %d", len, INT_MAX / 2);
    int err = encode_text(&e, text, len, flags);
    pretok_scan_close(e.scan);
    bpe_work_free(&e.work);
    pretok_buf_free(&e.nfc);
    kvant_free(e.piece);
    if (err < 0)
        return err;
    if (e.n > INT_MAX)
        return kvant_fail(diag, KVANT_EINVAL, "text: %lld tokens, want at most %d", (long long)e.n, INT_MAX);
    *n = (int)e.n;
    if (e.n > cap)
        return kvant_fail(diag, KVANT_ENOSPC, "text: %d tokens, room for %d", *n, cap);
    return KVANT_OK;
}

/* ---- the vocabulary ---- */

int tokenizer_count(const tokenizer *t)
{
    return (int)t->v.n;
}

int tokenizer_bytes(const tokenizer *t, int32_t id, int special, char *buf, int cap)
{
    if (id < 0 || (uint32_t)id >= t->v.n || cap < 0)
        return KVANT_EINVAL;
    return vocab_bytes(&t->v, id, special, buf, cap);
}

int tokenizer_is_eog(const tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->v.n && t->v.tokens[id].eog;
}

int32_t tokenizer_bos(const tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t)
{
    return t->eos;
}

int tokenizer_add_bos(const tokenizer *t)
{
    return t->add_bos;
}

int32_t tokenizer_next_control(const tokenizer *t, const char *text, size_t len, size_t *from, size_t *to)
{
    int32_t id;

    for (*to = 0; (id = vocab_next_special(&t->v, text, len, *to, 1, from, to)) >= 0;)
        if (vocab_is_control(&t->v, id))
            return id;
    return -1;
}

int32_t tokenizer_find(const tokenizer *t, const char *text, size_t len)
{
    return vocab_find(&t->v, text, len);
}
