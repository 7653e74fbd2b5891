/* cache/page_pool.h: reference-counted page ids: a free list over 0..n-1.  Holds ids only; the memory belongs to kv.c.
 * A page that several sequences share (prefix sharing) has more than one reference.  Owner thread only. */
#ifndef KVANT_CACHE_PAGE_POOL_H
#define KVANT_CACHE_PAGE_POOL_H

#include <stdint.h>
#include "base/error.h"

typedef struct page_pool {
    int n, n_free, head;
    int32_t *next;                 /* free list links; -1 ends */
    int32_t *refs;                 /* 0: free */
} page_pool;

int page_pool_init(page_pool *p, int n, kvant_diag *diag);
void page_pool_free(page_pool *p);
int page_pool_take(page_pool *p);              /* id with one reference, -1: none left */
void page_pool_ref(page_pool *p, int id);
void page_pool_unref(page_pool *p, int id);    /* back to the free list at zero */

#endif
