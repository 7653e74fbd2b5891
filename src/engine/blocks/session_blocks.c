/* session_blocks.c: tells outside which blocks the prefix cache has (kvant_session_params.kv_event).
 *
 * Blocks that follow on each other are told together, in the order in which they came and went.  In a model where only
 * positions with a snapshot can be resumed the index holds no block behind the last one (cache/prefix.h); an event ends
 * at each such position, so that the last block of every event is one.  Blocks of host memory are told where any of
 * them can be resumed from; those of a folder are every worker's, so no event tells them. */
#include "engine/blocks/session_blocks.h"

#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"

/* The first bytes of the id. */
uint64_t block_hash(const unsigned char *id)
{
    uint64_t h;

    memcpy(&h, id, sizeof h);
    return h;
}

static void tell_came(kvant_session *s)
{
    block_run *r = &s->blocks->came;
    const kvant_kv_event ev = { .kind = KVANT_KV_STORED,
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
    const kvant_kv_event ev = { .kind = KVANT_KV_REMOVED, .n = l->n, .hashes = l->hashes };

    if (l->n > 0)
        s->p.kv_event(s->p.kv_event_user, &ev);
    l->n = 0;
}

void blocks_tell(kvant_session *s)
{
    if (!s->blocks || !s->blocks->told)
        return;
    tell_came(s);
    tell_went(s);
}

/* ---- host memory ---- */

int blocks_tell_host(const kvant_session *s)
{
    return s->blocks->told && s->pages_suffice;
}

void blocks_host_came(kvant_session *s, const prefix_node *n)
{
    const uint64_t hash = block_hash(n->id), parent = n->parent < 0 ? 0 : block_hash(s->prefix.nodes[n->parent].id);
    const kvant_kv_event ev = { .kind = KVANT_KV_STORED,
                                .medium = KVANT_KV_HOST,
                                .n = 1,
                                .hashes = &hash,
                                .has_parent = n->parent >= 0,
                                .parent = parent,
                                .tokens = n->tokens };

    if (!blocks_tell_host(s))
        return;
    blocks_tell(s);
    s->p.kv_event(s->p.kv_event_user, &ev);
}

void blocks_host_went(kvant_session *s, const unsigned char *id)
{
    const uint64_t hash = block_hash(id);
    const kvant_kv_event ev = { .kind = KVANT_KV_REMOVED, .medium = KVANT_KV_HOST, .n = 1, .hashes = &hash };

    if (!blocks_tell_host(s))
        return;
    blocks_tell(s);
    s->p.kv_event(s->p.kv_event_user, &ev);
}

/* ---- the index ---- */

static void run_begin(block_run *r, const prefix_index *ix, const prefix_node *n)
{
    r->has_parent = n->parent >= 0;
    r->parent = n->parent >= 0 ? block_hash(ix->nodes[n->parent].id) : 0;
}

static void tell_enters(kvant_session *s, int node)
{
    const prefix_node *n = &s->prefix.nodes[node];
    block_run *r = &s->blocks->came;

    tell_went(s);
    if (r->n == BLOCKS_MOST || (r->n > 0 && r->at != n->parent))
        tell_came(s);
    if (r->n == 0)
        run_begin(r, &s->prefix, n);
    r->hashes[r->n] = block_hash(n->id);
    memcpy(r->tokens + (size_t)r->n * KVANT_PAGE, n->tokens, sizeof n->tokens);
    r->n++;
    r->at = node;
}

static void tell_leaves(kvant_session *s, int node)
{
    const prefix_node *n = &s->prefix.nodes[node];
    block_list *l = &s->blocks->went;

    if (s->blocks->came.n > 0 && s->blocks->came.at == node) { /* nobody heard of it */
        s->blocks->came.n--;
        s->blocks->came.at = n->parent;
        return;
    }
    tell_came(s);
    if (l->n == BLOCKS_MOST)
        tell_went(s);
    l->hashes[l->n++] = block_hash(n->id);
}

/* The node, and those before it that were not told yet. */
static void tell_quiet(kvant_session *s, int node)
{
    session_blocks *b = s->blocks;
    int n = 0;

    for (int i = node; b->quiet && i >= 0 && b->quiet[i]; i = prefix_up(&s->prefix, i))
        b->path[n++] = i;
    while (n-- > 0) {
        b->quiet[b->path[n]] = 0;
        tell_enters(s, b->path[n]);
    }
}

static void enters(void *user, int node)
{
    kvant_session *s = user;

    if (s->blocks->told && s->blocks->fetching && s->blocks->quiet) {
        s->blocks->quiet[node] = 1;
    } else if (s->blocks->told) {
        tell_quiet(s, s->prefix.nodes[node].parent);
        tell_enters(s, node);
    }
    tiers_enters(s, &s->prefix.nodes[node], BLOCK_PAGE);
}

static void snap_enters(void *user, int node)
{
    kvant_session *s = user;

    tell_quiet(s, node);
    if (s->blocks->came.n > 0 && s->blocks->came.at == node && !s->pages_suffice)
        tell_came(s);
    tiers_enters(s, &s->prefix.nodes[node], BLOCK_STATE);
}

static void leaves(void *user, int node, int why)
{
    kvant_session *s = user;
    unsigned char *quiet = s->blocks->quiet;

    tiers_leaves(s, &s->prefix.nodes[node], BLOCK_PAGE, why);
    if (s->blocks->told && why != PREFIX_CLEARED && !(quiet && quiet[node])) /* blocks_cleared says so */
        tell_leaves(s, node);
    if (quiet)
        quiet[node] = 0;
}

static void snap_leaves(void *user, int node, int why)
{
    kvant_session *s = user;

    tiers_leaves(s, &s->prefix.nodes[node], BLOCK_STATE, why);
}

/* ---- open, close ---- */

void blocks_cleared(kvant_session *s)
{
    const kvant_kv_event ev = { .kind = KVANT_KV_CLEARED };

    if (!s->blocks)
        return;
    host_tier_clear(&s->blocks->host);
    blocks_tell(s);
    if (s->blocks->told)
        s->p.kv_event(s->p.kv_event_user, &ev);
}

void blocks_end(kvant_session *s)
{
    blocks_cleared(s);
    if (s->blocks)
        s->blocks->told = 0;
}

/* The fingerprint of files, the type of states, which their headers have apart, and the devices: each kind has bits of
 * its own. */
static int make_seed(kvant_session *s, kvant_diag *diag)
{
    struct {
        unsigned char fingerprint[STORE_FINGERPRINT];
        int32_t state_type, zero;
        uint64_t devices;
    } text = { .state_type = s->e->kv.cfg.state_type, .devices = snapshot_devices(s->e) };

    KVANT_TRY(snapshot_identity(s->e, text.fingerprint, diag));
    sha256(&text, sizeof text, s->prefix.seed);
    return KVANT_OK;
}

static int make_quiet(kvant_session *s, kvant_diag *diag)
{
    const size_t n = (size_t)s->e->kv.pages.n;

    s->blocks->quiet = kvant_calloc(n, sizeof *s->blocks->quiet);
    s->blocks->path = kvant_calloc(n, sizeof *s->blocks->path);
    return s->blocks->quiet && s->blocks->path
               ? KVANT_OK
               : kvant_fail(diag, KVANT_ENOMEM, "session: out of memory for %zu blocks", n);
}

int blocks_create(kvant_session *s, kvant_diag *diag)
{
    if (s->p.no_prefix_cache || (!s->p.kv_event && !s->p.host_bytes && !s->p.store_dir))
        return KVANT_OK;
    s->blocks = kvant_calloc(1, sizeof *s->blocks);
    if (!s->blocks)
        return kvant_fail(diag, KVANT_ENOMEM, "session: out of memory for its blocks");
    s->blocks->told = s->p.kv_event != NULL;
    s->blocks->came.at = -1;
    if (s->blocks->told && !s->pages_suffice)
        KVANT_TRY(make_quiet(s, diag));
    KVANT_TRY(make_seed(s, diag));
    KVANT_TRY(tiers_create(s, diag));
    s->blocks->watch = (prefix_watch){
        .user = s, .enters = enters, .snap_enters = snap_enters, .leaves = leaves, .snap_leaves = snap_leaves
    };
    s->prefix.watch = &s->blocks->watch;
    return KVANT_OK;
}

void blocks_close(kvant_session *s)
{
    if (!s->blocks)
        return;
    tiers_close(s);
    kvant_free(s->blocks->quiet);
    kvant_free(s->blocks->path);
    kvant_free(s->blocks);
    s->blocks = NULL;
}
