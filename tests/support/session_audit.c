/* session_audit.c: see session_audit.h.  Counts everything anew, by brute force: it shares no shortcut with the code
 * that it checks. */
#include "support/session_audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

typedef struct auditor {
    kvant_session *s;
    const kv_cache *kv;
    const prefix_index *ix;
    int32_t *pages, *tails, *windows, *snaps; /* holders counted here */
    int32_t *node_of;               /* [pages] node of a page, -1: none */
    int32_t *left;                  /* [pages] children that are not evicted yet */
    unsigned char *gone;            /* [pages] nodes that an eviction took; then ids seen in a free list */
    char *why;
    size_t cap;
} auditor;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static int
wrong(auditor *a, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(a->why, a->cap, format, args);
    va_end(args);
    return 0;
}

/* ---- I1: holders ---- */

static int hold(auditor *a, const page_pool *p, int32_t *count, int id, const char *what, int whose)
{
    if (id < 0 || id >= p->n)
        return wrong(a, "%s of %d: id %d, wanted 0 to %d", what, whose, id, p->n - 1);
    count[id]++;
    return 1;
}

/* Exactly the pages that its next token sees in a window, and the open one. */
static int count_windows(auditor *a, int seq)
{
    const kv_cache *kv = a->kv;
    const kv_seq *q = &kv->seqs[seq];

    for (int p = 0; p < q->n_pages && kv->window_pages > 0; p++) {
        const int wanted = p >= kv_first_window(kv, q->len);
        if (wanted != (q->window[p] >= 0))
            return wrong(a, "sequence %d of %d tokens: page %d of its window is %d", seq, q->len, p, q->window[p]);
        if (wanted && !hold(a, &kv->windows, a->windows, q->window[p], "window", seq))
            return 0;
    }
    return 1;
}

static int count_sequence(auditor *a, int seq)
{
    const kv_cache *kv = a->kv;
    const kv_seq *q = &kv->seqs[seq];
    int n_tails = 0;

    if (q->len > q->n_pages * KVANT_PAGE)
        return wrong(a, "sequence %d: %d tokens in %d pages", seq, q->len, q->n_pages);
    for (int p = 0; p < kv_pages_held(kv, seq); p++)
        if (!hold(a, &kv->pages, a->pages, q->table[p], "table", seq))
            return 0;
    for (int p = 0; p < q->n_pages; p++) {
        n_tails += q->tail[p] >= 0;
        if (q->tail[p] >= 0 && !hold(a, &kv->tails, a->tails, q->tail[p], "tail", seq))
            return 0;
    }
    if (n_tails > kv->tail_pages + kv->sink_pages)
        return wrong(a, "sequence %d: %d tail pages, at most %d are its share", seq, n_tails,
                     kv->tail_pages + kv->sink_pages);
    return count_windows(a, seq);
}

/* A snapshot has one owner, and the tail pages that it lists. */
static int count_snapshot(auditor *a, int id, const char *whose)
{
    const kv_cache *kv = a->kv;

    if (!hold(a, &kv->snaps, a->snaps, id, whose, id))
        return 0;
    if (a->snaps[id] > 1)
        return wrong(a, "snapshot %d: two owners, the second one is %s", id, whose);
    for (int j = 0; j < kv_snap_windows(kv); j++) {
        const int page = kv->snap_window[(size_t)id * (size_t)kv_snap_windows(kv) + (size_t)j];
        if (page >= 0 && !hold(a, &kv->windows, a->windows, page, "snapshot's window", id))
            return 0;
    }
    for (int j = 0; j < kv_snap_tails(kv); j++) {
        const int tail = kv->snap_tail[(size_t)id * (size_t)kv_snap_tails(kv) + (size_t)j];
        if (tail >= 0 && !hold(a, &kv->tails, a->tails, tail, "snapshot's tail", id))
            return 0;
    }
    return 1;
}

static int count_request(auditor *a, const request *q)
{
    for (int i = 0; i < q->n_snaps; i++)
        if (!count_snapshot(a, q->snaps[i].id, "a request"))
            return 0;
    return q->rolling < 0 || count_snapshot(a, q->rolling, "a request's last page");
}

static int count_holders(auditor *a)
{
    const kvant_session *s = a->s;

    for (int i = 0; i < s->max_seqs; i++)
        if (a->kv->seqs[i].used && !count_sequence(a, i))
            return 0;
    for (int i = a->ix->oldest; i >= 0; i = a->ix->nodes[i].newer) {
        const prefix_node *n = &a->ix->nodes[i];
        if (!hold(a, &a->kv->pages, a->pages, n->page, "node", i))
            return 0;
        if (a->node_of[n->page] >= 0)
            return wrong(a, "page %d: nodes %d and %d", n->page, a->node_of[n->page], i);
        a->node_of[n->page] = i;
        if (n->snap >= 0 && !count_snapshot(a, n->snap, "a node"))
            return 0;
    }
    for (int i = 0; i < s->n_running; i++)
        if (!count_request(a, s->running[i]))
            return 0;
    for (int i = 0; i < s->n_waiting; i++)
        if (!count_request(a, s->waiting[i]))
            return 0;
    return 1;
}

static int check_pool(auditor *a, const page_pool *p, const int32_t *holders, const char *what)
{
    int n = 0, idle = 0;

    memset(a->gone, 0, (size_t)p->n + 1);
    for (int i = p->head; i >= 0; i = p->next[i]) {
        if (i >= p->n || a->gone[i] || holders[i] > 0)
            return wrong(a, "%s %d: in the free list %s", what, i, holders[i] > 0 ? "and held" : "twice");
        a->gone[i] = 1;
        n++;
    }
    if (n != p->n_free)
        return wrong(a, "%ss: %d in the free list, %d counted", what, n, p->n_free);
    for (int i = 0; i < p->n; i++) {
        idle += p->marked[i] && p->refs[i] == 1;
        if (p->refs[i] != holders[i])
            return wrong(a, "%s %d: %d references, %d holders", what, i, p->refs[i], holders[i]);
        if (a->gone[i] != (holders[i] == 0))
            return wrong(a, "%s %d: nobody holds it, and it is not free", what, i);
    }
    if (idle != p->n_idle)
        return wrong(a, "%ss: %d idle, %d counted", what, idle, p->n_idle);
    return 1;
}

/* The rest of the tail pool is there for the one prompt that fills a whole pass. */
static int check_pools(auditor *a)
{
    const kv_cache *kv = a->kv;

    for (int p = 0; p < kv->pages.n; p++)
        if (kv->pages.marked[p] != (a->node_of[p] >= 0))
            return wrong(a, "page %d: marked %d, node %d", p, kv->pages.marked[p], a->node_of[p]);
    if (!check_pool(a, &kv->pages, a->pages, "page") || !check_pool(a, &kv->tails, a->tails, "tail page") ||
        !check_pool(a, &kv->windows, a->windows, "page of a window") ||
        !check_pool(a, &kv->snaps, a->snaps, "snapshot"))
        return 0;
    if (kv->window_pages > 0 && kv->windows.n_free < kv->cfg.n_ubatch / KVANT_PAGE + 2)
        return wrong(a, "pages of windows: %d free, a pass may want %d", kv->windows.n_free,
                     kv->cfg.n_ubatch / KVANT_PAGE + 2);
    if (kv->tail_pages > 0 && kv->tails.n_free < kv->cfg.n_ubatch / KVANT_PAGE + 2)
        return wrong(a, "tail pages: %d free, a pass may want %d", kv->tails.n_free, kv->cfg.n_ubatch / KVANT_PAGE + 2);
    return 1;
}

/* Rows of the ring are of one sequence, which has them in its length. */
static int check_ring(auditor *a)
{
    const kv_cache *kv = a->kv;

    for (int i = 0; i < a->s->max_seqs; i++) {
        const kv_seq *q = &kv->seqs[i];
        if (!q->used || q->ring_n == 0)
            continue;
        if (q->ring_n < 0 || q->ring_at < 0 || q->ring_at + q->ring_n > kv->cfg.ring_rows || q->ring_n > q->len)
            return wrong(a, "sequence %d of %d tokens: rows %d to %d of a ring of %d", i, q->len, q->ring_at,
                         q->ring_at + q->ring_n, kv->cfg.ring_rows);
        for (int j = 0; j < i; j++) {
            const kv_seq *o = &kv->seqs[j];
            if (o->used && o->ring_n > 0 && o->ring_at < q->ring_at + q->ring_n && q->ring_at < o->ring_at + o->ring_n)
                return wrong(a, "ring: row %d is of sequences %d and %d", q->ring_at, j, i);
        }
    }
    return 1;
}

static int check_sequences(auditor *a)
{
    const kvant_session *s = a->s;
    int n_parked = 0, used = 0;

    for (int i = 0; i < s->max_seqs; i++) {
        n_parked += s->parked[i].tokens != NULL;
        used += a->kv->seqs[i].used;
        if (s->parked[i].tokens && !a->kv->seqs[i].used)
            return wrong(a, "slot %d: parked without a sequence", i);
    }
    for (int i = 0; i < s->n_running; i++) {
        const request *q = s->running[i];
        if (q->seq < 0 || !a->kv->seqs[q->seq].used || s->parked[q->seq].tokens)
            return wrong(a, "request %llu: runs in sequence %d, which is not its own", (unsigned long long)q->id,
                         q->seq);
        for (int k = 0; k < i; k++)
            if (s->running[k]->seq == q->seq)
                return wrong(a, "sequence %d: two requests run in it", q->seq);
    }
    if (used != n_parked + s->n_running)
        return wrong(a, "sequences: %d used, %d running, %d parked", used, s->n_running, n_parked);
    return 1;
}

/* ---- I3: the tree ---- */

static int check_node(auditor *a, int i)
{
    const prefix_index *ix = a->ix;
    const prefix_node *n = &ix->nodes[i];
    int children = 0, newer = n->newer;

    for (int k = ix->oldest; k >= 0; k = ix->nodes[k].newer)
        children += ix->nodes[k].parent == i;
    if (children != n->children)
        return wrong(a, "node %d: %d children, %d counted", i, children, n->children);
    if (n->depth != (n->parent < 0 ? 0 : ix->nodes[n->parent].depth + 1))
        return wrong(a, "node %d: depth %d under node %d", i, n->depth, n->parent);
    while (n->parent >= 0 && newer >= 0 && newer != n->parent)
        newer = ix->nodes[newer].newer;
    if (n->parent >= 0 && newer < 0)
        return wrong(a, "node %d: its parent %d is older or gone", i, n->parent);
    return 1;
}

/* Whoever holds the page of a node holds the pages of its ancestors: or idle pages could not be evicted. */
static int check_chain(auditor *a, int seq)
{
    const kv_seq *q = &a->kv->seqs[seq];

    for (int p = 0; q->used && p < kv_pages_held(a->kv, seq); p++) {
        int i = a->node_of[q->table[p]];
        if (i >= 0 && a->ix->nodes[i].depth != p)
            return wrong(a, "sequence %d: page %d of it is node %d of depth %d", seq, p, i, a->ix->nodes[i].depth);
        for (; i >= 0; i = a->ix->nodes[i].parent)
            if (q->table[a->ix->nodes[i].depth] != a->ix->nodes[i].page)
                return wrong(a, "sequence %d: holds node %d, and not page %d of its ancestor %d", seq,
                             a->node_of[q->table[p]], a->ix->nodes[i].page, i);
    }
    return 1;
}

static int check_tree(auditor *a)
{
    int n = 0;

    for (int i = a->ix->oldest; i >= 0; i = a->ix->nodes[i].newer, n++)
        if (!check_node(a, i))
            return 0;
    if (n != a->ix->n_nodes)
        return wrong(a, "index: %d nodes, %d counted", n, a->ix->n_nodes);
    for (int i = 0; i < a->s->max_seqs; i++)
        if (!check_chain(a, i))
            return 0;
    return 1;
}

/* ---- I2: promises ---- */

/* Pages that taking leaf after leaf would free, while their pages are nobody else's. */
static int evictable(auditor *a)
{
    const prefix_index *ix = a->ix;
    int n = 0, before;

    memset(a->gone, 0, (size_t)a->kv->pages.n + 1);
    for (int i = ix->oldest; i >= 0; i = ix->nodes[i].newer)
        a->left[i] = ix->nodes[i].children;
    do {
        before = n;
        for (int i = ix->oldest; i >= 0; i = ix->nodes[i].newer) {
            if (a->gone[i] || a->left[i] > 0 || a->pages[ix->nodes[i].page] > 1)
                continue;
            a->gone[i] = 1;
            n++;
            if (ix->nodes[i].parent >= 0)
                a->left[ix->nodes[i].parent]--;
        }
    } while (n > before);
    return n;
}

/* The rest of a prompt, or of all that may come, is covered by the request's promise. */
static int check_promise(auditor *a, const request *q)
{
    const int to = q->keep ? q->most_tokens - 1 : request_len(a->s, q) < q->r.n_prompt ? q->r.n_prompt : 0;
    const int wants = kv_pages_missing(a->kv, q->seq, to);

    if (q->promised < 0 || wants > q->promised)
        return wrong(a, "request %llu: %d pages promised, it may take %d", (unsigned long long)q->id, q->promised,
                     wants);
    return 1;
}

static int check_promises(auditor *a)
{
    const kvant_session *s = a->s;
    const int can = evictable(a);
    int promised = 0;

    if (can != a->kv->pages.n_idle)
        return wrong(a, "pages: %d count as idle, %d can be evicted", a->kv->pages.n_idle, can);
    for (int i = 0; i < s->n_running; i++) {
        promised += s->running[i]->promised;
        if (!check_promise(a, s->running[i]))
            return 0;
    }
    if (promised > a->kv->pages.n_free + can)
        return wrong(a, "pages: %d promised, %d free and %d can be evicted", promised, a->kv->pages.n_free, can);
    return 1;
}

/* ---- the queue ---- */

static int check_waiting(auditor *a)
{
    const kvant_session *s = a->s;
    int64_t saved = 0;

    for (int i = 0; i < s->n_waiting; i++) {
        const request *q = s->waiting[i];
        saved += q->saved.data ? (int64_t)q->saved.bytes : 0;
        if (q->seq >= 0 || q->promised != 0)
            return wrong(a, "request %llu: waits with sequence %d and %d pages promised", (unsigned long long)q->id,
                         q->seq, q->promised);
    }
    if (saved != s->saved_bytes || saved > s->p.save_bytes)
        return wrong(a, "saved sequences: %lld bytes, %lld counted, %lld allowed", (long long)saved,
                     (long long)s->saved_bytes, (long long)s->p.save_bytes);
    return 1;
}

/* With the lock held. */
static int check_tenants(auditor *a)
{
    const kvant_session *s = a->s;
    int alive = 0, queued = 0;

    for (const request *q = s->live; q; q = q->next)
        alive++;
    for (int i = 0; i < s->tenants.n; i++) {
        const tenant *t = &s->tenants.list[i];
        int live = 0;
        for (int k = 0; k < s->n_running; k++)
            live += s->running[k]->tenant == t;
        for (int k = 0; k < s->n_waiting; k++)
            live += s->waiting[k]->tenant == t;
        if (t->live != live)
            return wrong(a, "tenant %u: %d requests with the owner, %d counted", t->id, live, t->live);
        alive -= t->requests;
        queued += t->queued;
    }
    if (alive != 0 || queued != s->counts.queued)
        return wrong(a, "queue: %d requests of no tenant, %d queued, %d counted", alive, queued, s->counts.queued);
    return 1;
}

static int check_queue(auditor *a)
{
    pthread_mutex_lock(&a->s->lock);
    const int ok = check_tenants(a);
    pthread_mutex_unlock(&a->s->lock);
    return ok && check_waiting(a);
}

static int check_all(auditor *a)
{
    return count_holders(a) && check_pools(a) && check_sequences(a) && check_ring(a) && check_tree(a) &&
           check_promises(a) && check_queue(a);
}

int session_audit(kvant_session *s, char *why, size_t cap)
{
    const kv_cache *kv = &s->e->kv;
    const page_pool *const pools[] = { &kv->pages, &kv->tails, &kv->windows, &kv->snaps };
    size_t n = 1;
    for (int i = 0; i < 4; i++)
        n = (size_t)pools[i]->n >= n ? (size_t)pools[i]->n + 1 : n;
    int32_t *mem = kvant_calloc(n * 7, sizeof *mem); /* six lists of numbers and one of marks */
    auditor a = { .s = s, .kv = kv, .ix = &s->prefix, .why = why, .cap = cap };

    snprintf(why, cap, "audit: out of memory");
    if (!mem)
        return 0;
    a.pages = mem;
    a.tails = mem + n;
    a.snaps = mem + 2 * n;
    a.node_of = mem + 3 * n;
    a.left = mem + 4 * n;
    a.windows = mem + 5 * n;
    a.gone = (unsigned char *)(mem + 6 * n);
    memset(a.node_of, 0xFF, n * sizeof *a.node_of);
    const int ok = check_all(&a);
    kvant_free(mem);
    return ok;
}
