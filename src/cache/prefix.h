/* cache/prefix.h: the prefix index: which full pages and which state snapshots follow from which tokens.
 *
 * A tree of 64-token blocks.  A node is one page: found by (parent node, hash of its tokens), and its tokens, at the
 * root also the tenant's salt, are compared on every hit: equal nodes mean equal prefixes, whatever the hash does.
 * A node may own a snapshot: the state after its last token.  The length for which pages exist and the length at which
 * a sequence can be resumed are two numbers; only the second is a hit.
 *
 * The index holds one reference on each of its pages and owns its snapshots.  Pages shared with live sequences stay;
 * the others ("idle") are what prefix_evict can free, least recently used first and never before their descendants.
 * A sequence that holds the page of a node holds the pages of all its ancestors: it resumed there, or it entered the
 * node and adopted the pages of the blocks that were known.  Hence no idle page has a descendant in use, and every
 * idle page can be had.
 * A tenant that holds more than its part (all nodes, or snapshots, by those who hold any) loses its own first, so that
 * nobody's flood of prompts evicts another one's prefix.
 * Snapshots go by GreedyDual: the one that saves the fewest tokens over its nearest ancestor, aged by use, so that
 * useful ancestors outlive a dense row of neighbours.  Full pages and snapshots are never written again: sharing needs
 * no copy on write.  Memory is taken once: one node per page of the pool.  Owner thread only. */
#ifndef KVANT_CACHE_PREFIX_H
#define KVANT_CACHE_PREFIX_H

#include "cache/kv.h"

enum { PREFIX_SALT = 16, PREFIX_OWNERS = 256, PREFIX_ID = 32, PREFIX_GONE = -1 };
enum { PREFIX_EVICTED = 1, PREFIX_FORGOTTEN = 2, PREFIX_CLEARED = 3 }; /* why a block or a snapshot leaves */

/* The functions that are told what comes and goes (engine/blocks/session_blocks.c).  Called while the node is whole:
 * its page and its snapshot can be read.  The index must not be changed from there. */
typedef struct prefix_watch {
    void *user;
    void (*enters)(void *user, int node);
    void (*snap_enters)(void *user, int node);
    void (*leaves)(void *user, int node, int why);
    void (*snap_leaves)(void *user, int node, int why);
} prefix_watch;

/* Holdings of all tenants whose number leaves this rest by PREFIX_OWNERS (more of them share a place). */
typedef struct prefix_share {
    int nodes, snaps;
} prefix_share;

typedef struct prefix_node {
    int32_t parent, next; /* -1: root, end of the bucket */
    int32_t newer, older; /* use list */
    int32_t page, snap;   /* snap -1: none */
    int32_t depth, children; /* depth: PREFIX_GONE where the node is not in use */
    uint32_t hash, owner;
    double value; /* of the snapshot */
    unsigned char id[PREFIX_ID]; /* prefix_block_id: of the block with all that is before it */
    unsigned char salt[PREFIX_SALT];
    int32_t tokens[KVANT_PAGE];
} prefix_node;

typedef struct prefix_index {
    kv_cache *kv;
    prefix_node *nodes; /* [pages]; unused ones are linked by next */
    int32_t *buckets;
    int n_buckets, n_nodes, unused, oldest, newest;
    int held; /* neither this node nor what is before it is evicted or pruned: a fetch appends to it; -1: none */
    uint32_t hash_mask; /* tests: fewer bits */
    double age;         /* GreedyDual: value of the last snapshot that went */
    uint32_t owner;     /* whose the next nodes are: the tenant */
    prefix_share shares[PREFIX_OWNERS];
    int n_owners, n_snaps; /* who hold nodes; snapshots of nodes */
    uint64_t evicted_pages, evicted_snaps;
    uint64_t changes; /* counts what makes an earlier hit out of date */
    unsigned char seed[PREFIX_ID]; /* enters all ids: what rows are made with */
    const prefix_watch *watch;     /* NULL: nobody */
    int why;                       /* why what leaves now leaves; 0: evicted */
} prefix_index;

typedef struct prefix_hit {
    int matched;    /* pages whose tokens match */
    int pages;      /* pages to resume from; 0: miss */
    int node, snap; /* node of the last of them; its snapshot, or -1 where pages suffice */
    int idle;       /* how many of them are idle */
} prefix_hit;

typedef struct prefix_snap {
    int pages, id;
} prefix_snap; /* snapshot `id` of the position 64 * pages */

int prefix_create(prefix_index *ix, kv_cache *kv, kvant_diag *diag);
void prefix_destroy(prefix_index *ix);
/* Longest resumable prefix of tokens[n] that leaves at least one token to evaluate.  Changes nothing. */
void prefix_find(const prefix_index *ix, const unsigned char *salt, const int32_t *tokens, int n, prefix_hit *hit);
/* The id of a block by its content: SHA-256 over the parent's id (NULL: the seed), the salt and the tokens.  Equal in
 * every process that makes the same rows. */
void prefix_block_id(const prefix_index *ix, const unsigned char *parent, const unsigned char *salt,
                     const int32_t *tokens, unsigned char id[PREFIX_ID]);
/* The node before, or -1.  Depth falls with each step, so that a walk to the root ends whatever the nodes say. */
int prefix_up(const prefix_index *ix, int node);
/* Node and its ancestors become the most recently used ones. */
void prefix_touch(prefix_index *ix, int node);
/* Seq (empty) takes over the pages and the state of a hit that was found since the last change. */
int prefix_resume(prefix_index *ix, const prefix_hit *hit, int seq, kvant_diag *diag);
/* Enters tokens[64 * n_pages] with the pages of seq, which are full and nobody else's but the index's.  If a block is
 * known with another page, seq goes on with that one and its own is freed: both hold the rows of the same tokens (equal
 * to the last bit where the engine promises that of any cut of a prompt).  The snapshots become the index's, or are
 * freed where one exists already.  If pages do not suffice, blocks behind the last snapshot are not entered: nothing
 * could be resumed from them.  Nor is a block whose page another sequence holds behind other pages than the index has
 * by now, nor what follows it. */
void prefix_insert(prefix_index *ix, const unsigned char *salt, const int32_t *tokens, int seq, int n_pages,
                   const prefix_snap *snaps, int n_snaps);
/* Frees n idle pages, or all there are but those of `held` and before it; returns how many. */
int prefix_evict(prefix_index *ix, int n);
/* A snapshot id, for the caller to fill; makes room if there is none free.  -1: all are in use elsewhere. */
int prefix_take_snap(prefix_index *ix);
/* Forgets everything that begins with tokens[64] (quarantine: a result that came from it was not finite). */
void prefix_forget(prefix_index *ix, const unsigned char *salt, const int32_t *tokens);
void prefix_clear(prefix_index *ix);

/* ---- for loading a saved index (store.c): nodes come parents first ---- */

/* The known child of a node (-1: a root) with these tokens, or -1. */
int prefix_child(const prefix_index *ix, int parent, const unsigned char *salt, const int32_t *tokens);
/* Enters one block, as the least recently used one; takes a reference of its own on the page. */
int prefix_append(prefix_index *ix, int parent, const unsigned char *salt, const int32_t *tokens, int page);
/* The node gets a snapshot; -1: none. */
void prefix_give_snap(prefix_index *ix, int node, int snap);
/* Drops leaves that nothing can be resumed from. */
void prefix_trim(prefix_index *ix);

#endif
