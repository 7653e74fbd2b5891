/* tokenizer_spm.c: see tokenizer_spm.h.  Owns the list of merges that a vocabulary with scores stands for.
 *
 * SentencePiece merges two neighbours when their joint text is a token, the best score first.  That is byte-pair
 * merging with one merge for every way to cut a token into two symbols: so one implementation serves both. */
#include "text/tokenizer_spm.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "text/scores/token_scores.h"
#include "text/utf8.h"

enum {
    MAX_SPM_TEXT = 256,       /* every cut of a token is looked up: bounds the time that a hostile file can ask for */
    MAX_SPM_MERGES = 1 << 24, /* as tokenizer.c's MAX_MERGES */
    N_CODES = 0x110000,
};

/* A merge with what it is sorted by. */
typedef struct candidate {
    float score;
    bpe_merge m;
} candidate;

typedef struct candidates {
    candidate *at;
    size_t n, cap;
} candidates;

/* ---- characters ---- */

/* -1: not a normal token. */
static int32_t normal_token(const vocab *v, const char *s, size_t n)
{
    const int32_t id = vocab_find(v, s, n);

    return id >= 0 && v->tokens[id].kind == VOCAB_NORMAL ? id : -1;
}

static int by_code(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

uint32_t spm_symbol(const spm *s, const vocab *v, const char *c, size_t len)
{
    uint32_t code = 0;
    const int32_t id = vocab_find(v, c, len);

    if (id >= 0 &&
        (v->tokens[id].kind == VOCAB_NORMAL || (v->tokens[id].flags & ADDED_SYMBOL && !vocab_is_format(v, id))))
        return (uint32_t)id;
    utf8_decode((const uint8_t *)c, len, &code);
    const uint32_t *found = s->n_chars ? bsearch(&code, s->chars, s->n_chars, sizeof *s->chars, by_code) : NULL;
    return v->n + (found ? (uint32_t)(found - s->chars) : s->n_chars);
}

/* Does the token take part in merges: normal, valid text? */
static int can_merge(const vocab *v, uint32_t id)
{
    const vocab_token *t = &v->tokens[id];

    return t->kind == VOCAB_NORMAL && !t->twin && utf8_valid_prefix((const uint8_t *)v->text + t->at, t->len) == t->len;
}

static int char_len(const char *s, size_t n)
{
    uint32_t code;

    return utf8_decode((const uint8_t *)s, n, &code);
}

static void mark_chars(const vocab *v, uint32_t id, uint8_t *used)
{
    const char *s = v->text + v->tokens[id].at;
    const size_t n = v->tokens[id].len;
    uint32_t code = 0;

    for (size_t i = 0; i < n;) {
        const int k = utf8_decode((const uint8_t *)s + i, n - i, &code);
        if (normal_token(v, s + i, (size_t)k) < 0)
            used[code] = 1;
        i += (size_t)k;
    }
}

static int list_chars(spm *s, const vocab *v, kvant_diag *diag)
{
    uint8_t *used = kvant_calloc(N_CODES, 1);
    uint32_t n = 0;

    if (used)
        for (uint32_t id = 0; id < v->n; id++)
            if (can_merge(v, id))
                mark_chars(v, id, used);
    for (uint32_t c = 0; used && c < N_CODES; c++)
        n += used[c];
    s->chars = kvant_alloc(((size_t)n + 1) * sizeof *s->chars);
    for (uint32_t c = 0; used && s->chars && c < N_CODES; c++)
        if (used[c])
            s->chars[s->n_chars++] = c;
    const int err = used && s->chars ? KVANT_OK
                                     : kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.tokens: out of memory");
    kvant_free(used);
    return err;
}

/* ---- merges ---- */

/* A symbol's text of one character or more; v->n + n_chars when it is none. */
static uint32_t part_symbol(const spm *s, const vocab *v, const char *text, size_t n)
{
    if (char_len(text, n) == (int)n)
        return spm_symbol(s, v, text, n);
    const int32_t id = normal_token(v, text, n);
    return id >= 0 ? (uint32_t)id : v->n + s->n_chars;
}

static int add_candidate(candidates *c, float score, bpe_merge m)
{
    if (c->n == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : 4096;
        candidate *p = kvant_realloc(c->at, c->n * sizeof *p, cap * sizeof *p);
        if (!p)
            return KVANT_ENOMEM;
        c->at = p;
        c->cap = cap;
    }
    c->at[c->n++] = (candidate){ score, m };
    return KVANT_OK;
}

/* Every way to cut token id in two. */
static int cut_token(const spm *s, const vocab *v, uint32_t id, float score, candidates *c)
{
    const char *text = v->text + v->tokens[id].at;
    const size_t n = v->tokens[id].len;
    const uint32_t none = v->n + s->n_chars;

    for (size_t i = (size_t)char_len(text, n); i < n; i += (size_t)char_len(text + i, n - i)) {
        const uint32_t left = part_symbol(s, v, text, i);
        const uint32_t right = left == none ? none : part_symbol(s, v, text + i, n - i);
        if (right != none)
            KVANT_TRY(add_candidate(c, score, (bpe_merge){ left, right, id }));
    }
    return KVANT_OK;
}

static int list_merges(const spm *s, const vocab *v, const float *scores, candidates *c, kvant_diag *diag)
{
    for (uint32_t id = 0; id < v->n; id++) {
        if (!can_merge(v, id))
            continue;
        if (v->tokens[id].len > MAX_SPM_TEXT)
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.tokens[%u]: %u bytes, want at most %d with scores",
                              id, v->tokens[id].len, MAX_SPM_TEXT);
        if (cut_token(s, v, id, scores[id], c) < 0)
            return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.scores: out of memory");
        if (c->n > MAX_SPM_MERGES)
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.tokens: more than %d ways to merge two tokens",
                              MAX_SPM_MERGES);
    }
    return KVANT_OK;
}

static int best_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->m.merged != y->m.merged)
        return x->m.merged < y->m.merged ? -1 : 1;
    return x->m.left < y->m.left ? -1 : x->m.left > y->m.left;
}

static int take_merges(bpe *b, vocab *v, const candidates *c, kvant_diag *diag)
{
    uint32_t first = 0, rank;

    KVANT_TRY(bpe_init(b, (uint32_t)c->n, diag));
    b->order = kvant_alloc((c->n + 1) * sizeof *b->order);
    if (!b->order)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.scores: out of memory");
    for (uint32_t i = 0; i < (uint32_t)c->n; i++) {
        const bpe_merge *m = &c->at[i].m;
        if (c->at[i].score != c->at[first].score)
            first = i;
        b->order[i] = first;
        v->tokens[m->merged].made = 1;
        if (bpe_add(b, m->left, m->right, m->merged, &rank) < 0)
            return kvant_fail(diag, KVANT_EFORMAT,
                              "tokenizer.ggml.tokens[%u]: its merges collide with others beyond chance", m->merged);
    }
    return KVANT_OK;
}

int spm_merges(spm *s, bpe *b, vocab *v, const gguf *g, kvant_diag *diag)
{
    float *scores = NULL;
    candidates c = { 0 };

    KVANT_TRY(scores_read(g, v->n, 0, &scores, diag));
    int err = list_chars(s, v, diag);
    if (err == 0)
        err = list_merges(s, v, scores, &c, diag);
    if (err == 0 && c.n)
        qsort(c.at, c.n, sizeof *c.at, best_first);
    if (err == 0)
        err = take_merges(b, v, &c, diag);
    kvant_free(c.at);
    kvant_free(scores);
    return err < 0 ? err : bpe_finish(b, v->n + s->n_chars + 1, diag);
}

void spm_free(spm *s)
{
    kvant_free(s->chars);
    memset(s, 0, sizeof *s);
}

/* ---- texts ---- */

static int is_space(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, SPM_SPACE, 3) == 0;
}

/* May the text be cut before s[i], i > 0, as far as spaces (lines) go? */
static int space_begins(const char *s, size_t n, size_t i)
{
    return is_space(s + i, n - i) && !(i >= 3 && is_space(s + i - 3, 3));
}

static int line_changes(const char *s, size_t i)
{
    return (s[i] == '\n') != (s[i - 1] == '\n');
}

void spm_find_cuts(spm *s, const vocab *v)
{
    s->cut_spaces = s->cut_lines = 1;
    for (uint32_t id = 0; id < v->n; id++) {
        const char *text = v->text + v->tokens[id].at;
        if (v->tokens[id].kind != VOCAB_NORMAL)
            continue;
        for (size_t i = 1; i < v->tokens[id].len; i++) {
            s->cut_spaces = s->cut_spaces && !space_begins(text, v->tokens[id].len, i);
            s->cut_lines = s->cut_lines && !line_changes(text, i);
        }
    }
}

size_t spm_word(const spm *s, const char *text, size_t len, size_t at)
{
    size_t i = at + 1;

    while (i < len && !(s->cut_lines && line_changes(text, i)) && !(s->cut_each && is_space(text + i, len - i)) &&
           !(s->cut_spaces && space_begins(text + at, len - at, i - at)))
        i++;
    return i;
}

size_t spm_spaces(const char *text, size_t len, int prefix, char *out)
{
    size_t n = 0;

    if (prefix && len) {
        memcpy(out, SPM_SPACE, 3);
        n = 3;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ' ') {
            memcpy(out + n, SPM_SPACE, 3);
            n += 3;
        } else {
            out[n++] = text[i];
        }
    }
    return n;
}
