/* host_tier.c: see host_tier.h.  Ids are hashes: their first bytes choose the bucket. */
#include "cache/host_tier.h"

#include <string.h>

#include "base/mem.h"

int host_tier_create(host_tier *t, int64_t most, kvant_diag *diag)
{
    memset(t, 0, sizeof *t);
    t->most = most;
    if (most == 0)
        return KVANT_OK;
    t->buckets = kvant_calloc(HOST_BUCKETS, sizeof *t->buckets);
    return t->buckets ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "host memory of prefixes: out of memory");
}

void host_tier_destroy(host_tier *t)
{
    t->drops = NULL;
    host_tier_clear(t);
    kvant_free(t->buckets);
    memset(t, 0, sizeof *t);
}

static host_entry **bucket_of(const host_tier *t, const unsigned char *id, int what)
{
    uint32_t h;

    memcpy(&h, id, sizeof h);
    return &t->buckets[(h ^ (uint32_t)what) % HOST_BUCKETS];
}

static void unlist(host_tier *t, host_entry *e)
{
    *(e->older ? &e->older->newer : &t->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &t->newest) = e->older;
}

static void list(host_tier *t, host_entry *e)
{
    e->newer = NULL;
    e->older = t->newest;
    *(t->newest ? &t->newest->newer : &t->oldest) = e;
    t->newest = e;
}

/* The link to the entry, or to NULL at the end of its bucket. */
static host_entry **link_of(const host_tier *t, const unsigned char *id, int what)
{
    host_entry **link = bucket_of(t, id, what);

    while (*link && ((*link)->what != what || memcmp((*link)->id, id, PREFIX_ID) != 0))
        link = &(*link)->next;
    return link;
}

host_entry *host_tier_find(host_tier *t, const unsigned char *id, int what)
{
    host_entry *e = t->most > 0 ? *link_of(t, id, what) : NULL;

    if (!e)
        return NULL;
    unlist(t, e);
    list(t, e);
    return e;
}

static void drop(host_tier *t, host_entry **link)
{
    host_entry *e = *link;

    *link = e->next;
    unlist(t, e);
    t->bytes -= (int64_t)(sizeof *e + e->n);
    kvant_free(e);
}

void host_tier_drop(host_tier *t, const unsigned char *id, int what)
{
    host_entry **link = t->most > 0 ? link_of(t, id, what) : NULL;

    if (link && *link)
        drop(t, link);
}

void host_tier_clear(host_tier *t)
{
    while (t->oldest)
        drop(t, link_of(t, t->oldest->id, t->oldest->what));
}

host_entry *host_tier_add(host_tier *t, const unsigned char *id, int what, size_t n)
{
    const int64_t bytes = (int64_t)(sizeof(host_entry) + n);

    if (bytes > t->most)
        return NULL;
    while (t->bytes + bytes > t->most) {
        if (t->drops)
            t->drops(t->user, t->oldest);
        drop(t, link_of(t, t->oldest->id, t->oldest->what));
    }
    host_entry *e = kvant_alloc((size_t)bytes), **to = bucket_of(t, id, what);
    if (!e)
        return NULL;
    *e = (host_entry){ .next = *to, .what = what, .n = n };
    memcpy(e->id, id, PREFIX_ID);
    *to = e;
    list(t, e);
    t->bytes += bytes;
    return e;
}
