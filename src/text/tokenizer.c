/* tokenizer.c: text -> ids.  Owns the order of the steps; each step has its own file.
 *
 * Byte-level vocabularies:
 *   1. special tokens are cut out of the raw text (added/added.h): user-defined ones always; control and unknown ones,
 *      and the marks of the chat's format, with KVANT_TOK_SPECIAL or from a template's own text.
 *   2. between them the text is changed as the file says (normal/normal.h), and cut at the tokens that are looked for
 *      there; between these, bytes that are not UTF-8 become their byte tokens, one each, and pieces end there: every
 *      valid run is tokenised as a text of its own.
 *   3. a valid run is normalised to NFC where its pre-tokenizer asks for it, then cut into pieces (pretok.c).
 *   4. a piece becomes byte tokens, merged by rank (tokenizer_bpe.c); with ignore_merges a piece that is a normal token
 *      is that token.
 * Vocabularies of characters: 1 and 2 with U+2581 for each space and one before each span where the file asks for it;
 * words of characters, merged by rank or score; what is no token then becomes byte tokens.
 * Unigram vocabularies: 1; each span is normalised by the file's own map; then 2, and the cut whose scores add up to
 * most.
 * No recursion; memory: about 24 bytes per byte of the longest piece, plus 4 per code point where NFC has work. */
#include "text/tokenizer.h"

#include <limits.h>
#include <string.h>
#include "base/thread/guard.h"
#include "base/mem.h"
#include "kvant/engine.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

/* ---- encoding ---- */

typedef struct encoder {
    const tokenizer *t;
    int32_t *ids;
    int cap;
    int64_t n; /* tokens so far, also beyond cap */
    pretok_scan *scan;
    bpe_work work;
    unigram_work best;
    pretok_buf nfc;
    char *piece;  /* a piece in the byte alphabet, v.longest + 2 bytes */
    char *spaces; /* a span with U+2581 for its spaces, or one more before it */
    normal_work changed;
    size_t cap_spaces;
    int64_t unk_at; /* n after an unknown character: a run of them is one token */
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
    if (e->t->ignore_merges) {
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

/* A symbol that is no token: a character's bytes, or the unknown token where these have none. */
static int put_char(encoder *e, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (e->t->v.byte_id[(uint8_t)s[i]] < 0 && e->t->unk >= 0) {
            if (e->unk_at != e->n || !e->t->fuse_unk)
                put(e, e->t->unk);
            e->unk_at = e->n;
            return KVANT_OK;
        }
    for (size_t i = 0; i < n; i++)
        KVANT_TRY(put_byte(e, (uint8_t)s[i]));
    return KVANT_OK;
}

static int put_symbols(encoder *e, const char *s, size_t n_symbols)
{
    const vocab *v = &e->t->v;
    uint32_t code;

    for (size_t i = 0; i < n_symbols; i++) {
        const uint32_t id = e->work.id[i];
        const size_t n = id < v->n ? v->tokens[id].len : (size_t)utf8_decode((const uint8_t *)s, 4, &code);
        if (id < v->n)
            put(e, (int32_t)id);
        else
            KVANT_TRY(put_char(e, s, n));
        s += n;
    }
    return KVANT_OK;
}

/* The pieces whose scores add up to most. */
static int encode_best(encoder *e, const char *s, size_t n)
{
    if (unigram_cut(&e->t->u, &e->best, s, n) < 0)
        return kvant_fail(e->diag, KVANT_ENOMEM, "text: no memory to cut a piece of %zu bytes", n);
    for (size_t at = 0, end; at < n; at = end) {
        end = e->best.from[at];
        if (e->best.id[end] >= 0)
            put(e, e->best.id[end]);
        else
            KVANT_TRY(put_char(e, s + at, end - at));
    }
    return KVANT_OK;
}

/* Characters as symbols, merged. */
static int encode_word(encoder *e, const char *s, size_t n)
{
    size_t count = 0, left;
    uint32_t code;

    if (bpe_reserve(&e->work, n) < 0)
        return kvant_fail(e->diag, KVANT_ENOMEM, "text: no memory to merge a piece of %zu bytes", n);
    for (size_t i = 0; i < n; count++) {
        const size_t k = (size_t)utf8_decode((const uint8_t *)s + i, n - i, &code);
        e->work.id[count] = spm_symbol(&e->t->s, &e->t->v, s + i, k);
        i += k;
    }
    if (bpe_merge_ids(&e->t->b, &e->work, count, &left) < 0)
        return kvant_fail(e->diag, KVANT_ENOMEM, "text: no memory to merge a piece of %zu bytes", n);
    return put_symbols(e, s, left);
}

/* The thread's work is over: nobody wants the rest. */
static int check_over(const encoder *e)
{
    return guard_over() ? kvant_fail(e->diag, KVANT_ENOMEM, "text: given up") : KVANT_OK;
}

static int encode_words(encoder *e, const char *s, size_t len)
{
    for (size_t at = 0, end; at < len; at = end) {
        KVANT_TRY(check_over(e));
        end = spm_word(&e->t->s, s, len, at);
        if (e->t->s.cut_each && len - at >= 3 && memcmp(s + at, SPM_SPACE, 3) == 0)
            e->unk_at = -1; /* a run of unknown characters ends with its word */
        KVANT_TRY((e->t->is_unigram ? encode_best : encode_word)(e, s + at, end - at));
    }
    return KVANT_OK;
}

/* Does one more space come before the span?  begins: it is the first of the text. */
static int wants_space(const encoder *e, const char *s, size_t len, int begins)
{
    const int has = len > 0 && (s[0] == ' ' || (e->t->v.raw && len >= 3 && memcmp(s, SPM_SPACE, 3) == 0));

    switch (e->t->spaces) {
    case SPACES_PREPEND: return 1;
    case SPACES_ALWAYS: return !has;
    case SPACES_FIRST: return begins && !has;
    case SPACES_BEGIN: return begins;
    default: return 0;
    }
}

/* s[*len] with the vocabulary's spaces, at most 3 bytes for each; unigram: normalised. */
static int change_spaces(encoder *e, const char **s, size_t *len, int begins)
{
    const int prefix = wants_space(e, *s, *len, begins);

    if (e->t->is_unigram || e->t->u.map.n_units || e->t->u.squeeze) {
        KVANT_TRY(unigram_normalise(&e->t->u, *s, *len, prefix, &e->nfc, e->diag));
        *len = e->nfc.len;
        *s = (const char *)e->nfc.data;
        return KVANT_OK;
    }
    if (3 * (*len + 1) > e->cap_spaces) {
        kvant_free(e->spaces);
        e->cap_spaces = 3 * (*len + 1);
        e->spaces = kvant_alloc(e->cap_spaces);
        if (!e->spaces)
            return kvant_fail(e->diag, KVANT_ENOMEM, "text: out of memory");
    }
    if (e->t->v.raw) {
        *len = spm_spaces(*s, *len, prefix, e->spaces);
    } else {
        e->spaces[0] = ' ';
        memcpy(e->spaces + prefix, *s, *len);
        *len += (size_t)prefix;
    }
    *s = e->spaces;
    return KVANT_OK;
}

static int encode_valid(encoder *e, const char *s, size_t len)
{
    if (e->t->v.raw)
        return encode_words(e, s, len);
    KVANT_TRY(scan_open(e));
    if (e->t->nfc)
        KVANT_TRY(pretok_to_nfc(&e->nfc, s, len, &s, &len, e->diag));
    pretok_scan_limits(e->scan, len);
    for (size_t at = 0, end; at < len; at = end) {
        KVANT_TRY(check_over(e));
        KVANT_TRY(pretok_next(e->scan, s, len, at, &end, e->diag));
        KVANT_TRY(encode_piece(e, (const uint8_t *)s + at, end - at));
    }
    return KVANT_OK;
}

/* A span without tokens that are looked for.  begins: the text begins with it. */
static int encode_span(encoder *e, const char *s, size_t len, int begins)
{
    size_t at = 0;

    e->unk_at = -1;
    if (len == 0)
        return KVANT_OK;
    if (e->t->v.raw || e->t->spaces != SPACES_REPLACE)
        KVANT_TRY(change_spaces(e, &s, &len, begins));
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

/* Encodes the raw text between two tokens: changed, then cut at the tokens that are looked for there. */
static int encode_part(encoder *e, added_text part, int begins)
{
    const added_trie *trie = &e->t->v.special[ADDED_AFTER];
    added_scan scan = { 0 };
    size_t at = 0;

    if (part.n == 0)
        return KVANT_OK;
    if (e->t->change.n) {
        KVANT_TRY(normal_apply(&e->t->change, &e->changed, &part.s, &part.n, e->diag));
        part.control = part.control && !part.origin;
        begins = begins && !e->changed.cut;
        part.origin = NULL; /* of the raw text: its marks were found there */
    }
    while (trie->n && added_next(trie, &e->t->v, &part, &scan)) {
        if (at < scan.from)
            KVANT_TRY(encode_span(e, part.s + at, scan.from - at, begins && at == 0));
        put(e, scan.id);
        at = scan.to;
    }
    return encode_span(e, part.s + at, part.n - at, begins && at == 0);
}

static added_text part_of(const added_text *t, size_t from, size_t to)
{
    return (added_text){ t->s + from, to - from, t->origin ? t->origin + from : NULL, t->control };
}

static int encode_text(encoder *e, const added_text *text)
{
    const added_trie *trie = &e->t->v.special[text->origin ? ADDED_MARKED : ADDED_RAW];
    added_scan scan = { 0 };
    size_t at = 0;

    while (added_next(trie, &e->t->v, text, &scan)) {
        if (at < scan.from)
            KVANT_TRY(encode_part(e, part_of(text, at, scan.from), at == 0));
        put(e, scan.id);
        at = scan.to;
    }
    return encode_part(e, part_of(text, at, text->n), at == 0);
}

static int encode(const tokenizer *t, const added_text *text, int bos, int32_t *ids, int cap, int *n, kvant_diag *diag)
{
    encoder e = { .t = t, .ids = ids, .cap = cap, .unk_at = -1, .diag = diag };

    if (cap < 0 || (cap > 0 && !ids) || (text->n > 0 && !text->s))
        return kvant_fail(diag, KVANT_EINVAL, "kvant_tokenize: no buffer");
    if (text->n > INT_MAX / 2) /* ids are counted in int; NFC may lengthen the text */
        return kvant_fail(diag, KVANT_EINVAL, "text: %zu bytes, want at most %d", text->n, INT_MAX / 2);
    for (int i = 0; bos && i < t->n_prefix; i++)
        put(&e, t->prefix[i]);
    if (bos && !t->n_prefix)
        put(&e, t->bos);
    int err = encode_text(&e, text);
    pretok_scan_close(e.scan);
    bpe_work_free(&e.work);
    unigram_work_free(&e.best);
    pretok_buf_free(&e.nfc);
    normal_work_free(&e.changed);
    kvant_free(e.piece);
    kvant_free(e.spaces);
    if (err < 0)
        return err;
    if (e.n > INT_MAX)
        return kvant_fail(diag, KVANT_EINVAL, "text: %lld tokens, want at most %d", (long long)e.n, INT_MAX);
    *n = (int)e.n;
    if (e.n > cap)
        return kvant_fail(diag, KVANT_ENOSPC, "text: %d tokens, room for %d", *n, cap);
    return KVANT_OK;
}

int tokenizer_encode(const tokenizer *t, const char *text, size_t len, int flags, int32_t *ids, int cap, int *n,
                     kvant_diag *diag)
{
    const added_text all = { text, len, NULL, (flags & KVANT_TOK_SPECIAL) != 0 };

    return encode(t, &all, (flags & KVANT_TOK_BOS) && (t->add_bos || t->n_prefix), ids, cap, n, diag);
}

size_t tokenizer_leading_bos(const tokenizer *t, const char *text, size_t len, const uint8_t *origin)
{
    const added_text all = { text, len, origin, 0 };
    added_scan scan = { 0 };
    const int found = added_next(&t->v.special[ADDED_MARKED], &t->v, &all, &scan);

    return found && scan.id == t->bos && scan.from == 0 ? scan.to : 0;
}

int tokenizer_encode_marked(const tokenizer *t, const char *text, size_t len, const uint8_t *origin, int32_t *ids,
                            int cap, int *n, kvant_diag *diag)
{
    const added_text all = { text, len, origin, 0 };
    const int bos = t->add_bos && !tokenizer_leading_bos(t, text, len, origin);

    return encode(t, &all, bos, ids, cap, n, diag);
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

int tokenizer_add_eos(const tokenizer *t)
{
    return t->add_eos;
}
