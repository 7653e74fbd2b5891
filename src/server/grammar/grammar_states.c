/* grammar_states.c: the automaton of a grammar, determinised while it is used.
 *
 * A stack is a chain of nodes (position in the rules, node below), each chain stored once.  A state is the sorted
 * set of stacks whose top is a byte set; next[byte] is the state after that byte.  A reference at the end of its
 * alternative leaves nothing on the stack, so that lists do not grow it.  When states and masks pass SOFT_BYTES
 * they are dropped between two tokens and only the stacks of live runs are kept.
 *
 * Work is counted in g->spent (units: grammar.h).  A step that passes g->stop is given up; what it found stays. */
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/grammar/grammar_states.h"

enum { SOFT_BYTES = 16 << 20 };
enum { UNKNOWN = -2 };
enum { COST_EDGE = 64, COST_PUSH = 4, COST_FOUND = 12, COST_COPY = 8 }; /* in units */

static _Atomic size_t all_bytes; /* of the automata of all grammars */

typedef struct stack_node {
    int pos, below, depth, link; /* link: next in its hash bucket */
} stack_node;

int gram_too_large(kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EINVAL, "grammar: too many alternatives at once; make it less ambiguous");
}

int gram_take_bytes(grammar *g, size_t n)
{
    const size_t all = atomic_fetch_add(&all_bytes, n) + n;

    if (g->bytes + n <= HARD_BYTES && (all <= ALL_BYTES || g->bytes + n <= OWN_BYTES)) {
        g->bytes += n;
        return 1;
    }
    atomic_fetch_sub(&all_bytes, n);
    return 0;
}

void gram_give_bytes(grammar *g, size_t n)
{
    g->bytes -= n;
    atomic_fetch_sub(&all_bytes, n);
}

void gram_mask_release(gram_mask *m)
{
    if (m && atomic_fetch_sub(&m->refs, 1) == 1)
        kvant_free(m);
}

/* Growing array, counted in g->bytes; 0 when memory or the limit is out. */
static int grow(grammar *g, void *array, int need, int *cap, size_t item)
{
    void **a = array;
    int more = *cap ? *cap : 256;

    if (need <= *cap)
        return 1;
    while (more < need)
        more *= 2;
    if (!gram_take_bytes(g, (size_t)(more - *cap) * item))
        return 0;
    void *p = kvant_realloc(*a, (size_t)*cap * item, (size_t)more * item);
    if (!p)
        return 0; /* the bytes stay counted until the automaton is dropped */
    *a = p;
    *cap = more;
    return 1;
}

/* ---- stacks ---- */

static uint32_t mix(uint32_t h, uint32_t v)
{
    h = (h ^ v) * 0x9E3779B1u;
    return h ^ h >> 15;
}

/* Twice the buckets, every node linked again. */
static int rehash_nodes(grammar *g)
{
    int buckets = g->node_buckets ? g->node_buckets * 2 : 1024;
    int *hash = gram_take_bytes(g, (size_t)(buckets - g->node_buckets) * sizeof *hash)
                    ? kvant_alloc((size_t)buckets * sizeof *hash)
                    : NULL;

    if (!hash)
        return 0;
    memset(hash, 0xFF, (size_t)buckets * sizeof *hash);
    for (int i = 0; i < g->n_nodes; i++) {
        uint32_t h = mix(mix(7, (uint32_t)g->nodes[i].pos), (uint32_t)g->nodes[i].below) & (uint32_t)(buckets - 1);
        g->nodes[i].link = hash[h];
        hash[h] = i;
    }
    kvant_free(g->node_hash);
    g->node_hash = hash;
    g->node_buckets = buckets;
    return 1;
}

/* The node (pos, below), made if new; -1: no memory. */
static int node_of(grammar *g, int pos, int below)
{
    if (g->n_nodes >= g->node_buckets && !rehash_nodes(g))
        return -1;
    uint32_t h = mix(mix(7, (uint32_t)pos), (uint32_t)below) & (uint32_t)(g->node_buckets - 1);
    for (int i = g->node_hash[h]; i >= 0; i = g->nodes[i].link)
        if (g->nodes[i].pos == pos && g->nodes[i].below == below)
            return i;
    if (!grow(g, &g->nodes, g->n_nodes + 1, &g->cap_nodes, sizeof *g->nodes) ||
        !grow(g, &g->seen, g->n_nodes + 1, &g->cap_seen, sizeof *g->seen))
        return -1;
    g->seen[g->n_nodes] = 0;
    g->nodes[g->n_nodes] = (stack_node){ pos, below, below < 0 ? 0 : g->nodes[below].depth + 1, g->node_hash[h] };
    g->node_hash[h] = g->n_nodes;
    return g->n_nodes++;
}

/* ---- closures ---- */

typedef struct closure {
    grammar *g;
    int n_work, n_found, accept;
    int failed; /* KVANT_EINVAL: a limit; KVANT_EBUSY: out of fuel */
} closure;

static void spend(closure *c, int cost)
{
    c->g->spent += cost;
    if (c->g->spent > c->g->stop && !c->failed)
        c->failed = KVANT_EBUSY;
}

static void push(closure *c, int pos, int below)
{
    grammar *g = c->g;

    spend(c, COST_PUSH);
    if (below >= 0 && g->nodes[below].depth >= GRAMMAR_MAX_DEPTH)
        return; /* this alternative nests too deeply: it is not offered */
    int node = node_of(g, pos, below);
    if (node < 0 || !grow(g, &g->work, c->n_work + 1, &g->cap_work, sizeof *g->work)) {
        c->failed = KVANT_EINVAL;
        return;
    }
    if (g->seen[node] == g->stamp)
        return;
    g->seen[node] = g->stamp;
    g->work[c->n_work++] = node;
}

static int is_end(gram_elem e)
{
    return e.type == ELEM_END || e.type == ELEM_ALT;
}

static void push_alternatives(closure *c, int rule, int below)
{
    const grammar *g = c->g;

    for (int i = g->rules[rule]; !c->failed; i++) {
        const int from = i;
        push(c, i, below);
        while (!is_end(g->elems[i]))
            i++;
        spend(c, i - from);
        if (g->elems[i].type == ELEM_END)
            return;
    }
}

static void push_rule(closure *c, int rule, int pos, int below)
{
    if (!is_end(c->g->elems[pos + 1])) {
        below = node_of(c->g, pos + 1, below);
        if (below < 0) {
            c->failed = KVANT_EINVAL;
            return;
        }
    }
    push_alternatives(c, rule, below);
}

static void found(closure *c, int node)
{
    grammar *g = c->g;

    spend(c, COST_FOUND);
    if (c->n_found >= GRAMMAR_MAX_STACKS || !grow(g, &g->found, c->n_found + 1, &g->cap_found, sizeof *g->found))
        c->failed = KVANT_EINVAL;
    else
        g->found[c->n_found++] = node;
}

static void begin(grammar *g, closure *c)
{
    *c = (closure){ .g = g };
    if (++g->stamp == 0) { /* stamps wrapped: forget all of them */
        memset(g->seen, 0, (size_t)g->cap_seen * sizeof *g->seen);
        g->stamp = 1;
    }
}

static void close_over(closure *c)
{
    grammar *g = c->g;

    while (c->n_work && !c->failed) {
        int node = g->work[--c->n_work], pos = g->nodes[node].pos, below = g->nodes[node].below;
        gram_elem e = g->elems[pos];
        if (e.type == ELEM_SET)
            found(c, node);
        else if (e.type == ELEM_REF)
            push_rule(c, (int)e.value, pos, below);
        else if (below < 0)
            c->accept = 1;
        else
            push(c, g->nodes[below].pos, g->nodes[below].below);
    }
}

/* ---- states ---- */

static void sort_ints(int *a, int n)
{
    for (int gap = n / 2; gap > 0; gap /= 2)
        for (int i = gap; i < n; i++) {
            int v = a[i], j = i;
            for (; j >= gap && a[j - gap] > v; j -= gap)
                a[j] = a[j - gap];
            a[j] = v;
        }
}

static uint32_t hash_state(const int *nodes, int n, int accept)
{
    uint32_t h = (uint32_t)accept + 3;

    for (int i = 0; i < n; i++)
        h = mix(h, (uint32_t)nodes[i]);
    return h;
}

static int rehash_states(grammar *g)
{
    int buckets = g->state_buckets ? g->state_buckets * 2 : 1024;
    int *hash = gram_take_bytes(g, (size_t)(buckets - g->state_buckets) * sizeof *hash)
                    ? kvant_alloc((size_t)buckets * sizeof *hash)
                    : NULL;

    if (!hash)
        return 0;
    memset(hash, 0xFF, (size_t)buckets * sizeof *hash);
    for (int i = 0; i < g->n_states; i++) {
        gram_state *s = g->states[i];
        uint32_t h = hash_state(s->nodes, s->n, s->accept) & (uint32_t)(buckets - 1);
        s->link = hash[h];
        hash[h] = i;
    }
    kvant_free(g->state_hash);
    g->state_hash = hash;
    g->state_buckets = buckets;
    return 1;
}

/* The state with these stacks in bucket h, or -1. */
static int find_state(const grammar *g, const closure *c, uint32_t h)
{
    for (int i = g->state_hash[h]; i >= 0; i = g->states[i]->link) {
        const gram_state *s = g->states[i];
        if (s->n == c->n_found && s->accept == c->accept &&
            memcmp(s->nodes, g->found, (size_t)s->n * sizeof(int)) == 0)
            return i;
    }
    return -1;
}

static int add_state(grammar *g, const closure *c, uint32_t h, int *state, kvant_diag *diag)
{
    size_t bytes = sizeof(gram_state) + (size_t)c->n_found * sizeof(int);
    gram_state *s = gram_take_bytes(g, bytes) ? kvant_calloc(1, bytes) : NULL;

    if (!s || !grow(g, &g->states, g->n_states + 1, &g->cap_states, sizeof *g->states)) {
        kvant_free(s);
        return gram_too_large(diag);
    }
    s->n = c->n_found;
    s->accept = c->accept;
    if (s->n)
        memcpy(s->nodes, g->found, (size_t)s->n * sizeof(int));
    s->link = g->state_hash[h];
    g->state_hash[h] = g->n_states;
    g->states[g->n_states] = s;
    *state = g->n_states++;
    return KVANT_OK;
}

/* The state of what the closure found; DEAD when that is nothing.  KVANT_EINVAL at a limit, KVANT_EBUSY at g->stop. */
static int state_of(closure *c, int *state, kvant_diag *diag)
{
    grammar *g = c->g;

    close_over(c);
    if (c->failed == KVANT_EBUSY)
        return KVANT_EBUSY;
    if (c->failed)
        return gram_too_large(diag);
    *state = DEAD;
    if (!c->n_found && !c->accept)
        return KVANT_OK;
    sort_ints(g->found, c->n_found);
    if (g->n_states >= g->state_buckets && !rehash_states(g))
        return gram_too_large(diag);
    uint32_t h = hash_state(g->found, c->n_found, c->accept) & (uint32_t)(g->state_buckets - 1);
    *state = find_state(g, c, h);
    return *state >= 0 ? KVANT_OK : add_state(g, c, h, state, diag);
}

int gram_start(grammar *g, int *state, kvant_diag *diag)
{
    closure c;

    begin(g, &c);
    push_alternatives(&c, g->root, -1);
    return state_of(&c, state, diag);
}

static int make_table(grammar *g, gram_state *s, kvant_diag *diag)
{
    if (!gram_take_bytes(g, 256 * sizeof(int)) || !(s->next = kvant_alloc(256 * sizeof(int))))
        return gram_too_large(diag);
    for (int i = 0; i < 256; i++)
        s->next[i] = UNKNOWN;
    return KVANT_OK;
}

static int new_edge(grammar *g, int from, int byte, int *to, kvant_diag *diag)
{
    gram_state *s = g->states[from];
    closure c;

    if (!s->next)
        KVANT_TRY(make_table(g, s, diag));
    begin(g, &c);
    spend(&c, COST_EDGE + s->n);
    for (int i = 0; i < s->n && !c.failed; i++) {
        stack_node n = g->nodes[s->nodes[i]];
        if (g->sets[g->elems[n.pos].value].bits[byte >> 6] >> (byte & 63) & 1)
            push(&c, n.pos + 1, n.below);
    }
    KVANT_TRY(state_of(&c, to, diag));
    g->states[from]->next[byte] = *to;
    return KVANT_OK;
}

int gram_known(const grammar *g, int from, int byte)
{
    const gram_state *s = g->states[from];

    return s->next && s->next[byte] != UNKNOWN;
}

int gram_step(grammar *g, int from, int byte, int *to, kvant_diag *diag)
{
    g->spent++;
    if (gram_known(g, from, byte)) {
        *to = g->states[from]->next[byte];
        return KVANT_OK;
    }
    return new_edge(g, from, byte, to, diag);
}

/* ---- memory ---- */

void gram_drop(grammar *g)
{
    for (int i = 0; i < g->n_states; i++) {
        kvant_free(g->states[i]->next);
        gram_mask_release(g->states[i]->mask);
        kvant_free(g->states[i]);
    }
    kvant_free(g->states);
    kvant_free(g->state_hash);
    kvant_free(g->nodes);
    kvant_free(g->node_hash);
    kvant_free(g->seen);
    kvant_free(g->work);
    kvant_free(g->found);
    g->states = NULL;
    g->nodes = NULL;
    g->state_hash = g->node_hash = g->work = g->found = NULL;
    g->seen = NULL;
    g->n_states = g->cap_states = g->n_nodes = g->cap_nodes = g->cap_seen = g->cap_work = g->cap_found = 0;
    g->state_buckets = g->node_buckets = 0;
    g->stamp = 0;
    atomic_fetch_sub(&all_bytes, g->bytes);
    g->bytes = 0;
}

/* Node `old` of a dropped automaton as a node of g, or -1.  map: those that were copied before. */
static int copy_node(grammar *g, const grammar *from, int *map, int old)
{
    int chain[GRAMMAR_MAX_DEPTH + 2], n = 0, below = -1;

    for (; old >= 0 && map[old] < 0; old = from->nodes[old].below) {
        if (n == GRAMMAR_MAX_DEPTH + 2)
            return -1; /* push() lets none become so deep */
        chain[n++] = old;
    }
    if (old >= 0)
        below = map[old];
    while (n-- > 0) {
        below = map[chain[n]] = node_of(g, from->nodes[chain[n]].pos, below);
        g->spent += COST_COPY;
        if (below < 0)
            return -1;
    }
    return below;
}

/* The stacks of state `old` of a dropped automaton, as a state of g. */
static int copy_state(grammar *g, const grammar *from, int *map, int old, int *state, kvant_diag *diag)
{
    const gram_state *s = from->states[old];
    closure c;

    begin(g, &c);
    g->stop = INT64_MAX;
    c.accept = s->accept;
    for (int i = 0; i < s->n && !c.failed; i++) {
        const int node = copy_node(g, from, map, s->nodes[i]);
        if (node < 0)
            return gram_too_large(diag);
        found(&c, node);
    }
    return state_of(&c, state, diag);
}

int gram_must_shrink(const grammar *g)
{
    return g->bytes > SOFT_BYTES;
}

/* Leaves g empty and what it had in *old. */
static void set_aside(grammar *g, grammar *old)
{
    memcpy(old, g, sizeof *old);
    g->states = NULL;
    g->nodes = NULL;
    g->state_hash = g->node_hash = g->work = g->found = NULL;
    g->seen = NULL;
    g->n_states = 0;
    g->bytes = 0; /* they stay counted in `old` until it is dropped */
    gram_drop(g);
}

int gram_shrink(grammar *g, kvant_diag *diag)
{
    int *map = kvant_alloc((size_t)g->n_nodes * sizeof *map + 1);
    grammar old;
    int code = map ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "grammar: out of memory");

    if (!map)
        return code;
    memset(map, 0xFF, (size_t)g->n_nodes * sizeof *map);
    set_aside(g, &old);
    for (grammar_run *r = g->runs; r && code == KVANT_OK; r = r->next)
        if (r->state >= 0)
            code = copy_state(g, &old, map, r->state, &r->state, diag);
    gram_drop(&old);
    kvant_free(map);
    if (code != KVANT_OK)
        for (grammar_run *r = g->runs; r; r = r->next)
            r->state = DEAD;
    return code;
}
