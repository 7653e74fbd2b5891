/* session_blocks.c: tells outside which blocks the prefix cache has (kvant_session_params.kv_event).
 *
 * Blocks that follow on each other are told together, in the order in which they came and went.  In a model where only
 * positions with a snapshot can be resumed the index holds no block behind the last one (cache/prefix.h); an event ends
 * at each such position, so that the last block of every event is one. */
#include <string.h>

#include "base/mem.h"
#include "engine/session_impl.h"

/* The first bytes of the id. */
static uint64_t hash_of(const prefix_node *n)
{
    uint64_t h;

    memcpy(&h, n->id, sizeof h);
    return h;
}

static void tell_came(kvant_session *s)
{
    block_run *r = &s->blocks->came;
    const kvant_kv_event ev = { .kind = KVANT_KV_STORED,
                                .medium = r->medium,
                                .n = r->n,
                                .hashes = r->hashes,
                                .has_parent = r->has_parent,
                                .parent = r->parent,
                                .tokens = r->tokens };

    if (r->n > 0)
        s->p.kv_event(s->p.kv_event_user, &ev);
    r->n = 0;
    r->at = -1;
}

static void tell_went(kvant_session *s)
{
    block_list *l = &s->blocks->went;
    const kvant_kv_event ev = { .kind = KVANT_KV_REMOVED, .medium = l->medium, .n = l->n, .hashes = l->hashes };

    if (l->n > 0)
        s->p.kv_event(s->p.kv_event_user, &ev);
    l->n = 0;
}

void blocks_tell(kvant_session *s)
{
    if (!s->blocks)
        return;
    tell_came(s);
    tell_went(s);
}

/* ---- what the index says ---- */

static void run_begin(block_run *r, const prefix_index *ix, const prefix_node *n)
{
    r->medium = KVANT_KV_POOL;
    r->has_parent = n->parent >= 0;
    r->parent = n->parent >= 0 ? hash_of(&ix->nodes[n->parent]) : 0;
}

static void enters(void *user, int node)
{
    kvant_session *s = user;
    const prefix_node *n = &s->prefix.nodes[node];
    block_run *r = &s->blocks->came;

    tell_went(s);
    if (r->n == BLOCKS_MOST || (r->n > 0 && r->at != n->parent))
        tell_came(s);
    if (r->n == 0)
        run_begin(r, &s->prefix, n);
    r->hashes[r->n] = hash_of(n);
    memcpy(r->tokens + (size_t)r->n * KVANT_PAGE, n->tokens, sizeof n->tokens);
    r->n++;
    r->at = node;
}

static void snap_enters(void *user, int node)
{
    kvant_session *s = user;

    if (s->blocks->came.n > 0 && s->blocks->came.at == node && !s->pages_suffice)
        tell_came(s);
}

static void leaves(void *user, int node, int why)
{
    kvant_session *s = user;
    const prefix_node *n = &s->prefix.nodes[node];
    block_list *l = &s->blocks->went;

    if (why == PREFIX_CLEARED)
        return; /* blocks_cleared says so */
    if (s->blocks->came.n > 0 && s->blocks->came.at == node) { /* nobody heard of it */
        s->blocks->came.n--;
        s->blocks->came.at = n->parent;
        return;
    }
    tell_came(s);
    if (l->n == BLOCKS_MOST)
        tell_went(s);
    l->medium = KVANT_KV_POOL;
    l->hashes[l->n++] = hash_of(n);
}

static void snap_leaves(void *user, int node, int why)
{
    (void)user; /* the blocks stay, or leave by themselves */
    (void)node;
    (void)why;
}

void blocks_cleared(kvant_session *s)
{
    const kvant_kv_event ev = { .kind = KVANT_KV_CLEARED };

    if (!s->blocks)
        return;
    blocks_tell(s);
    s->p.kv_event(s->p.kv_event_user, &ev);
}

int blocks_create(kvant_session *s, kvant_diag *diag)
{
    if (!s->p.kv_event)
        return KVANT_OK;
    s->blocks = kvant_calloc(1, sizeof *s->blocks);
    if (!s->blocks)
        return kvant_fail(diag, KVANT_ENOMEM, "session: out of memory for its events");
    s->blocks->came.at = -1;
    KVANT_TRY(snapshot_identity(s->e, s->prefix.seed, diag));
    s->blocks->watch = (prefix_watch){
        .user = s, .enters = enters, .snap_enters = snap_enters, .leaves = leaves, .snap_leaves = snap_leaves
    };
    s->prefix.watch = &s->blocks->watch;
    return KVANT_OK;
}
