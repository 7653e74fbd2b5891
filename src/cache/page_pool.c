/* page_pool.c: see page_pool.h. */
#include "cache/page_pool.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

int page_pool_init(page_pool *p, int n, kvant_diag *diag)
{
    memset(p, 0, sizeof *p);
    p->next = kvant_calloc((size_t)n + 1, sizeof *p->next);
    p->refs = kvant_calloc((size_t)n + 1, sizeof *p->refs);
    p->marked = kvant_calloc((size_t)n + 1, 1);
    if (!p->next || !p->refs || !p->marked) {
        page_pool_free(p);
        return kvant_fail(diag, KVANT_ENOMEM, "page pool: out of memory for %d pages", n);
    }
    for (int i = 0; i < n; i++)
        p->next[i] = i + 1 < n ? i + 1 : -1;
    p->n = p->n_free = n;
    p->head = n > 0 ? 0 : -1;
    return KVANT_OK;
}

void page_pool_free(page_pool *p)
{
    kvant_free(p->next);
    kvant_free(p->refs);
    kvant_free(p->marked);
    memset(p, 0, sizeof *p);
}

int page_pool_take(page_pool *p)
{
    int id = p->head;
    if (id < 0)
        return -1;
    p->head = p->next[id];
    p->refs[id] = 1;
    p->n_free--;
    return id;
}

void page_pool_ref(page_pool *p, int id)
{
    assert(id >= 0 && id < p->n && p->refs[id] > 0);
    p->n_idle -= p->marked[id] && p->refs[id] == 1;
    p->refs[id]++;
}

void page_pool_mark(page_pool *p, int id, int marked)
{
    assert(id >= 0 && id < p->n && p->refs[id] > 0 && p->marked[id] != marked);
    p->marked[id] = (unsigned char)marked;
    if (p->refs[id] == 1)
        p->n_idle += marked ? 1 : -1;
}

void page_pool_unref(page_pool *p, int id)
{
    assert(id >= 0 && id < p->n && p->refs[id] > 0);
    if (--p->refs[id] > 0) {
        p->n_idle += p->marked[id] && p->refs[id] == 1;
        return;
    }
    assert(!p->marked[id]);
    p->next[id] = p->head;
    p->head = id;
    p->n_free++;
}
