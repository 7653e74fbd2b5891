/* grammar_check.c: what makes a grammar safe to run: every rule is defined, and no rule can reach itself without
 * consuming a byte (left recursion, direct, through others, or hidden behind rules that may be empty).  Then the
 * automaton's closures always end. */
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar/grammar_internal.h"

typedef struct checker {
    const grammar *g;
    unsigned char *empty; /* [rule] may produce nothing */
    unsigned char *mark;  /* [rule] 0 new, 1 on the path, 2 done */
    int *path, *at;       /* depth-first walk: rule and its next element */
    int *first, *users;   /* where a rule is referred to: alternatives users[first[r] .. first[r + 1]) */
    int *owner, *missing; /* [alternative] its rule; its elements that are not known to be empty */
    int *queue;
} checker;

static int is_end(gram_elem e)
{
    return e.type == ELEM_END || e.type == ELEM_ALT;
}

/* Calls for each element of each alternative, which are counted through all rules in order; returns their number. */
static int each_element(checker *c, void (*visit)(checker *c, int rule, int alternative, gram_elem e))
{
    const grammar *g = c->g;
    int n = 0;

    for (int r = 0; r < g->n_rules; r++)
        for (int i = g->rules[r];; i++) {
            visit(c, r, n, g->elems[i]);
            n += is_end(g->elems[i]);
            if (g->elems[i].type == ELEM_END)
                break;
        }
    return n;
}

static void count_users(checker *c, int rule, int alternative, gram_elem e)
{
    c->owner[alternative] = rule;
    c->missing[alternative] += !is_end(e);
    if (e.type == ELEM_REF)
        c->first[e.value + 1]++;
}

static void list_user(checker *c, int rule, int alternative, gram_elem e)
{
    (void)rule;
    if (e.type == ELEM_REF)
        c->users[c->at[e.value]++] = alternative;
}

/* An alternative of which every element may be empty makes its rule one that may be. */
static void find_empty(checker *c)
{
    const int alternatives = each_element(c, count_users);
    int n = 0;

    for (int r = 0; r < c->g->n_rules; r++)
        c->first[r + 1] += c->first[r];
    memcpy(c->at, c->first, (size_t)c->g->n_rules * sizeof *c->at);
    each_element(c, list_user);
    for (int a = 0; a < alternatives; a++)
        if (!c->missing[a] && !c->empty[c->owner[a]]) {
            c->empty[c->owner[a]] = 1;
            c->queue[n++] = c->owner[a];
        }
    while (n) {
        const int r = c->queue[--n];
        for (int i = c->first[r]; i < c->first[r + 1]; i++)
            if (--c->missing[c->users[i]] == 0 && !c->empty[c->owner[c->users[i]]]) {
                c->empty[c->owner[c->users[i]]] = 1;
                c->queue[n++] = c->owner[c->users[i]];
            }
    }
}

/* The next rule reachable from element *i on without a byte; -1: none.  *i moves on. */
static int next_left(const checker *c, int *i)
{
    const gram_elem *e = c->g->elems;

    for (;;) {
        gram_elem x = e[*i];
        if (x.type == ELEM_END)
            return -1;
        if (x.type == ELEM_ALT) {
            ++*i;
            continue;
        }
        if (x.type == ELEM_REF) {
            ++*i;
            if (!c->empty[x.value]) /* nothing behind it is on the left edge */
                while (e[*i].type != ELEM_ALT && e[*i].type != ELEM_END)
                    ++*i;
            return (int)x.value;
        }
        while (e[*i].type != ELEM_ALT && e[*i].type != ELEM_END)
            ++*i;
    }
}

/* Depth-first over left edges; the rule that closes a cycle, or -1. */
static int find_cycle(checker *c, int from)
{
    int depth = 0;

    c->path[0] = from;
    c->at[0] = c->g->rules[from];
    c->mark[from] = 1;
    while (depth >= 0) {
        int r = next_left(c, &c->at[depth]);
        if (r < 0) {
            c->mark[c->path[depth--]] = 2;
        } else if (c->mark[r] == 1) {
            return r;
        } else if (c->mark[r] == 0) {
            c->mark[r] = 1;
            c->path[++depth] = r;
            c->at[depth] = c->g->rules[r];
        }
    }
    return -1;
}

static int check(checker *c, const char *(*name)(const void *user, int rule), const void *user, kvant_diag *diag)
{
    for (int r = 0; r < c->g->n_rules; r++)
        if (c->g->rules[r] < 0)
            return kvant_fail(diag, KVANT_EINVAL, "grammar: rule %s is used but not defined", name(user, r));
    find_empty(c);
    for (int r = 0; r < c->g->n_rules; r++) {
        int hit = c->mark[r] == 0 ? find_cycle(c, r) : -1;
        if (hit >= 0)
            return kvant_fail(diag, KVANT_EINVAL,
                              "grammar: rule %s can begin with itself (left recursion, or an endless "
                              "repetition of nothing)",
                              name(user, hit));
    }
    return KVANT_OK;
}

int grammar_check(const grammar *g, const char *(*name)(const void *user, int rule), const void *user, kvant_diag *diag)
{
    const size_t n = (size_t)g->n_rules, e = (size_t)g->n_elems;
    checker c = { .g = g,
                  .empty = kvant_calloc(n, 1),
                  .mark = kvant_calloc(n, 1),
                  .path = kvant_calloc(n, sizeof(int)),
                  .at = kvant_calloc(n, sizeof(int)),
                  .first = kvant_calloc(n + 1, sizeof(int)),
                  .users = kvant_calloc(e + 1, sizeof(int)),
                  .owner = kvant_calloc(e + 1, sizeof(int)),
                  .missing = kvant_calloc(e + 1, sizeof(int)),
                  .queue = kvant_calloc(n, sizeof(int)) };
    int code = c.empty && c.mark && c.path && c.at && c.first && c.users && c.owner && c.missing && c.queue
                   ? check(&c, name, user, diag)
                   : kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory");

    kvant_free(c.empty);
    kvant_free(c.mark);
    kvant_free(c.path);
    kvant_free(c.at);
    kvant_free(c.first);
    kvant_free(c.users);
    kvant_free(c.owner);
    kvant_free(c.missing);
    kvant_free(c.queue);
    return code;
}
