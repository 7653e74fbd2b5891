/* grammar_vocab.c: makes the sorted vocabulary of a model.  Owns its copy of the tokens' bytes. */
#include "server/grammar/grammar_vocab.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"

void grammar_vocab_free(grammar_vocab *v)
{
    if (!v)
        return;
    kvant_free(v->ids);
    kvant_free(v->eog);
    kvant_free(v->at);
    kvant_free(v->off);
    kvant_free(v->len);
    kvant_free(v->common);
    kvant_free(v->bytes);
    kvant_free(v);
}

const char *grammar_vocab_text(const grammar_vocab *v, int32_t token, size_t *n)
{
    const int i = token >= 0 && token < v->n ? v->at[token] : -1;

    *n = i < 0 ? 0 : (size_t)v->len[i];
    return i < 0 ? "" : (const char *)v->bytes + v->off[i];
}

typedef struct token_text {
    const unsigned char *s;
    int n;
    int32_t id;
} token_text;

static int compare(const void *a, const void *b)
{
    const token_text *x = a, *y = b;
    int n = x->n < y->n ? x->n : y->n, c = memcmp(x->s, y->s, (size_t)n);

    return c ? c : x->n != y->n ? x->n - y->n : x->id < y->id ? -1 : x->id > y->id;
}

static int common_length(const token_text *a, const token_text *b)
{
    int n = a->n < b->n ? a->n : b->n, i = 0;

    while (i < n && a->s[i] == b->s[i])
        i++;
    return i;
}

static void place(grammar_vocab *v, const token_text *t, int n)
{
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        v->ids[i] = t[i].id;
        v->at[t[i].id] = i;
        v->off[i] = at;
        v->len[i] = t[i].n;
        v->common[i] = i ? common_length(&t[i - 1], &t[i]) : 0;
        memcpy(v->bytes + at, t[i].s, (size_t)t[i].n);
        at += (size_t)t[i].n;
    }
    v->n_sorted = n;
    v->walk = n + (int64_t)at;
}

/* Room for n tokens of so many bytes in all; NULL: no memory. */
static grammar_vocab *vocab_new(int n, size_t bytes)
{
    grammar_vocab *v = kvant_calloc(1, sizeof *v);

    if (!v)
        return NULL;
    *v = (grammar_vocab){ .n = n,
                          .ids = kvant_calloc((size_t)n + 1, sizeof(int32_t)),
                          .eog = kvant_calloc((size_t)n + 1, sizeof(int32_t)),
                          .at = kvant_calloc((size_t)n + 1, sizeof(int32_t)),
                          .off = kvant_calloc((size_t)n + 1, sizeof(size_t)),
                          .len = kvant_calloc((size_t)n + 1, sizeof(int)),
                          .common = kvant_calloc((size_t)n + 1, sizeof(int)),
                          .bytes = kvant_alloc(bytes) };
    if (v->ids && v->eog && v->at && v->off && v->len && v->common && v->bytes)
        return v;
    grammar_vocab_free(v);
    return NULL;
}

int grammar_vocab_from_list(const char *const *text, const int *len, const unsigned char *eog, int n,
                            grammar_vocab **out, kvant_diag *diag)
{
    token_text *t = kvant_calloc((size_t)n + 1, sizeof *t);
    size_t total = 1;
    int k = 0;

    for (int i = 0; i < n && t; i++)
        if (len[i] > 0 && len[i] <= GRAMMAR_MAX_TOKEN && !eog[i]) {
            t[k++] = (token_text){ (const unsigned char *)text[i], len[i], i };
            total += (size_t)len[i];
        }
    grammar_vocab *v = t ? vocab_new(n, total) : NULL;
    if (!v) {
        kvant_free(t);
        return kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory for a vocabulary of %d tokens", n);
    }
    memset(v->at, 0xFF, (size_t)n * sizeof *v->at);
    for (int i = 0; i < n; i++)
        if (eog[i])
            v->eog[v->n_eog++] = i;
    qsort(t, (size_t)k, sizeof *t, compare);
    place(v, t, k);
    kvant_free(t);
    *out = v;
    return KVANT_OK;
}

/* The model's token bytes, copied one behind the other. */
typedef struct token_list {
    char *pool;
    const char **text;
    int *len;
    unsigned char *eog;
} token_list;

static int read_tokens(const kvant_model *m, const unsigned char *shown, int n, token_list *l)
{
    size_t total = 0;

    for (int i = 0; i < n; i++) {
        int k = kvant_token_bytes(m, i, shown && shown[i], NULL, 0);
        l->len[i] = k > 0 && k <= GRAMMAR_MAX_TOKEN ? k : 0;
        l->eog[i] = (unsigned char)(kvant_token_is_eog(m, i) != 0);
        total += (size_t)l->len[i];
    }
    l->pool = kvant_alloc(total + 1);
    if (!l->pool)
        return 0;
    total = 0;
    for (int i = 0; i < n; i++) {
        l->text[i] = l->pool + total;
        if (l->len[i])
            kvant_token_bytes(m, i, shown && shown[i], l->pool + total, l->len[i]);
        total += (size_t)l->len[i];
    }
    return 1;
}

int grammar_vocab_create(const kvant_model *m, const unsigned char *shown, grammar_vocab **out, kvant_diag *diag)
{
    int n = kvant_model_get_info(m)->n_vocab, code;
    token_list l = { .text = kvant_calloc((size_t)n, sizeof *l.text),
                     .len = kvant_calloc((size_t)n, sizeof *l.len),
                     .eog = kvant_calloc((size_t)n, 1) };

    if (l.text && l.len && l.eog && read_tokens(m, shown, n, &l))
        code = grammar_vocab_from_list(l.text, l.len, l.eog, n, out, diag);
    else
        code = kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory for a vocabulary of %d tokens", n);
    kvant_free(l.pool);
    kvant_free(l.text);
    kvant_free(l.len);
    kvant_free(l.eog);
    return code;
}
