/* prefix.c: see prefix.h.
 *
 * The use list is kept so that a node is always more recent than its descendants (a use touches leaf first, root last),
 * hence the oldest idle node is always a leaf. */
#include "cache/prefix.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"

/* ---- memory and lists ---- */

static void reset(prefix_index *ix)
{
    const int n = ix->kv->pages.n;

    for (int i = 0; i < n; i++) {
        ix->nodes[i].next = i + 1 < n ? i + 1 : -1;
        ix->nodes[i].depth = PREFIX_GONE;
    }
    for (int i = 0; i < ix->n_buckets; i++)
        ix->buckets[i] = -1;
    ix->unused = n > 0 ? 0 : -1;
    ix->oldest = ix->newest = ix->held = -1;
    ix->n_nodes = 0;
}

int prefix_create(prefix_index *ix, kv_cache *kv, kvant_diag *diag)
{
    memset(ix, 0, sizeof *ix);
    ix->kv = kv;
    ix->hash_mask = UINT32_MAX;
    for (ix->n_buckets = 64; ix->n_buckets < kv->pages.n;)
        ix->n_buckets *= 2;
    ix->nodes = kvant_calloc((size_t)kv->pages.n + 1, sizeof *ix->nodes);
    ix->buckets = kvant_calloc((size_t)ix->n_buckets, sizeof *ix->buckets);
    if (!ix->nodes || !ix->buckets) {
        prefix_destroy(ix);
        return kvant_fail(diag, KVANT_ENOMEM, "prefix index: out of memory for %d pages", kv->pages.n);
    }
    reset(ix);
    return KVANT_OK;
}

void prefix_destroy(prefix_index *ix)
{
    if (ix->nodes && ix->buckets)
        prefix_clear(ix);
    kvant_free(ix->nodes);
    kvant_free(ix->buckets);
    memset(ix, 0, sizeof *ix);
}

static void list_remove(prefix_index *ix, int i)
{
    const prefix_node *n = &ix->nodes[i];

    *(n->older >= 0 ? &ix->nodes[n->older].newer : &ix->oldest) = n->newer;
    *(n->newer >= 0 ? &ix->nodes[n->newer].older : &ix->newest) = n->older;
}

/* Node i enters between `older` and the next one; -1: it becomes the oldest. */
static void list_add(prefix_index *ix, int i, int older)
{
    prefix_node *n = &ix->nodes[i];

    n->older = older;
    n->newer = older >= 0 ? ix->nodes[older].newer : ix->oldest;
    *(n->older >= 0 ? &ix->nodes[n->older].newer : &ix->oldest) = i;
    *(n->newer >= 0 ? &ix->nodes[n->newer].older : &ix->newest) = i;
}

/* ---- look-up ---- */

int prefix_up(const prefix_index *ix, int node)
{
    const int parent = ix->nodes[node].parent;

    return parent >= 0 && ix->nodes[parent].depth < ix->nodes[node].depth ? parent : -1;
}

static uint32_t hash_block(const prefix_index *ix, int parent, const unsigned char *salt, const int32_t *tokens)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ (uint64_t)(uint32_t)parent;

    for (int i = 0; i < PREFIX_SALT && parent < 0; i++)
        h = (h ^ salt[i]) * 1099511628211u;
    for (int i = 0; i < KVANT_PAGE; i++) {
        h = (h ^ (uint32_t)tokens[i]) * 1099511628211u;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 17) & ix->hash_mask;
}

void prefix_block_id(const prefix_index *ix, const unsigned char *parent, const unsigned char *salt,
                     const int32_t *tokens, unsigned char id[PREFIX_ID])
{
    struct {
        unsigned char before[PREFIX_ID], salt[PREFIX_SALT];
        int32_t tokens[KVANT_PAGE];
    } text;

    memcpy(text.before, parent ? parent : ix->seed, PREFIX_ID);
    memcpy(text.salt, salt, PREFIX_SALT);
    memcpy(text.tokens, tokens, sizeof text.tokens);
    sha256(&text, sizeof text, id);
}

int prefix_child(const prefix_index *ix, int parent, const unsigned char *salt, const int32_t *tokens)
{
    const uint32_t hash = hash_block(ix, parent, salt, tokens);

    for (int i = ix->buckets[hash & (uint32_t)(ix->n_buckets - 1)]; i >= 0; i = ix->nodes[i].next) {
        const prefix_node *n = &ix->nodes[i];
        if (n->hash == hash && n->parent == parent && memcmp(n->tokens, tokens, sizeof n->tokens) == 0 &&
            (parent >= 0 || memcmp(n->salt, salt, PREFIX_SALT) == 0))
            return i;
    }
    return -1;
}

void prefix_find(const prefix_index *ix, const unsigned char *salt, const int32_t *tokens, int n, prefix_hit *hit)
{
    const int most = (n - 1) / KVANT_PAGE, suffice = kv_pages_suffice(ix->kv);
    int at = -1, idle = 0;

    *hit = (prefix_hit){ .node = -1, .snap = -1 };
    for (int p = 0; p < most; p++) {
        at = prefix_child(ix, at, salt, tokens + (size_t)p * KVANT_PAGE);
        if (at < 0)
            return;
        idle += page_pool_is_idle(&ix->kv->pages, ix->nodes[at].page);
        hit->matched = p + 1;
        if (suffice || ix->nodes[at].snap >= 0)
            *hit = (prefix_hit){ p + 1, p + 1, at, ix->nodes[at].snap, idle };
    }
}

/* Tokens that a resume at node i saves over one at its nearest ancestor with a snapshot. */
static int saved_tokens(const prefix_index *ix, int i)
{
    const int depth = ix->nodes[i].depth;

    for (i = prefix_up(ix, i); i >= 0; i = prefix_up(ix, i))
        if (ix->nodes[i].snap >= 0)
            return (depth - ix->nodes[i].depth) * KVANT_PAGE;
    return (depth + 1) * KVANT_PAGE;
}

void prefix_touch(prefix_index *ix, int leaf)
{
    if (leaf >= 0 && ix->nodes[leaf].snap >= 0)
        ix->nodes[leaf].value = ix->age + saved_tokens(ix, leaf);
    for (int i = leaf; i >= 0; i = prefix_up(ix, i)) {
        list_remove(ix, i);
        list_add(ix, i, ix->newest);
    }
}

int prefix_resume(prefix_index *ix, const prefix_hit *hit, int seq, kvant_diag *diag)
{
    kv_seq *s = &ix->kv->seqs[seq];

    assert(hit->pages > 0 && s->len == 0);
    /* The table of the sequence is the list of pages: filled from the last node up, then shared in place. */
    for (int i = hit->node; i >= 0; i = prefix_up(ix, i))
        s->table[ix->nodes[i].depth] = ix->nodes[i].page;
    kv_seq_share(ix->kv, seq, s->table, hit->pages);
    prefix_touch(ix, hit->node);
    return kv_pages_suffice(ix->kv) ? KVANT_OK : kv_snapshot_load(ix->kv, hit->snap, seq, diag);
}

/* ---- shares ---- */

static prefix_share *share_of(prefix_index *ix, int i)
{
    return &ix->shares[ix->nodes[i].owner % PREFIX_OWNERS];
}

static void count_node(prefix_index *ix, int i, int more)
{
    prefix_share *s = share_of(ix, i);

    ix->n_owners -= s->nodes > 0;
    s->nodes += more;
    ix->n_owners += s->nodes > 0;
    ix->n_nodes += more;
}

static void count_snap(prefix_index *ix, int i, int more)
{
    share_of(ix, i)->snaps += more;
    ix->n_snaps += more;
}

/* Returns 1 if the owner of node i holds more than its part of the nodes, or of the snapshots. */
static int is_over(prefix_index *ix, int i, int snaps)
{
    const prefix_share *s = share_of(ix, i);

    return (snaps ? s->snaps : s->nodes) * ix->n_owners > (snaps ? ix->n_snaps : ix->n_nodes);
}

/* ---- leaving ---- */

static void drop_snap(prefix_index *ix, int i)
{
    if (ix->nodes[i].snap < 0)
        return;
    if (ix->watch)
        ix->watch->snap_leaves(ix->watch->user, i, ix->why ? ix->why : PREFIX_EVICTED);
    count_snap(ix, i, -1);
    kv_snapshot_free(ix->kv, ix->nodes[i].snap);
    ix->nodes[i].snap = -1;
    ix->evicted_snaps++;
    ix->changes++;
}

static void remove_leaf(prefix_index *ix, int i)
{
    prefix_node *n = &ix->nodes[i];
    int32_t *link = &ix->buckets[n->hash & (uint32_t)(ix->n_buckets - 1)];

    assert(n->children == 0);
    if (ix->watch)
        ix->watch->leaves(ix->watch->user, i, ix->why ? ix->why : PREFIX_EVICTED);
    while (*link != i)
        link = &ix->nodes[*link].next;
    *link = n->next;
    list_remove(ix, i);
    drop_snap(ix, i);
    page_pool_mark(&ix->kv->pages, n->page, 0);
    page_pool_unref(&ix->kv->pages, n->page);
    if (n->parent >= 0)
        ix->nodes[n->parent].children--;
    n->depth = PREFIX_GONE;
    n->next = ix->unused;
    ix->unused = i;
    count_node(ix, i, -1);
    ix->evicted_pages++;
    ix->changes++;
}

/* Blocks behind the last snapshot of their branch serve nobody but a fetch that goes on there. */
static void prune(prefix_index *ix, int i)
{
    while (i >= 0 && i != ix->held && ix->nodes[i].children == 0 && ix->nodes[i].snap < 0 &&
           !kv_pages_suffice(ix->kv)) {
        const int parent = prefix_up(ix, i);
        remove_leaf(ix, i);
        i = parent;
    }
}

/* over: only of those who hold more than their part. */
static void evict_some(prefix_index *ix, int n, int before, int over)
{
    for (int i = ix->oldest; i >= 0 && ix->kv->pages.n_free - before < n;) {
        const int older = ix->nodes[i].older, newer = ix->nodes[i].newer, parent = ix->nodes[i].parent;
        if (!page_pool_is_idle(&ix->kv->pages, ix->nodes[i].page) || ix->nodes[i].children > 0 || i == ix->held ||
            (over && !is_over(ix, i, 0))) {
            i = newer;
            continue;
        }
        remove_leaf(ix, i);
        prune(ix, parent); /* takes ancestors, all newer: `older` stays */
        i = older >= 0 ? ix->nodes[older].newer : ix->oldest;
    }
}

int prefix_evict(prefix_index *ix, int n)
{
    const int before = ix->kv->pages.n_free;

    evict_some(ix, n, before, 1);
    evict_some(ix, n, before, 0);
    return ix->kv->pages.n_free - before;
}

/* Node a's snapshot goes before node b's: it saves less; or as much, and a conversation went on behind it alone. */
static int goes_before(const prefix_node *a, const prefix_node *b)
{
    return a->value < b->value || (a->value == b->value && a->children > 0 && b->children == 0);
}

/* The snapshot that saves least, of equals the least recently used one; -1: none. */
static int worst_snap(prefix_index *ix, int over)
{
    int worst = -1;

    for (int i = ix->oldest; i >= 0; i = ix->nodes[i].newer)
        if (ix->nodes[i].snap >= 0 && (!over || is_over(ix, i, 1)) &&
            (worst < 0 || goes_before(&ix->nodes[i], &ix->nodes[worst])))
            worst = i;
    return worst;
}

int prefix_take_snap(prefix_index *ix)
{
    int worst, id = page_pool_take(&ix->kv->snaps);

    if (id >= 0)
        return id;
    if ((worst = worst_snap(ix, 1)) < 0)
        worst = worst_snap(ix, 0);
    if (worst < 0)
        return -1;
    ix->age = ix->nodes[worst].value;
    drop_snap(ix, worst);
    prune(ix, worst);
    return page_pool_take(&ix->kv->snaps);
}

void prefix_clear(prefix_index *ix)
{
    const uint64_t pages = ix->evicted_pages, snaps = ix->evicted_snaps;

    ix->why = PREFIX_CLEARED;
    while (ix->oldest >= 0)
        remove_leaf(ix, ix->oldest);
    ix->why = 0;
    ix->evicted_pages = pages;
    ix->evicted_snaps = snaps;
}

/* ---- entering ---- */

static int add_node(prefix_index *ix, int parent, const unsigned char *salt, const int32_t *tokens, int page)
{
    const uint32_t hash = hash_block(ix, parent, salt, tokens);
    const int i = ix->unused;
    prefix_node *n = &ix->nodes[i];
    int32_t *bucket = &ix->buckets[hash & (uint32_t)(ix->n_buckets - 1)];

    assert(i >= 0); /* one node per page, and no page twice */
    assert(parent < 0 || ix->nodes[parent].depth != PREFIX_GONE);
    ix->unused = n->next;
    n->parent = parent;
    n->depth = parent < 0 ? 0 : ix->nodes[parent].depth + 1;
    n->children = 0;
    n->page = page;
    n->snap = -1;
    n->hash = hash;
    n->owner = ix->owner;
    n->next = *bucket;
    *bucket = i;
    memcpy(n->salt, salt, PREFIX_SALT);
    memcpy(n->tokens, tokens, sizeof n->tokens);
    prefix_block_id(ix, parent < 0 ? NULL : ix->nodes[parent].id, salt, tokens, n->id);
    if (parent >= 0)
        ix->nodes[parent].children++;
    page_pool_ref(&ix->kv->pages, page);
    page_pool_mark(&ix->kv->pages, page, 1);
    count_node(ix, i, 1);
    ix->changes++;
    if (ix->watch)
        ix->watch->enters(ix->watch->user, i);
    return i;
}

/* Gives node i the snapshot of its position, if the list has one. */
static void attach_snap(prefix_index *ix, int i, const prefix_snap *snaps, int n)
{
    for (int k = 0; k < n; k++) {
        if (snaps[k].pages != ix->nodes[i].depth + 1)
            continue;
        if (ix->nodes[i].snap < 0) {
            ix->nodes[i].snap = snaps[k].id;
            count_snap(ix, i, 1);
            ix->nodes[i].value = ix->age + saved_tokens(ix, i);
            if (ix->watch)
                ix->watch->snap_enters(ix->watch->user, i);
        } else if (ix->nodes[i].snap != snaps[k].id) {
            kv_snapshot_free(ix->kv, snaps[k].id);
        }
    }
}

/* Returns n_pages if pages suffice, else the last position that has a snapshot. */
static int useful_pages(const prefix_index *ix, int n_pages, const prefix_snap *snaps, int n)
{
    int last = 0;

    if (kv_pages_suffice(ix->kv))
        return n_pages;
    for (int k = 0; k < n; k++)
        if (snaps[k].pages > last && snaps[k].pages <= n_pages)
            last = snaps[k].pages;
    return last;
}

/* Forgets the block of tokens and everything behind it. */
static void forget_from(prefix_index *ix, int node)
{
    for (int i = ix->oldest, newer; i >= 0 && ix->nodes[node].children > 0; i = newer) {
        int up = i;
        newer = ix->nodes[i].newer;
        while (up >= 0 && up != node)
            up = prefix_up(ix, up);
        if (up == node && i != node) /* descendants are older than their ancestors: i is a leaf by now */
            remove_leaf(ix, i);
    }
    remove_leaf(ix, node);
}

void prefix_forget(prefix_index *ix, const unsigned char *salt, const int32_t *tokens)
{
    const int node = prefix_child(ix, -1, salt, tokens);

    ix->why = PREFIX_FORGOTTEN;
    if (node >= 0)
        forget_from(ix, node);
    ix->why = 0;
}

/* Somebody else holds the page of block p and not the page that the index has for the block before: it resumed here
 * when that block had another page.  Entered below, the page would be in use under one that counts as idle. */
static int held_otherwise(const prefix_index *ix, int parent, int p, int page)
{
    const kv_cache *kv = ix->kv;

    for (int i = 0; i < kv->cfg.max_seqs && parent >= 0 && kv->pages.refs[page] > 1; i++)
        if (kv->seqs[i].used && p < kv_pages_held(kv, i) && kv->seqs[i].table[p] == page &&
            kv->seqs[i].table[p - 1] != ix->nodes[parent].page)
            return 1;
    return 0;
}

void prefix_insert(prefix_index *ix, const unsigned char *salt, const int32_t *tokens, int seq, int n_pages,
                   const prefix_snap *snaps, int n_snaps)
{
    int at = -1;

    n_pages = useful_pages(ix, n_pages, snaps, n_snaps);
    for (int p = 0; p < n_pages; p++) {
        const int32_t *block = tokens + (size_t)p * KVANT_PAGE;
        const int page = ix->kv->seqs[seq].table[p];
        int child = prefix_child(ix, at, salt, block);
        if (child < 0 && held_otherwise(ix, at, p, page)) {
            n_pages = p;
            break;
        }
        if (child < 0) {
            child = add_node(ix, at, salt, block, page);
            list_add(ix, child, ix->newest);
        }
        at = child;
        kv_seq_adopt(ix->kv, seq, p, ix->nodes[at].page);
        attach_snap(ix, at, snaps, n_snaps);
    }
    for (int k = 0; k < n_snaps; k++)
        if (snaps[k].pages > n_pages)
            kv_snapshot_free(ix->kv, snaps[k].id);
    ix->changes++;
    prefix_touch(ix, at);
    prune(ix, at);
}

/* ---- loading ---- */

int prefix_append(prefix_index *ix, int parent, const unsigned char *salt, const int32_t *tokens, int page)
{
    const int i = add_node(ix, parent, salt, tokens, page);

    list_add(ix, i, -1);
    return i;
}

void prefix_give_snap(prefix_index *ix, int node, int snap)
{
    count_snap(ix, node, (snap >= 0) - (ix->nodes[node].snap >= 0));
    ix->nodes[node].snap = snap;
    if (snap >= 0)
        ix->nodes[node].value = ix->age + saved_tokens(ix, node);
    if (snap >= 0 && ix->watch)
        ix->watch->snap_enters(ix->watch->user, node);
    ix->changes++;
}

void prefix_trim(prefix_index *ix)
{
    if (kv_pages_suffice(ix->kv))
        return;
    for (int i = ix->oldest, newer; i >= 0; i = newer) { /* children are older: gone before their parents come */
        newer = ix->nodes[i].newer;
        if (i != ix->held && ix->nodes[i].children == 0 && ix->nodes[i].snap < 0)
            remove_leaf(ix, i);
    }
}
