/* tokenizer_bpe.c: byte-pair merging.  Owns the table of merges and the two ways through a piece.
 *
 * Heap: candidates as (rank, position) in a binary heap, stale ones skipped: right for every table, O(n log n).
 *
 * Buckets: one list of candidates per rank, ranks taken in ascending order, O(n).  Right when the table is `ordered`:
 * every merge ranks above every merge that makes one of its parts.  Then a merge of rank r only ever creates candidates
 * of higher rank, so a rank is done when its list is empty and never comes back; two candidates of one rank that do not
 * overlap cannot disturb each other; and those that overlap (L = R: "aaaa") lie in a run of equal symbols, which is
 * taken whole, left to right.  Trained vocabularies are ordered; a file that is not takes the heap.
 * One letter, 1 MiB, Zen 3: heap 171 ns per byte and growing with the length, buckets 36 and flat. */
#include "text/tokenizer_bpe.h"

#include <string.h>
#include "base/mem.h"

static const uint32_t none = UINT32_MAX;

/* ---- the table ---- */

static uint32_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t z = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 29)) * 0xBF58476D1CE4E5B9u;
    return (uint32_t)(z >> 32);
}

int bpe_init(bpe *b, uint32_t n, kvant_diag *diag)
{
    uint32_t slots = 64;

    memset(b, 0, sizeof *b);
    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    b->merges = kvant_alloc(((size_t)n + 1) * sizeof *b->merges);
    b->slots = kvant_calloc(slots, sizeof *b->slots);
    b->mask = slots - 1;
    if (!b->merges || !b->slots) {
        bpe_free(b);
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.merges: no memory for %u merges", n);
    }
    return KVANT_OK;
}

int bpe_add(bpe *b, uint32_t left, uint32_t right, uint32_t merged, uint32_t *rank)
{
    /* Half-empty table, mixed hash: 1 in 10^100 files gets here by chance, a crafted one must not cost O(n^2). */
    enum { MAX_PROBES = 512 };
    uint32_t at = pair_hash(left, right) & b->mask;

    for (int probes = 0; probes < MAX_PROBES; probes++, at = (at + 1) & b->mask) {
        if (b->slots[at] == 0) {
            b->merges[b->n_merges] = (bpe_merge){ left, right, merged };
            b->slots[at] = ++b->n_merges;
            return KVANT_OK;
        }
        const bpe_merge *m = &b->merges[b->slots[at] - 1];
        if (m->left == left && m->right == right) {
            *rank = b->slots[at] - 1;
            return KVANT_EFORMAT;
        }
    }
    *rank = none;
    return KVANT_EFORMAT;
}

int bpe_finish(bpe *b, uint32_t n_vocab, kvant_diag *diag)
{
    uint32_t *made = kvant_calloc(n_vocab, sizeof *made); /* highest rank + 1 that makes the token */

    if (!made)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.merges: out of memory");
    for (uint32_t r = 0; r < b->n_merges; r++)
        made[b->merges[r].merged] = r + 1;
    b->ordered = !b->order;
    for (uint32_t r = 0; r < b->n_merges; r++)
        if (made[b->merges[r].left] > r || made[b->merges[r].right] > r)
            b->ordered = 0;
    kvant_free(made);
    return KVANT_OK;
}

void bpe_free(bpe *b)
{
    kvant_free(b->merges);
    kvant_free(b->slots);
    kvant_free(b->order);
    memset(b, 0, sizeof *b);
}

static uint32_t rank_of(const bpe *b, uint32_t left, uint32_t right)
{
    for (uint32_t at = pair_hash(left, right) & b->mask; b->slots[at]; at = (at + 1) & b->mask) {
        const bpe_merge *m = &b->merges[b->slots[at] - 1];
        if (m->left == left && m->right == right)
            return b->slots[at] - 1;
    }
    return none;
}

int64_t bpe_rank(const bpe *b, uint32_t left, uint32_t right)
{
    uint32_t r = rank_of(b, left, right);
    return r == none ? BPE_NONE : (int64_t)r;
}

/* ---- buffers ---- */

static int grow(uint32_t **p, size_t n)
{
    size_t bytes;

    kvant_free(*p);
    *p = size_mul(n, sizeof **p, &bytes) ? kvant_alloc(bytes) : NULL;
    return *p ? KVANT_OK : KVANT_ENOMEM;
}

int bpe_reserve(bpe_work *w, size_t n)
{
    if (n <= w->cap)
        return KVANT_OK;
    if (n >= none)
        return KVANT_ENOMEM;
    n = n < 128 ? 128 : n < 65536 ? n + n / 4 : n;
    w->cap = 0; /* contents need not survive: the caller fills them after this */
    KVANT_TRY(grow(&w->id, n));
    KVANT_TRY(grow(&w->prev, n));
    KVANT_TRY(grow(&w->next, n));
    KVANT_TRY(grow(&w->rank, n));
    w->cap = n;
    return KVANT_OK;
}

void bpe_work_free(bpe_work *w)
{
    uint32_t *parts[] = { w->id, w->prev, w->next, w->rank, w->up, w->down, w->head };

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        kvant_free(parts[i]);
    kvant_free(w->heap);
    kvant_free(w->active);
    memset(w, 0, sizeof *w);
}

/* Rank of the pair (i, its next). */
static uint32_t pair_rank(const bpe *b, const bpe_work *w, uint32_t i)
{
    return w->next[i] == none ? none : rank_of(b, w->id[i], w->id[w->next[i]]);
}

static void list_init(const bpe *b, bpe_work *w, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        w->prev[i] = i - 1; /* none for 0 */
        w->next[i] = i + 1 < n ? i + 1 : none;
        w->rank[i] = pair_rank(b, w, i);
    }
}

/* The pair at i becomes one symbol; its right half leaves the list. */
static void list_merge(const bpe *b, bpe_work *w, uint32_t i)
{
    uint32_t right = w->next[i], after = w->next[right];

    w->id[i] = b->merges[w->rank[i]].merged;
    w->rank[right] = none;
    w->next[i] = after;
    if (after != none)
        w->prev[after] = i;
}

static size_t list_compact(bpe_work *w)
{
    size_t n = 0;

    for (uint32_t i = 0; i != none; i = w->next[i])
        w->id[n++] = w->id[i]; /* n <= i: reads stay ahead of writes */
    return n;
}

/* ---- heap ---- */

static int heap_push(bpe_work *w, uint32_t rank, uint32_t at)
{
    if (w->n_heap == w->cap_heap) {
        size_t want = w->cap_heap ? 2 * w->cap_heap : 256, bytes;
        uint64_t *p = size_mul(want, sizeof *p, &bytes) ? kvant_realloc(w->heap, w->n_heap * sizeof *p, bytes) : NULL;
        if (!p)
            return KVANT_ENOMEM;
        w->heap = p;
        w->cap_heap = want;
    }
    uint64_t key = (uint64_t)rank << 32 | at;
    size_t i = w->n_heap++;
    for (; i > 0 && w->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = key;
    return KVANT_OK;
}

static uint64_t heap_pop(bpe_work *w)
{
    uint64_t top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->n_heap)
            break;
        if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child])
            child++;
        if (w->heap[child] >= last)
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static uint32_t order_of(const bpe *b, uint32_t rank)
{
    return b->order && rank != none ? b->order[rank] : rank;
}

static int update(const bpe *b, bpe_work *w, uint32_t i)
{
    w->rank[i] = pair_rank(b, w, i);
    return w->rank[i] == none ? KVANT_OK : heap_push(w, order_of(b, w->rank[i]), i);
}

static int merge_heap(const bpe *b, bpe_work *w, uint32_t n)
{
    w->n_heap = 0;
    for (uint32_t i = 0; i < n; i++)
        if (w->rank[i] != none)
            KVANT_TRY(heap_push(w, order_of(b, w->rank[i]), i));
    while (w->n_heap) {
        uint64_t key = heap_pop(w);
        uint32_t i = (uint32_t)key;
        if (order_of(b, w->rank[i]) != key >> 32)
            continue; /* stale: one of the two has merged since */
        list_merge(b, w, i);
        KVANT_TRY(update(b, w, i));
        if (w->prev[i] != none)
            KVANT_TRY(update(b, w, w->prev[i]));
    }
    return KVANT_OK;
}

/* ---- buckets ---- */

static void link_add(bpe_work *w, uint32_t i, uint32_t rank)
{
    w->rank[i] = rank;
    if (rank == none)
        return;
    uint32_t first = w->head[rank];
    w->up[i] = none;
    w->down[i] = first;
    if (first != none)
        w->up[first] = i;
    w->head[rank] = i;
    w->active[rank / 64] |= (uint64_t)1 << rank % 64;
}

static void link_remove(bpe_work *w, uint32_t i)
{
    uint32_t rank = w->rank[i];

    if (rank == none)
        return;
    if (w->up[i] == none)
        w->head[rank] = w->down[i];
    else
        w->down[w->up[i]] = w->down[i];
    if (w->down[i] != none)
        w->up[w->down[i]] = w->up[i];
    w->rank[i] = none;
}

static int links_reserve(const bpe *b, bpe_work *w)
{
    const size_t words = (size_t)b->n_merges / 64 + 1;

    if (!w->head) {
        w->active = kvant_calloc(words, sizeof *w->active);
        if (!w->active)
            return KVANT_ENOMEM;
        w->head = kvant_alloc(((size_t)b->n_merges + 1) * sizeof *w->head);
        if (!w->head)
            return KVANT_ENOMEM;
        memset(w->head, 0xFF, b->n_merges * sizeof *w->head);
    }
    if (w->cap_links < w->cap) {
        w->cap_links = 0;
        KVANT_TRY(grow(&w->up, w->cap));
        KVANT_TRY(grow(&w->down, w->cap));
        w->cap_links = w->cap;
    }
    return KVANT_OK;
}

static void bucket_merge(const bpe *b, bpe_work *w, uint32_t i)
{
    uint32_t rank = w->rank[i], prev = w->prev[i];

    link_remove(w, w->next[i]);
    link_remove(w, i);
    if (prev != none)
        link_remove(w, prev);
    w->rank[i] = rank; /* list_merge reads it */
    list_merge(b, w, i);
    link_add(w, i, pair_rank(b, w, i));
    if (prev != none)
        link_add(w, prev, pair_rank(b, w, prev));
}

/* All pairs of the run of equal symbols that i lies in, from its left end. */
static void bucket_merge_run(const bpe *b, bpe_work *w, uint32_t i)
{
    const uint32_t id = w->id[i], rank = w->rank[i];

    while (w->prev[i] != none && w->id[w->prev[i]] == id)
        i = w->prev[i];
    while (i != none && w->rank[i] == rank) {
        bucket_merge(b, w, i);
        i = w->next[i];
    }
}

static int merge_buckets(const bpe *b, bpe_work *w, uint32_t n)
{
    const size_t words = (size_t)b->n_merges / 64 + 1;

    KVANT_TRY(links_reserve(b, w));
    for (uint32_t i = n; i-- > 0;)
        link_add(w, i, w->rank[i]);
    for (size_t word = 0; word < words; word++)
        while (w->active[word]) {
            int bit = 0;
            while (!(w->active[word] >> bit & 1))
                bit++;
            uint32_t rank = (uint32_t)(word * 64) + (uint32_t)bit;
            int same = b->merges[rank].left == b->merges[rank].right;
            while (w->head[rank] != none) {
                if (same)
                    bucket_merge_run(b, w, w->head[rank]);
                else
                    bucket_merge(b, w, w->head[rank]);
            }
            w->active[word] &= ~((uint64_t)1 << bit);
        }
    return KVANT_OK;
}

int bpe_merge_ids(const bpe *b, bpe_work *w, size_t n, size_t *n_out)
{
    enum { LONG = 1024 }; /* from here on the scan over all ranks is paid for; arbitrary, not tuned */
    const int buckets = w->method == BPE_BUCKETS || (w->method == BPE_AUTO && n >= LONG && b->ordered);

    if (n < 2) {
        *n_out = n;
        return KVANT_OK;
    }
    list_init(b, w, (uint32_t)n);
    KVANT_TRY(buckets ? merge_buckets(b, w, (uint32_t)n) : merge_heap(b, w, (uint32_t)n));
    *n_out = list_compact(w);
    return KVANT_OK;
}
