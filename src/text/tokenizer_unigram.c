/* tokenizer_unigram.c: see tokenizer_unigram.h.  Owns the trie of the pieces, the normalisation of a span and the
 * search for the best cut.
 *
 * As SentencePiece has it: a text's pieces are those whose scores (logarithms of probabilities) add up to most; a
 * character that is no piece costs 10 more than the worst one.  Sums are doubles: the package's floats lose the last
 * digits of long texts, and with them who wins by a hair. */
#include "text/tokenizer_unigram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "text/scores/token_scores.h"
#include "text/tokenizer_spm.h"
#include "text/utf8.h"

enum {
    MAX_PIECE = 256,     /* a place of a text is looked at once for each byte of a token */
    MAX_NODES = 1 << 25, /* 400 MB; vocabularies in use have a million */
    MAX_TEXT_OUT = 1 << 30,
    UNKNOWN_COSTS = 10, /* SentencePiece's kUnkPenalty */
};

/* ---- opening ---- */

int unigram_read(unigram *u, const vocab *v, const gguf *g, kvant_diag *diag)
{
    KVANT_TRY(scores_read(g, v->n, 1, &u->scores, diag));
    for (uint32_t i = 0; i < v->n; i++)
        if (!isfinite(u->scores[i]))
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.scores[%u]: not finite, want a number", i);
    return charsmap_read(&u->map, g, diag);
}

static int add_node(unigram *u, unigram_node node)
{
    if (u->n_nodes == u->cap_nodes) {
        const uint32_t cap = u->cap_nodes ? 2 * u->cap_nodes : 1024;
        unigram_node *p = cap <= MAX_NODES ? kvant_realloc(u->nodes, u->n_nodes * sizeof *p, cap * sizeof *p) : NULL;
        if (!p)
            return KVANT_ENOMEM;
        u->nodes = p;
        u->cap_nodes = cap;
    }
    u->nodes[u->n_nodes++] = node;
    return KVANT_OK;
}

/* A piece for sorting: a token's text and its id. */
typedef struct piece {
    const char *s;
    uint32_t len, id;
} piece;

static int by_text(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    const int c = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);

    return c ? c : x->len < y->len ? -1 : x->len > y->len;
}

/* Node i stands for the pieces [first, id) of the sorted list, which share `depth` bytes: gives it its token and its
 * children, which stand for their parts of it. */
static int split_node(unigram *u, uint32_t i, const piece *p, uint32_t depth)
{
    uint32_t at = u->nodes[i].first;
    const uint32_t end = (uint32_t)u->nodes[i].id;

    u->nodes[i].id = at < end && p[at].len == depth ? (int32_t)p[at++].id : -1;
    u->nodes[i].first = u->n_nodes;
    for (uint32_t to = at; at < end; at = to) {
        const uint8_t byte = (uint8_t)p[at].s[depth];
        while (to < end && (uint8_t)p[to].s[depth] == byte)
            to++;
        KVANT_TRY(add_node(u, (unigram_node){ at, (int32_t)to, 0, byte }));
        u->nodes[i].n++;
    }
    return KVANT_OK;
}

/* Breadth first, so that siblings lie side by side. */
static int fill_trie(unigram *u, const piece *p, uint32_t n)
{
    KVANT_TRY(add_node(u, (unigram_node){ 0, (int32_t)n, 0, 0 }));
    for (uint32_t i = 0, depth = 0; i < u->n_nodes; depth++)
        for (const uint32_t level = u->n_nodes; i < level; i++)
            KVANT_TRY(split_node(u, i, p, depth));
    return KVANT_OK;
}

int unigram_finish(unigram *u, const vocab *v, kvant_diag *diag)
{
    piece *p = kvant_alloc(v->n * sizeof *p);
    uint32_t n = 0;
    double worst = 0;
    int err = p ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.tokens: out of memory");

    for (uint32_t id = 0; p && id < v->n; id++) {
        const vocab_token *t = &v->tokens[id];
        if (t->kind != VOCAB_NORMAL || t->twin)
            continue;
        if (t->len > MAX_PIECE && err == KVANT_OK)
            err = kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.tokens[%u]: %u bytes, want at most %d with scores",
                             id, t->len, MAX_PIECE);
        worst = n == 0 || (double)u->scores[id] < worst ? (double)u->scores[id] : worst;
        p[n++] = (piece){ v->text + t->at, t->len, id };
    }
    u->unknown = worst - UNKNOWN_COSTS;
    if (n)
        qsort(p, n, sizeof *p, by_text);
    if (err == KVANT_OK && fill_trie(u, p, n) < 0)
        err = kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.tokens: no memory for their tree, or more than %d nodes",
                         MAX_NODES);
    kvant_free(p);
    return err;
}

void unigram_free(unigram *u)
{
    kvant_free(u->scores);
    kvant_free(u->nodes);
    kvant_free(u->map.units);
    kvant_free(u->map.texts);
    memset(u, 0, sizeof *u);
}

/* ---- normalisation ---- */

static int reserve(pretok_buf *b, size_t more, kvant_diag *diag)
{
    if (b->len + more <= b->cap)
        return KVANT_OK;
    if (b->len + more > MAX_TEXT_OUT)
        return kvant_fail(diag, KVANT_EINVAL, "text: normalised it has more than %d bytes", MAX_TEXT_OUT);
    const size_t cap = b->len + more + b->cap;
    uint8_t *p = kvant_realloc(b->data, b->len, cap);
    if (!p)
        return kvant_fail(diag, KVANT_ENOMEM, "text: out of memory");
    b->data = p;
    b->cap = cap;
    return KVANT_OK;
}

static void put(pretok_buf *b, const char *s, size_t n)
{
    memcpy(b->data + b->len, s, n);
    b->len += n;
}

/* s[n], at most CHARSMAP_MAX_TEXT bytes, with U+2581 for its spaces; *after: a space came last, and none is wanted at
 * the beginning of what follows. */
static void put_part(const unigram *u, const char *s, size_t n, int *after, pretok_buf *b)
{
    for (; *after && n && *s == ' '; n--)
        s++;
    if (n)
        *after = u->squeeze && s[n - 1] == ' ';
    for (size_t i = 0; i < n; i++)
        if (s[i] == ' ')
            put(b, SPM_SPACE, 3);
        else
            put(b, s + i, 1);
}

int unigram_normalise(const unigram *u, const char *text, size_t len, int prefix, pretok_buf *out, kvant_diag *diag)
{
    int after = u->squeeze;
    uint32_t code;

    out->len = 0;
    KVANT_TRY(reserve(out, 3, diag));
    if (prefix && len)
        put(out, SPM_SPACE, 3);
    for (size_t i = 0; i < len;) {
        const char *s = text + i;
        size_t n, k = charsmap_find(&u->map, s, len - i, &s);
        KVANT_TRY(reserve(out, 3 * CHARSMAP_MAX_TEXT, diag));
        if (k) {
            n = strlen(s);
        } else {
            const int chars = utf8_decode((const uint8_t *)s, len - i, &code);
            n = k = chars > 0 ? (size_t)chars : 1;
        }
        put_part(u, s, n, &after, out);
        i += k;
    }
    while (u->squeeze && out->len >= 3 && memcmp(out->data + out->len - 3, SPM_SPACE, 3) == 0)
        out->len -= 3;
    return KVANT_OK;
}

/* ---- the best cut ---- */

void unigram_work_free(unigram_work *w)
{
    kvant_free(w->sum);
    kvant_free(w->from);
    kvant_free(w->id);
    memset(w, 0, sizeof *w);
}

static int work_reserve(unigram_work *w, size_t n)
{
    if (n < w->cap)
        return KVANT_OK;
    const size_t cap = n + n / 2 + 64;
    unigram_work_free(w);
    w->sum = kvant_alloc(cap * sizeof *w->sum);
    w->from = kvant_alloc(cap * sizeof *w->from);
    w->id = kvant_alloc(cap * sizeof *w->id);
    if (!w->sum || !w->from || !w->id)
        return KVANT_ENOMEM;
    w->cap = cap;
    return KVANT_OK;
}

/* 0: none. */
static uint32_t child(const unigram *u, uint32_t node, uint8_t byte)
{
    uint32_t lo = u->nodes[node].first, hi = lo + u->nodes[node].n;
    const uint32_t end = hi;

    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (u->nodes[mid].byte < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < end && u->nodes[lo].byte == byte ? lo : 0;
}

static void offer(unigram_work *w, size_t from, size_t to, double sum, int32_t id)
{
    if (!(sum > w->sum[to]))
        return;
    w->sum[to] = sum;
    w->from[to] = (uint32_t)from;
    w->id[to] = id;
}

/* All pieces that begin at s[i], whose character has k bytes. */
static void offer_pieces(const unigram *u, unigram_work *w, const char *s, size_t n, size_t i, size_t k)
{
    int single = 0;
    uint32_t node = 0;

    for (size_t j = i; j < n && (node = child(u, node, (uint8_t)s[j])) != 0;) {
        const int32_t id = u->nodes[node].id;
        j++;
        if (id < 0)
            continue;
        offer(w, i, j, w->sum[i] + (double)u->scores[id], id);
        single |= j == i + k;
    }
    if (!single)
        offer(w, i, i + k, w->sum[i] + u->unknown, -1);
}

int unigram_cut(const unigram *u, unigram_work *w, const char *s, size_t n)
{
    uint32_t code;

    if (work_reserve(w, n) < 0)
        return KVANT_ENOMEM;
    for (size_t i = 1; i <= n; i++)
        w->sum[i] = -INFINITY;
    w->sum[0] = 0;
    for (size_t i = 0, k; i < n; i += k) {
        k = (size_t)utf8_decode((const uint8_t *)s + i, n - i, &code);
        offer_pieces(u, w, s, n, i, k);
    }
    uint32_t next = (uint32_t)n;
    for (uint32_t at = (uint32_t)n; at > 0;) { /* turned around: where the piece after ends */
        const uint32_t before = w->from[at];
        w->from[at] = next;
        next = at;
        at = before;
    }
    w->from[0] = next;
    return KVANT_OK;
}
