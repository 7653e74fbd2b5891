/* engine/blocks/session_blocks.h: what becomes of blocks of the prefix cache outside the pool: they are told to routers
 * (session_blocks.c), kept in host memory when the pool gives them up, and kept in a folder (session_tiers.c).  Owner
 * thread only. */
#ifndef KVANT_ENGINE_SESSION_BLOCKS_H
#define KVANT_ENGINE_SESSION_BLOCKS_H

#include "cache/host_tier.h"
#include "engine/blocks/store_folder.h"
#include "engine/session_impl.h"

/* Blocks that are not told yet: they follow on each other. */
enum { BLOCKS_MOST = 64 };
typedef struct block_run {
    int n, has_parent, at; /* at: node of the last block */
    uint64_t hashes[BLOCKS_MOST], parent;
    int32_t tokens[BLOCKS_MOST * KVANT_PAGE];
} block_run;

/* Those that left the pool. */
typedef struct block_list {
    int n;
    uint64_t hashes[BLOCKS_MOST];
} block_list;

struct session_blocks {
    prefix_watch watch;
    int told; /* kv_event is there */
    block_run came;
    block_list went;
    host_tier host;
    store_folder store;
    int fetching;   /* what enters came from there */
    int untrimmed;  /* blocks were fetched since the index was last trimmed */
    int64_t turn_ns; /* that looking and fetching may take of a tick, beyond one block of each request */
    /* [pages] fetched blocks that nothing can be resumed from yet: they are told when something can.  NULL: any can. */
    unsigned char *quiet;
    int32_t *path;  /* [pages] */
    uint8_t *image; /* room for any of them */
    uint64_t host_hits, store_hits;
};

/* ---- session_blocks.c ---- */
uint64_t block_hash(const unsigned char *id);
/* 1: blocks of host memory are told: any of them can be resumed from. */
int blocks_tell_host(const kvant_session *s);
/* A block came into host memory, or left it. */
void blocks_host_came(kvant_session *s, const prefix_node *n);
void blocks_host_went(kvant_session *s, const unsigned char *id);

/* ---- session_tiers.c ---- */
int tiers_create(kvant_session *s, kvant_diag *diag);
void tiers_close(kvant_session *s);
void tiers_enters(kvant_session *s, const prefix_node *n, int what);
void tiers_leaves(kvant_session *s, const prefix_node *n, int what, int why);

#endif
