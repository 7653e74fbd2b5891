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

enum { TURN_NS = 20000000 }; /* of one tick; arbitrary, not tuned */

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

/* The first blocks of the prompt that the index knows, at most `most`; *node: the last of them. */
static int known_blocks(const kvant_session *s, const request *q, int most, int *node)
{
    int p = 0, child;

    *node = -1;
    for (; p < most; p++) {
        child = prefix_child(&s->prefix, *node, q->share, q->tokens + (size_t)p * KVANT_PAGE);
        if (child < 0)
            break;
        *node = child;
    }
    return p;
}

/* 1: the next block is in the index or beyond it.  *node: of the blocks until now, if all are in the index; else -2. */
static int look_at(kvant_session *s, request *q, int *node)
{
    const prefix_index *ix = &s->prefix;
    prefix_looked *l = &q->looked;
    const int32_t *block = q->tokens + (size_t)l->n * KVANT_PAGE;
    const int child = *node >= -1 ? prefix_child(ix, *node, q->share, block) : -1;

    *node = child >= 0 ? child : -2;
    if (child >= 0)
        memcpy(l->id, ix->nodes[child].id, sizeof l->id);
    else
        prefix_block_id(ix, l->n > 0 ? l->id : NULL, q->share, block, l->id);
    if (child < 0 && !has(s->blocks, l->id, BLOCK_PAGE))
        return 0;
    l->n++;
    if (l->n > q->hit.pages && (s->pages_suffice || has(s->blocks, l->id, BLOCK_STATE)))
        l->end = l->n;
    return 1;
}

/* How far the tiers take the prompt: looked.end.  It goes on where the last tick left it.  0: time is over. */
static int look(kvant_session *s, request *q, int64_t until)
{
    const int most = (q->r.n_prompt - 1) / KVANT_PAGE;
    int node;

    if (known_blocks(s, q, q->looked.n, &node) < q->looked.n)
        node = -2;
    while (q->looked.n < most && look_at(s, q, &node))
        if (clock_ns() >= until && q->looked.n < most)
            return 0;
    q->looked.stage = LOOKED_FETCH;
    return 1;
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
    s->blocks->untrimmed |= ok;
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

/* A file was damaged: the others of this prompt are looked at too, so that all that are damaged are written anew when
 * it has been evaluated. */
static int look_at_rest(kvant_session *s, request *q, int64_t until)
{
    session_blocks *b = s->blocks;
    prefix_looked *l = &q->looked;

    while (l->n < l->end) {
        for (int what = BLOCK_PAGE; what <= BLOCK_STATE; what++)
            if (store_folder_has(&b->store, l->id, what))
                store_folder_get(&b->store, l->id, what, b->image);
        if (++l->n < l->end)
            prefix_block_id(&s->prefix, l->id, q->share, q->tokens + (size_t)l->n * KVANT_PAGE, l->id);
        if (clock_ns() >= until)
            break;
    }
    return l->n >= l->end;
}

/* 1: done, or there is no more; 0: time is over. */
static int fetch(kvant_session *s, request *q, int64_t until)
{
    session_blocks *b = s->blocks;
    prefix_looked *l = &q->looked;
    const uint64_t damaged = atomic_load(&b->store.damaged);
    int node, p = known_blocks(s, q, l->end, &node);

    if (l->end <= q->hit.pages || l->fetched >= 2 * l->end) /* twice: others evicted them meanwhile */
        return 1;
    s->prefix.owner = q->r.tenant;
    prefix_touch(&s->prefix, node);
    for (; p < l->end; p++) {
        prefix_block_id(&s->prefix, node < 0 ? NULL : s->prefix.nodes[node].id, q->share,
                        q->tokens + (size_t)p * KVANT_PAGE, l->id);
        l->fetched++;
        if (!fetch_page(s, q, p, l->id, &node))
            break;
        if (clock_ns() >= until && p + 1 < l->end)
            return 0;
    }
    l->n = p;
    if (atomic_load(&b->store.damaged) != damaged)
        l->stage = LOOKED_REST;
    if (p == l->end && !s->pages_suffice && s->prefix.nodes[node].snap < 0)
        fetch_state(s, node);
    return 1;
}

/* At least one block of the request is looked for or, where it may, fetched.  1: that was all; 0: the rest comes in the
 * next tick. */
static int take_turn(kvant_session *s, request *q, int may_fetch, int64_t until)
{
    int done = 1;

    prefix_find(&s->prefix, q->share, q->tokens, q->r.n_prompt, &q->hit);
    if (q->looked.stage == LOOKED_AT)
        done = look(s, q, until);
    if (done && q->looked.stage == LOOKED_FETCH)
        done = may_fetch && fetch(s, q, until);
    if (done && q->looked.stage == LOOKED_REST)
        done = look_at_rest(s, q, until);
    s->prefix.held = -1;
    return done;
}

int tiers_want(const kvant_session *s, const request *q)
{
    const session_blocks *b = s->blocks;

    return b && (b->store.is_open || b->host.most > 0) && !q->looked.beyond && !q->saved.data && !q->pause.now &&
           !(q->r.cache & KVANT_CACHE_NO_READ) && !slots_continues(s, q);
}

void tiers_fetch(kvant_session *s, request *const *list, int n)
{
    session_blocks *b = s->blocks;
    int cut = 0, looks = 0;

    if (!b)
        return;
    const int64_t until = clock_ns() + b->turn_ns;
    b->fetching = 1;
    for (int i = 0; i < n; i++)
        if (tiers_want(s, list[i])) {
            /* one fetches at a time: two would evict each other's without end */
            list[i]->looked.beyond = take_turn(s, list[i], !cut, until);
            cut |= !list[i]->looked.beyond && list[i]->looked.stage != LOOKED_AT;
            looks |= !list[i]->looked.beyond;
        }
    if (b->untrimmed && !looks) {
        prefix_trim(&s->prefix); /* what nothing can be resumed from: a state was not there any more */
        b->untrimmed = 0;
    }
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

    b->turn_ns = TURN_NS;
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
