/* grammar_cache.c: see grammar_cache.h.  64 entries are compared one by one: lengths and checksums differ first. */
#include "server/grammar/grammar_cache.h"

#include <pthread.h>
#include <string.h>

#include "base/file/crc32c.h"
#include "base/mem.h"

typedef struct entry {
    grammar *g; /* NULL: unused */
    const grammar_vocab *vocab;
    char *text;
    size_t len;
    uint32_t crc;
    uint64_t used;
} entry;

struct grammar_cache {
    pthread_mutex_t lock; /* guards all of it; not held while a grammar is compiled */
    entry e[GRAMMAR_CACHE_ENTRIES];
    uint64_t clock, hits, misses;
};

grammar_cache *grammar_cache_new(void)
{
    grammar_cache *c = kvant_calloc(1, sizeof *c);

    if (c)
        pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void drop(entry *e)
{
    grammar_release(e->g);
    kvant_free(e->text);
    *e = (entry){ 0 };
}

void grammar_cache_free(grammar_cache *c)
{
    for (int i = 0; c && i < GRAMMAR_CACHE_ENTRIES; i++)
        drop(&c->e[i]);
    if (c)
        pthread_mutex_destroy(&c->lock);
    kvant_free(c);
}

static size_t total_bytes(const grammar_cache *c)
{
    size_t n = 0;

    for (int i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
        if (c->e[i].g)
            n += c->e[i].len + grammar_bytes(c->e[i].g);
    return n;
}

/* An unused entry if there is one, else the one that was used longest ago. */
static entry *oldest(grammar_cache *c, int in_use)
{
    entry *old = NULL;

    for (int i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
        if ((!in_use || c->e[i].g) && (!old || c->e[i].used < old->used))
            old = &c->e[i];
    return old;
}

static void shrink(grammar_cache *c)
{
    entry *e;

    while (total_bytes(c) > GRAMMAR_CACHE_BYTES && (e = oldest(c, 1)) != NULL)
        drop(e);
}

static void keep(grammar_cache *c, const grammar_vocab *vocab, const char *text, size_t len, uint32_t crc, grammar *g)
{
    entry *e = oldest(c, 0);
    char *copy = kvant_alloc(len + 1);

    if (!copy)
        return; /* it is only not kept */
    drop(e);
    memcpy(copy, text, len);
    *e = (entry){ grammar_ref(g), vocab, copy, len, crc, ++c->clock };
}

static entry *find(grammar_cache *c, const grammar_vocab *vocab, const char *text, size_t len, uint32_t crc)
{
    for (int i = 0; i < GRAMMAR_CACHE_ENTRIES; i++) {
        entry *e = &c->e[i];
        if (e->g && e->vocab == vocab && e->len == len && e->crc == crc && memcmp(e->text, text, len) == 0)
            return e;
    }
    return NULL;
}

/* A grammar that is there already; shrinks, since masks grow while grammars are used. */
static grammar *find_ref(grammar_cache *c, const grammar_vocab *vocab, const char *text, size_t len, uint32_t crc)
{
    grammar *g = NULL;

    pthread_mutex_lock(&c->lock);
    entry *e = find(c, vocab, text, len, crc);
    if (e) {
        e->used = ++c->clock;
        c->hits++;
        g = grammar_ref(e->g);
        shrink(c);
    }
    pthread_mutex_unlock(&c->lock);
    return g;
}

int grammar_cache_get(grammar_cache *c, const grammar_vocab *vocab, const char *text, size_t len, grammar **out,
                      kvant_diag *diag)
{
    const uint32_t crc = crc32c(0, text, len);
    grammar *known = c ? find_ref(c, vocab, text, len, crc) : NULL;

    if (known) {
        *out = known;
        return KVANT_OK;
    }
    if (!c)
        return grammar_compile(text, len, out, diag);
    KVANT_TRY(grammar_compile(text, len, out, diag));
    pthread_mutex_lock(&c->lock);
    c->misses++;
    if (!find(c, vocab, text, len, crc)) /* another thread was faster: its masks are shared already */
        keep(c, vocab, text, len, crc, *out);
    shrink(c);
    pthread_mutex_unlock(&c->lock);
    return KVANT_OK;
}

void grammar_cache_get_stats(grammar_cache *c, grammar_cache_stats *out)
{
    *out = (grammar_cache_stats){ 0 };
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    out->hits = c->hits;
    out->misses = c->misses;
    out->bytes = total_bytes(c);
    for (int i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
        out->entries += c->e[i].g != NULL;
    pthread_mutex_unlock(&c->lock);
}
