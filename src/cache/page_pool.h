/* cache/page_pool.h: reference-counted page ids: a free list over 0..n-1.  Holds ids only; the memory belongs to kv.c.
 * A page that several sequences share (prefix sharing) has more than one reference.  Pages that the prefix index holds
 * are marked: with no other reference they are idle, which is what an eviction can free (cache/prefix.h says why all
 * of them).  Owner thread only. */
#ifndef KVANT_CACHE_PAGE_POOL_H
#define KVANT_CACHE_PAGE_POOL_H

#include <stdint.h>
#include "base/error.h"

typedef struct page_pool {
    int n, n_free, head;
    int32_t *next;                 /* free list links; -1 ends */
    int32_t *refs;                 /* 0: free */
    unsigned char *marked;
    int n_idle;                    /* marked pages with one reference */
} page_pool;

int page_pool_init(page_pool *p, int n, kvant_diag *diag);
void page_pool_free(page_pool *p);
int page_pool_take(page_pool *p);              /* id with one reference, -1: none left */
void page_pool_ref(page_pool *p, int id);
void page_pool_unref(page_pool *p, int id);    /* back to the free list at zero */
/* Pages that can be had: free, or freed by an eviction.  The one definition that promises are made against. */
static inline int page_pool_room(const page_pool *p)
{
    return p->n_free + p->n_idle;
}

static inline int page_pool_is_idle(const page_pool *p, int id)
{
    return p->marked[id] && p->refs[id] == 1;
}

/* The index takes (1) or gives up (0) its reference, which is the caller's to add and drop. */
void page_pool_mark(page_pool *p, int id, int marked);

#endif
