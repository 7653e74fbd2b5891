/* session_tiers.c: prefixes beyond the pool.  Pages and snapshots that the pool gives up go to host memory; those that
 * enter the index are also written to a folder, when there is one, so that a worker that starts anew, or another one,
 * finds them.  A request whose prompt goes on in either gets its blocks into the index before it is planned, and then
 * resumes as if they had never left.
 *
 * Fetched blocks take pages that nobody holds: free ones, or the least recently used of the index.  Neither number of
 * pages that can be had changes by that. */
#include "engine/blocks/session_blocks.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { TURN_NS = 20000000 }; /* of one tick, while others run; arbitrary, not tuned */

/* ---- what comes and goes ---- */

void tiers_enters(kvant_session *s, const prefix_node *n, int what)
{
    session_blocks *b = s->blocks;

    if (!b->fetching && (what == BLOCK_PAGE || n->snap >= 0))
        store_folder_put(&b->store, n->id, what, what == BLOCK_PAGE ? n->page : n->snap);
}

static void to_host(kvant_session *s, const prefix_node *n, int what)
{
    session_blocks *b = s->blocks;
    kv_cache *kv = &s->e->kv;

    if (b->host.most == 0 || host_tier_find(&b->host, n->id, what))
        return;
    host_entry *e = host_tier_add(&b->host, n->id, what, store_image_bytes(kv, what));
    if (!e)
        return;
    if (store_read_image(kv, what, what == BLOCK_PAGE ? n->page : n->snap, e->image, NULL) < 0)
        host_tier_drop(&b->host, n->id, what); /* a lost device: the session ends by it */
    else if (what == BLOCK_PAGE)
        blocks_host_came(s, n);
}

static void forget(kvant_session *s, const unsigned char *id, int what)
{
    session_blocks *b = s->blocks;

    if (what == BLOCK_PAGE && host_tier_find(&b->host, id, what))
        blocks_host_went(s, id);
    host_tier_drop(&b->host, id, what);
    store_folder_remove(&b->store, id, what);
}

void tiers_leaves(kvant_session *s, const prefix_node *n, int what, int why)
{
    if (why == PREFIX_EVICTED)
        to_host(s, n, what);
    else if (why == PREFIX_FORGOTTEN)
        forget(s, n->id, what);
}

/* The blocks of the prompt, in the index or not. */
void tiers_forget(kvant_session *s, const request *q)
{
    unsigned char id[PREFIX_ID];

    for (int p = 0; s->blocks && p < q->r.n_prompt / KVANT_PAGE; p++) {
        prefix_block_id(&s->prefix, p > 0 ? id : NULL, q->share, q->tokens + (size_t)p * KVANT_PAGE, id);
        forget(s, id, BLOCK_PAGE);
        forget(s, id, BLOCK_STATE);
    }
}

/* ---- what a prompt finds ---- */

static int has(session_blocks *b, const unsigned char *id, int what)
{
    return host_tier_find(&b->host, id, what) || store_folder_has(&b->store, id, what);
}

/* The image of a block, in host memory or in s->blocks->image; NULL: it is not there any more. */
static const uint8_t *get(kvant_session *s, const unsigned char *id, int what)
{
    session_blocks *b = s->blocks;
    const host_entry *e = host_tier_find(&b->host, id, what);

    if (e) {
        b->host_hits += what == BLOCK_PAGE;
        return e->image;
    }
    if (!b->store.is_open || !store_folder_get(&b->store, id, what, b->image))
        return NULL;
    b->store_hits += what == BLOCK_PAGE;
    return b->image;
}

/* How far the tiers take a prompt. */
typedef struct reach {
    int known, node; /* blocks of the index, and the last of them */
    int end;         /* blocks to resume from; at most known: nothing is to be fetched */
} reach;

static reach look(const kvant_session *s, const request *q)
{
    const prefix_index *ix = &s->prefix;
    const int most = (q->r.n_prompt - 1) / KVANT_PAGE;
    reach r = { .node = -1, .end = q->hit.pages };
    unsigned char id[PREFIX_ID];

    for (int p = 0; p < most; p++) {
        const int32_t *block = q->tokens + (size_t)p * KVANT_PAGE;
        const int child = r.known == p ? prefix_child(ix, r.node, q->share, block) : -1;
        prefix_block_id(ix, p > 0 ? id : NULL, q->share, block, id);
        if (child >= 0) {
            r.node = child;
            r.known = p + 1;
        } else if (!has(s->blocks, id, BLOCK_PAGE)) {
            break;
        }
        if (p >= r.end && (s->pages_suffice || has(s->blocks, id, BLOCK_STATE)))
            r.end = p + 1;
    }
    return r;
}

/* ---- fetching ---- */

/* A page for the block behind `node`; -1: there is none but those of its own prefix. */
static int take_page(kvant_session *s, int node)
{
    page_pool *pool = &s->e->kv.pages;

    s->prefix.held = node;
    if (pool->n_free == 0)
        prefix_evict(&s->prefix, 1);
    return page_pool_take(pool);
}

/* Block p of the prompt enters the index below *node. */
static int fetch_page(kvant_session *s, const request *q, int p, const unsigned char *id, int *node)
{
    const int page = take_page(s, *node); /* first: what it evicts may take the block's place in host memory */

    if (page < 0)
        return 0;
    const uint8_t *image = get(s, id, BLOCK_PAGE);
    const int ok = image && store_write_page(&s->e->kv, page, image, NULL) == KVANT_OK;
    if (ok)
        *node = prefix_append(&s->prefix, *node, q->share, q->tokens + (size_t)p * KVANT_PAGE, page);
    page_pool_unref(&s->e->kv.pages, page);
    if (ok)
        prefix_touch(&s->prefix, *node);
    return ok;
}

static void fetch_state(kvant_session *s, int node)
{
    kv_cache *kv = &s->e->kv;
    const prefix_node *n = &s->prefix.nodes[node];

    s->prefix.held = node;
    int snap = prefix_take_snap(&s->prefix);
    if (snap < 0)
        return;
    page_pool_unref(&kv->snaps, snap); /* the next one that is taken */
    const uint8_t *image = get(s, n->id, BLOCK_STATE);
    if (image && store_write_snap(kv, n->depth, image, &snap, NULL) == KVANT_OK)
        prefix_give_snap(&s->prefix, node, snap);
}

/* A file was damaged: the others of this prompt from block p on are looked at too, so that all that are damaged are
 * written anew when it has been evaluated. */
static void look_at_rest(kvant_session *s, const request *q, int p, int end, const unsigned char *before)
{
    session_blocks *b = s->blocks;
    unsigned char id[PREFIX_ID];

    memcpy(id, before, sizeof id);
    for (; p < end; p++) {
        for (int what = BLOCK_PAGE; what <= BLOCK_STATE; what++)
            if (store_folder_has(&b->store, id, what))
                store_folder_get(&b->store, id, what, b->image);
        if (p + 1 < end)
            prefix_block_id(&s->prefix, id, q->share, q->tokens + (size_t)(p + 1) * KVANT_PAGE, id);
    }
}

/* 1: done; 0: time is over, the rest comes in the next tick. */
static int fetch(kvant_session *s, const request *q, int64_t until)
{
    session_blocks *b = s->blocks;
    const uint64_t damaged = atomic_load(&b->store.damaged);
    reach r = look(s, q);
    unsigned char id[PREFIX_ID];
    int p = 0;

    if (r.end <= q->hit.pages)
        return 1;
    s->prefix.owner = q->r.tenant;
    prefix_touch(&s->prefix, r.node);
    for (; p < r.end; p++) {
        prefix_block_id(&s->prefix, p > 0 ? id : NULL, q->share, q->tokens + (size_t)p * KVANT_PAGE, id);
        if (p < r.known)
            continue;
        if (clock_ns() > until)
            return 0;
        if (!fetch_page(s, q, p, id, &r.node)) {
            if (atomic_load(&b->store.damaged) != damaged)
                look_at_rest(s, q, p, r.end, id);
            break;
        }
    }
    while (p == r.end && s->prefix.nodes[r.node].depth >= r.end)
        r.node = prefix_up(&s->prefix, r.node);
    if (p == r.end && !s->pages_suffice && s->prefix.nodes[r.node].snap < 0)
        fetch_state(s, r.node);
    return 1;
}

int tiers_want(const kvant_session *s, const request *q)
{
    const session_blocks *b = s->blocks;

    return b && (b->store.is_open || b->host.most > 0) && !q->looked.beyond && !q->saved && !q->paused &&
           !(q->r.cache & KVANT_CACHE_NO_READ) && !slots_continues(s, q);
}

void tiers_fetch(kvant_session *s, request *const *list, int n)
{
    session_blocks *b = s->blocks;
    const int64_t until = s->n_running > 0 ? clock_ns() + TURN_NS : INT64_MAX;
    int cut = 0;

    if (!b)
        return;
    b->fetching = 1;
    for (int i = 0; i < n && !cut; i++)
        if (tiers_want(s, list[i])) {
            prefix_find(&s->prefix, list[i]->share, list[i]->tokens, list[i]->r.n_prompt, &list[i]->hit);
            list[i]->looked.beyond = fetch(s, list[i], until);
            cut = !list[i]->looked.beyond;
            s->prefix.held = -1;
        }
    if (!cut)
        prefix_trim(&s->prefix); /* what nothing can be resumed from: a state was not there any more */
    b->fetching = 0;
}

/* ---- open, close ---- */

static void host_drops(void *user, const host_entry *e)
{
    if (e->what == BLOCK_PAGE)
        blocks_host_went(user, e->id);
}

int tiers_create(kvant_session *s, kvant_diag *diag)
{
    session_blocks *b = s->blocks;
    const kv_cache *kv = &s->e->kv;
    const size_t page = store_image_bytes(kv, BLOCK_PAGE), state = store_image_bytes(kv, BLOCK_STATE);
    store_key key = { .vocab = s->n_vocab };

    KVANT_TRY(host_tier_create(&b->host, s->p.host_bytes, diag));
    b->host.drops = host_drops;
    b->host.user = s;
    if (!s->p.store_dir)
        return KVANT_OK;
    b->image = kvant_alloc(page + state + PREFIX_ID + 64); /* a file's head is read into it too */
    if (!b->image)
        return kvant_fail(diag, KVANT_ENOMEM, "--kv-store: out of memory for %zu bytes", page + state);
    KVANT_TRY(snapshot_identity(s->e, key.fingerprint, diag));
    return store_folder_open(&b->store, kv, &key, s->p.store_dir, s->p.store_bytes, diag);
}

void tiers_close(kvant_session *s)
{
    store_folder_close(&s->blocks->store);
    host_tier_destroy(&s->blocks->host);
    kvant_free(s->blocks->image);
}

void tiers_stats(const kvant_session *s, kvant_session_stats *st)
{
    const session_blocks *b = s->blocks;

    if (!b)
        return;
    st->host_bytes = b->host.most;
    st->host_bytes_used = b->host.bytes;
    st->host_hits = b->host_hits;
    st->store_hits = b->store_hits;
    st->store_written = atomic_load(&b->store.written);
    st->store_dropped = atomic_load(&b->store.dropped);
    st->store_damaged = atomic_load(&b->store.damaged);
}
