/* grammar_match.c: generations under a grammar: the mask of the tokens that may come next, and the token that came.
 *
 * A run stands in a state of the automaton (grammar_states.c).  Between two tokens it is brought to the state behind
 * the token's bytes, and that state's mask is made unless it is there.  All of that is work that stops when its fuel is
 * used up and goes on where it stopped; what is left for the thread that steps is to apply the bits of a mask.
 *
 * One mask of a grammar is in work at a time, and states are dropped only while none is: whether a run meets a limit of
 * memory does not depend on the other runs. */
#include <math.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar/grammar_states.h"

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
    kvant_free(g->walk);
    kvant_free(g);
}

size_t grammar_bytes(grammar *g)
{
    return atomic_load(&g->bytes) + (size_t)g->cap_elems * sizeof *g->elems + (size_t)g->cap_rules * sizeof *g->rules +
           (size_t)g->cap_sets * sizeof *g->sets;
}

/* ---- work, with the lock ---- */

/* One call may work up to `end`; strict: not a step beyond it, and nothing that cannot be stopped. */
typedef struct match_budget {
    int64_t end;
    int strict;
} match_budget;

/* A step that does not end within its limit is an error; that a strict budget ends before is not. */
static int step(grammar *g, const match_budget *b, int from, int byte, int *to, kvant_diag *diag)
{
    const int64_t limit = g->spent + GRAMMAR_FUEL_STEP;

    g->stop = b->strict && b->end < limit ? b->end : limit;
    const int code = from == NOWHERE ? gram_start(g, to, diag) : gram_step(g, from, byte, to, diag);
    return code == KVANT_EBUSY && g->stop == limit ? gram_too_large(diag) : code;
}

static int left_grammar(kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EINVAL, "grammar: the text has left the grammar");
}

static int others_walk(const grammar_run *r)
{
    return r->g->walk && r->g->walk->run && r->g->walk->run != r;
}

/* The first state. */
static int enter(grammar_run *r, const match_budget *b, kvant_diag *diag)
{
    grammar *g = r->g;

    if (others_walk(r))
        return KVANT_EBUSY;
    if (g->n_vocab && g->n_vocab != r->v->n)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: used with %d tokens before, now %d", g->n_vocab, r->v->n);
    g->n_vocab = r->v->n;
    KVANT_TRY(step(g, b, NOWHERE, 0, &r->state, diag));
    if (!r->linked) {
        r->linked = 1;
        r->next = g->runs;
        g->runs = r;
    }
    return KVANT_OK;
}

/* Over the bytes of the token that came. */
static int advance(grammar_run *r, const match_budget *b, kvant_diag *diag)
{
    while (r->n_rest > 0 && r->state != DEAD) {
        if (others_walk(r) && !gram_known(r->g, r->state, *r->rest))
            return KVANT_EBUSY;
        KVANT_TRY(step(r->g, b, r->state, *r->rest, &r->state, diag));
        r->rest++;
        r->n_rest--;
    }
    return r->state == DEAD ? left_grammar(diag) : KVANT_OK;
}

static size_t mask_bytes(int n_vocab)
{
    return sizeof(gram_mask) + ((size_t)n_vocab + 31) / 32 * sizeof(uint32_t);
}

static int begin_walk(grammar_run *r, kvant_diag *diag)
{
    grammar *g = r->g;
    const size_t bytes = mask_bytes(r->v->n);

    if (!g->walk && !(g->walk = kvant_calloc(1, sizeof *g->walk)))
        return kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory");
    gram_mask *m = gram_take_bytes(g, bytes) ? kvant_calloc(1, bytes) : NULL;
    if (!m)
        return gram_too_large(diag);
    atomic_store(&m->refs, 1);
    m->accept = g->states[r->state]->accept;
    g->walk->run = r;
    g->walk->mask = m;
    g->walk->i = g->walk->alive = 0;
    g->walk->at[0] = r->state;
    return KVANT_OK;
}

/* Tries the sorted tokens, sharing the states of common prefixes. */
static int walk_on(gram_walk *w, grammar *g, const grammar_vocab *v, const match_budget *b, kvant_diag *diag)
{
    for (; w->i < v->n_sorted; w->i++) {
        const unsigned char *bytes = v->bytes + v->off[w->i];
        const int k = v->common[w->i], n = v->len[w->i];
        if (++g->spent > b->end)
            return KVANT_EBUSY;
        if (k > w->alive)
            continue; /* shares the byte that the token before failed at */
        for (w->alive = k; w->alive < n; w->alive++) {
            KVANT_TRY(step(g, b, w->at[w->alive], bytes[w->alive], &w->at[w->alive + 1], diag));
            if (w->at[w->alive + 1] == DEAD)
                break;
        }
        if (w->alive == n) {
            w->mask->bits[v->ids[w->i] >> 5] |= 1u << (v->ids[w->i] & 31);
            w->mask->text_left++;
        }
    }
    return KVANT_OK;
}

static void drop_walk(grammar *g)
{
    if (g->walk->mask)
        gram_give_bytes(g, mask_bytes(g->n_vocab));
    gram_mask_release(g->walk->mask);
    g->walk->mask = NULL;
    g->walk->run = NULL;
}

static int make_mask(grammar_run *r, const match_budget *b, kvant_diag *diag)
{
    grammar *g = r->g;
    const grammar_vocab *v = r->v;

    if (!g->walk || !g->walk->run)
        KVANT_TRY(begin_walk(r, diag));
    const int code = walk_on(g->walk, g, v, b, diag);
    if (code == KVANT_EBUSY)
        return code;
    if (code == KVANT_OK) {
        gram_mask *m = g->walk->mask;
        m->left = m->text_left;
        for (int i = 0; i < v->n_eog && m->accept; i++, m->left++)
            m->bits[v->eog[i] >> 5] |= 1u << (v->eog[i] & 31);
        g->states[r->state]->mask = m;
        g->walk->mask = NULL;
    }
    drop_walk(g);
    return code;
}

static int get_mask(grammar_run *r, const match_budget *b, kvant_diag *diag)
{
    grammar *g = r->g;

    if (gram_must_shrink(g) && !(g->walk && g->walk->run)) {
        if (b->strict)
            return KVANT_EBUSY;
        KVANT_TRY(gram_shrink(g, diag));
    }
    if (r->state == NOWHERE)
        KVANT_TRY(enter(r, b, diag));
    KVANT_TRY(advance(r, b, diag));
    if (!g->states[r->state]->mask) {
        if (others_walk(r))
            return KVANT_EBUSY;
        KVANT_TRY(make_mask(r, b, diag));
    }
    r->mask = g->states[r->state]->mask;
    atomic_fetch_add(&r->mask->refs, 1);
    return KVANT_OK;
}

/* Charges the work to the run. */
static int charge(grammar_run *r, int64_t units, int code, kvant_diag *diag)
{
    r->spent += units;
    r->spent_mask += units;
    if (code == KVANT_EBUSY && r->spent_mask > GRAMMAR_FUEL_MASK)
        return kvant_fail(
            diag, KVANT_EINVAL,
            "grammar: the tokens that may come next took more than %d units of work to find; make it less "
            "ambiguous",
            GRAMMAR_FUEL_MASK);
    if (code == KVANT_EBUSY && r->spent > r->allowed)
        return kvant_fail(diag, KVANT_EINVAL,
                          "grammar: this request took more than %lld units of work; make the grammar less ambiguous",
                          (long long)r->allowed);
    return code;
}

/* A run that failed stays failed. */
static int prepare(grammar_run *r, int fuel, int strict, kvant_diag *diag)
{
    const int64_t from = r->g->spent;
    const match_budget b = { from + fuel, strict };
    int code = r->failed || r->state == DEAD ? left_grammar(diag) : get_mask(r, &b, diag);

    code = charge(r, r->g->spent - from, code, diag);
    if (code < 0 && code != KVANT_EBUSY) {
        if (r->g->walk && r->g->walk->run == r)
            drop_walk(r->g);
        r->failed = 1;
        r->state = DEAD; /* its stacks need not be kept */
    }
    return code;
}

/* ---- runs ---- */

int grammar_run_create(grammar *g, const grammar_vocab *v, grammar_run **out, kvant_diag *diag)
{
    grammar_run *r = kvant_calloc(1, sizeof *r);

    if (!r)
        return kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory");
    *r = (grammar_run){ .g = grammar_ref(g), .v = v, .state = NOWHERE, .allowed = GRAMMAR_FUEL_REQUEST };
    *out = r;
    return KVANT_OK;
}

void grammar_run_begin(grammar_run *r, const char *text, size_t n)
{
    r->rest = (const unsigned char *)text;
    r->n_rest = (int)n;
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
    if (r->g->walk && r->g->walk->run == r)
        drop_walk(r->g);
    pthread_mutex_unlock(&r->g->lock);
    gram_mask_release(r->mask);
    grammar_release(r->g);
    kvant_free(r);
}

int grammar_run_try(grammar_run *r, kvant_diag *diag)
{
    if (r->mask)
        return KVANT_OK;
    if (pthread_mutex_trylock(&r->g->lock) != 0)
        return KVANT_EBUSY;
    const int code = prepare(r, GRAMMAR_FUEL_TRY, 1, diag);
    pthread_mutex_unlock(&r->g->lock);
    return code;
}

int grammar_run_work(grammar_run *r, kvant_diag *diag)
{
    if (r->mask)
        return KVANT_OK;
    pthread_mutex_lock(&r->g->lock);
    const int code = prepare(r, GRAMMAR_FUEL_SLICE, 0, diag);
    pthread_mutex_unlock(&r->g->lock);
    return code;
}

int grammar_run_allows(const grammar_run *r, int32_t token)
{
    return !r->mask || token >= r->v->n || (r->mask->bits[token >> 5] >> (token & 31) & 1);
}

int grammar_run_apply(const grammar_run *r, float *logits, int n_vocab, int *left, int *complete, kvant_diag *diag)
{
    const gram_mask *m = r->mask;

    if (!m)
        return kvant_fail(diag, KVANT_EINTERNAL, "grammar: a token is due before its mask was made");
    if (n_vocab < r->v->n)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: %d logits, want %d", n_vocab, r->v->n);
    if (!m->left && !m->accept)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: no token of the vocabulary can come next");
    *left = m->left;
    *complete = m->accept && m->text_left == 0;
    for (int i = 0; i < n_vocab; i++)
        if (i >= r->v->n || !(m->bits[i >> 5] >> (i & 31) & 1))
            logits[i] = -INFINITY;
    return KVANT_OK;
}

static void drop_mask(grammar_run *r)
{
    gram_mask_release(r->mask);
    r->mask = NULL;
}

int grammar_run_take(grammar_run *r, int32_t token, kvant_diag *diag)
{
    const grammar_vocab *v = r->v;

    if (token < 0 || token >= v->n)
        return kvant_fail(diag, KVANT_EINVAL, "grammar: token %d, want 0 to %d", token, v->n - 1);
    if (!r->mask)
        return kvant_fail(diag, KVANT_EINTERNAL, "grammar: a token came before its mask was made");
    if (!(r->mask->bits[token >> 5] >> (token & 31) & 1)) {
        drop_mask(r);
        r->failed = 1;
        return kvant_fail(diag, KVANT_EINVAL, "grammar: token %d may not come here", token);
    }
    if (v->at[token] < 0)
        return KVANT_OK; /* an end token: the text stays as it is */
    drop_mask(r);
    r->rest = v->bytes + v->off[v->at[token]];
    r->n_rest = v->len[v->at[token]];
    r->spent_mask = 0;
    r->allowed += GRAMMAR_CREDIT * v->walk;
    return KVANT_OK;
}

/* In one go, whatever it takes, and without masks. */
static int walk_bytes(grammar_run *r, int *complete, kvant_diag *diag)
{
    const match_budget b = { INT64_MAX, 0 };

    if (r->failed || r->state == DEAD)
        return left_grammar(diag);
    if (gram_must_shrink(r->g) && !others_walk(r))
        KVANT_TRY(gram_shrink(r->g, diag));
    if (r->state == NOWHERE)
        KVANT_TRY(enter(r, &b, diag));
    KVANT_TRY(advance(r, &b, diag));
    *complete = r->g->states[r->state]->accept;
    return KVANT_OK;
}

int grammar_run_bytes(grammar_run *r, const char *text, size_t n, int *complete, kvant_diag *diag)
{
    drop_mask(r);
    pthread_mutex_lock(&r->g->lock);
    int code = walk_bytes(r, complete, diag); /* of the token that came before */
    if (code == KVANT_OK) {
        r->rest = (const unsigned char *)text;
        r->n_rest = (int)n;
        code = walk_bytes(r, complete, diag);
    }
    if (code < 0)
        r->state = DEAD;
    pthread_mutex_unlock(&r->g->lock);
    return code;
}
