/* grammar_match.c: generations under a grammar: which tokens may come next, and the token that came.  Each state of the
 * automaton (grammar_states.c) keeps the mask of the tokens that may follow it. */
#include <math.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar_states.h"
#include "server/grammar_vocab.h"

grammar *grammar_ref(grammar *g)
{
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void grammar_release(grammar *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
        return;
    gram_drop(g);
    pthread_mutex_destroy(&g->lock);
    kvant_free(g->elems);
    kvant_free(g->rules);
    kvant_free(g->sets);
    kvant_free(g);
}

size_t grammar_bytes(grammar *g)
{
    return atomic_load(&g->bytes) + (size_t)g->cap_elems * sizeof *g->elems + (size_t)g->cap_rules * sizeof *g->rules +
           (size_t)g->cap_sets * sizeof *g->sets;
}

/* ---- masks ---- */

/* Walks the sorted tokens, sharing the states of common prefixes. */
static int fill_mask(grammar *g, const grammar_vocab *v, int state, uint32_t *mask, int *left, kvant_diag *diag)
{
    int walk[GRAMMAR_MAX_TOKEN + 1], alive = 0;

    walk[0] = state;
    *left = 0;
    for (int i = 0; i < v->n_sorted; i++) {
        const unsigned char *bytes = v->bytes + v->off[i];
        int k = v->common[i];
        if (k > alive)
            continue; /* shares the byte that the token before failed at */
        for (alive = k; alive < v->len[i]; alive++) {
            KVANT_TRY(gram_step(g, walk[alive], bytes[alive], &walk[alive + 1], diag));
            if (walk[alive + 1] == DEAD)
                break;
        }
        if (alive == v->len[i]) {
            mask[v->ids[i] >> 5] |= 1u << (v->ids[i] & 31);
            ++*left;
        }
    }
    return KVANT_OK;
}

static int make_mask(grammar *g, const grammar_vocab *v, int state, kvant_diag *diag)
{
    size_t words = ((size_t)v->n + 31) / 32;
    uint32_t *mask = g->bytes + words * 4 <= HARD_BYTES ? kvant_calloc(words, sizeof *mask) : NULL;
    int left = 0, code;

    if (!mask)
        return gram_too_large(diag);
    code = fill_mask(g, v, state, mask, &left, diag);
    if (code != KVANT_OK) {
        kvant_free(mask);
        return code;
    }
    gram_state *s = g->states[state];
    s->text_left = s->left = left;
    for (int i = 0; i < v->n_eog && s->accept; i++, s->left++)
        mask[v->eog[i] >> 5] |= 1u << (v->eog[i] & 31);
    s->mask = mask;
    g->bytes += words * 4;
    return KVANT_OK;
}

/* ---- runs ---- */

int grammar_run_create(grammar *g, const grammar_vocab *v, grammar_run **out, kvant_diag *diag)
{
    grammar_run *r = kvant_calloc(1, sizeof *r);
    int code;

    if (!r)
        return kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory");
    pthread_mutex_lock(&g->lock);
    code = g->n_vocab && g->n_vocab != v->n
               ? kvant_fail(diag, KVANT_EINVAL, "grammar: used with %d tokens before, now %d", g->n_vocab, v->n)
               : gram_shrink(g, diag);
    if (code == KVANT_OK)
        code = gram_start(g, &r->state, diag);
    if (code == KVANT_OK) {
        *r = (grammar_run){ .g = grammar_ref(g), .v = v, .state = r->state, .next = g->runs };
        g->runs = r;
        g->n_vocab = v->n;
        *out = r;
    }
    pthread_mutex_unlock(&g->lock);
    if (code != KVANT_OK)
        kvant_free(r);
    return code;
}

void grammar_run_free(grammar_run *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->g->lock);
    for (grammar_run **p = &r->g->runs; *p; p = &(*p)->next)
        if (*p == r) {
            *p = r->next;
            break;
        }
    pthread_mutex_unlock(&r->g->lock);
    grammar_release(r->g);
    kvant_free(r);
}

static int filter(grammar_run *r, float *logits, int n_vocab, int *left, int *complete, kvant_diag *diag)
{
    grammar *g = r->g;

    if (r->state == DEAD)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: the text has left the grammar");
    if (n_vocab < r->v->n)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: %d logits, want %d", n_vocab, r->v->n);
    KVANT_TRY(gram_shrink(g, diag));
    if (!g->states[r->state]->mask)
        KVANT_TRY(make_mask(g, r->v, r->state, diag));
    const gram_state *s = g->states[r->state];
    *left = s->left;
    *complete = s->accept && s->text_left == 0;
    if (!s->left && !s->accept)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: no token of the vocabulary can come next");
    for (int i = 0; i < n_vocab; i++)
        if (i >= r->v->n || !(s->mask[i >> 5] >> (i & 31) & 1))
            logits[i] = -INFINITY;
    return KVANT_OK;
}

int grammar_run_filter(grammar_run *r, float *logits, int n_vocab, int *left, int *complete, kvant_diag *diag)
{
    pthread_mutex_lock(&r->g->lock);
    int code = filter(r, logits, n_vocab, left, complete, diag);
    pthread_mutex_unlock(&r->g->lock);
    return code;
}

static int walk_bytes(grammar_run *r, const unsigned char *s, size_t n, kvant_diag *diag)
{
    int state = r->state;

    KVANT_TRY(gram_shrink(r->g, diag));
    state = r->state;
    for (size_t i = 0; i < n && state != DEAD; i++)
        KVANT_TRY(gram_step(r->g, state, s[i], &state, diag));
    if (state == DEAD)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: the text has left the grammar");
    r->state = state;
    return KVANT_OK;
}

int grammar_run_accept(grammar_run *r, int32_t token, kvant_diag *diag)
{
    const grammar_vocab *v = r->v;
    int code;

    if (token < 0 || token >= v->n)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: token %d, want 0 to %d", token, v->n - 1);
    pthread_mutex_lock(&r->g->lock);
    if (r->state == DEAD)
        code = kvant_fail(diag, KVANT_EINVAL, "grammar: the text has left the grammar");
    else if (v->at[token] >= 0)
        code = walk_bytes(r, v->bytes + v->off[v->at[token]], (size_t)v->len[v->at[token]], diag);
    else if (vocab_is_eog(v, token) && r->g->states[r->state]->accept)
        code = KVANT_OK;
    else
        code = kvant_fail(diag, KVANT_EINVAL, "grammar: token %d may not come here", token);
    if (code != KVANT_OK)
        r->state = DEAD;
    pthread_mutex_unlock(&r->g->lock);
    return code;
}

int grammar_run_bytes(grammar_run *r, const char *text, size_t n, int *complete, kvant_diag *diag)
{
    int code = KVANT_EINVAL;

    pthread_mutex_lock(&r->g->lock);
    if (r->state != DEAD)
        code = walk_bytes(r, (const unsigned char *)text, n, diag);
    if (code == KVANT_OK)
        *complete = r->g->states[r->state]->accept;
    pthread_mutex_unlock(&r->g->lock);
    return code;
}
