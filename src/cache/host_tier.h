/* cache/host_tier.h: images of blocks in host memory, found by the block's id: what the pool had no room for.  When a
 * new one has no room the least recently used ones go.  Owner thread only. */
#ifndef KVANT_CACHE_HOST_TIER_H
#define KVANT_CACHE_HOST_TIER_H

#include "cache/prefix.h"

enum { BLOCK_PAGE = 0, BLOCK_STATE = 1 }; /* the page of a block; the snapshot behind its last token */

typedef struct host_entry {
    struct host_entry *next;          /* in its bucket */
    struct host_entry *newer, *older; /* by use */
    unsigned char id[PREFIX_ID];
    int what;
    size_t n;
    uint8_t image[];
} host_entry;

enum { HOST_BUCKETS = 1 << 14 };

typedef struct host_tier {
    int64_t most, bytes; /* most 0: none are kept */
    host_entry **buckets;
    host_entry *newest, *oldest;
    /* Called before an entry goes for want of room; NULL: nobody wants to know. */
    void (*drops)(void *user, const host_entry *e);
    void *user;
} host_tier;

int host_tier_create(host_tier *t, int64_t most, kvant_diag *diag);
void host_tier_destroy(host_tier *t);
/* The entry, which becomes the most recently used one; NULL: it is not there. */
host_entry *host_tier_find(host_tier *t, const unsigned char *id, int what);
/* A new entry of n bytes for the caller to fill; NULL: it is larger than all room, or no memory.  It must not be there
 * yet. */
host_entry *host_tier_add(host_tier *t, const unsigned char *id, int what, size_t n);
void host_tier_drop(host_tier *t, const unsigned char *id, int what); /* fine where it is not there */
void host_tier_clear(host_tier *t);

#endif
