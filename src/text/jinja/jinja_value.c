/* jinja_value.c: the arena, lists, and dicts that keep their order. */
#include "text/jinja/jinja_value.h"

#include <string.h>
#include "base/mem.h"

/* ---- arena ---- */

typedef struct jchunk {
    struct jchunk *next;
    char pad[48]; /* kvant_alloc aligns to 64: what follows stays aligned */
} jchunk;

enum { FIRST_CHUNK = 16 << 10, GREATEST_CHUNK = 1 << 20 };

static int add_chunk(jarena *a, size_t bytes)
{
    size_t size = a->total < FIRST_CHUNK ? FIRST_CHUNK : a->total < GREATEST_CHUNK ? a->total : GREATEST_CHUNK;

    if (size < bytes)
        size = bytes;
    if (size > a->most || a->total > a->most - size) {
        a->full = 1;
        return 0;
    }
    jchunk *c = kvant_alloc(sizeof *c + size);
    if (!c)
        return 0;
    c->next = a->chunks;
    a->chunks = c;
    a->at = (char *)(c + 1);
    a->end = a->at + size;
    a->total += size;
    return 1;
}

void *jarena_alloc(jarena *a, size_t bytes)
{
    if (bytes > a->most) {
        a->full = 1;
        return NULL;
    }
    bytes = bytes ? (bytes + 15) & ~(size_t)15 : 16;
    a->steps -= (int64_t)(bytes / 64);
    if (a->metered && a->steps < 0)
        return NULL;
    if ((size_t)(a->end - a->at) < bytes && !add_chunk(a, bytes))
        return NULL;
    void *p = a->at;
    a->at += bytes;
    return p;
}

void jarena_free(jarena *a)
{
    for (jchunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        kvant_free(c);
    }
    *a = (jarena){ .most = a->most, .metered = a->metered };
}

/* ---- strings and lists ---- */

int jstr_is(const jstr *s, const char *text)
{
    return s->n == strlen(text) && memcmp(s->s, text, s->n) == 0;
}

int j_string(jarena *a, const char *s, size_t n, int origin, jval *out)
{
    jstr *t = n < UINT32_MAX ? jarena_alloc(a, sizeof *t + n + 1) : NULL;

    if (!t)
        return 0;
    char *copy = (char *)(t + 1);
    if (n)
        memcpy(copy, s, n);
    copy[n] = 0;
    *t = (jstr){ copy, NULL, (uint32_t)n, (uint8_t)origin, 0 };
    *out = (jval){ .type = J_STR, .u.s = t };
    return 1;
}

int j_list(jarena *a, size_t cap, jval *out)
{
    jlist *l = jarena_alloc(a, sizeof *l);
    jval *v = l && cap <= a->most / sizeof *v ? jarena_alloc(a, cap * sizeof *v) : NULL;

    if (!v)
        return 0;
    *l = (jlist){ .v = v, .cap = cap };
    *out = (jval){ .type = J_LIST, .u.l = l };
    return 1;
}

int jlist_add(jarena *a, jlist *l, jval v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap < 4 ? 8 : l->cap * 2;
        jval *more = cap <= a->most / sizeof *more ? jarena_alloc(a, cap * sizeof *more) : NULL;
        if (!more)
            return 0;
        if (l->n)
            memcpy(more, l->v, l->n * sizeof *more);
        l->v = more;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return 1;
}

/* ---- dicts ---- */

enum { SMALL_DICT = 16 };

int j_dict(jarena *a, size_t cap, jval *out)
{
    jdict *d = jarena_alloc(a, sizeof *d);
    jval *v = d && cap <= a->most / sizeof *v / 2 ? jarena_alloc(a, 2 * cap * sizeof *v) : NULL;

    if (!v)
        return 0;
    *d = (jdict){ .keys = v, .vals = v + cap, .cap = cap };
    *out = (jval){ .type = J_DICT, .u.d = d };
    return 1;
}

int jkey_equal(jval a, jval b)
{
    if (a.type == J_STR && b.type == J_STR)
        return a.u.s->n == b.u.s->n && memcmp(a.u.s->s, b.u.s->s, a.u.s->n) == 0;
    if (j_is_number(a) && j_is_number(b))
        return a.type == J_FLOAT || b.type == J_FLOAT ? j_number(a) == j_number(b) : j_integer(a) == j_integer(b);
    if (a.type == J_NONE || b.type == J_NONE)
        return a.type == b.type;
    if (a.type != J_TUPLE || b.type != J_TUPLE || a.u.l->n != b.u.l->n)
        return 0;
    for (size_t i = 0; i < a.u.l->n; i++) /* a tuple in a tuple is no key: j_hashable */
        if (!jkey_equal(a.u.l->v[i], b.u.l->v[i]))
            return 0;
    return 1;
}

static size_t hash_of(jval k)
{
    uint64_t h = 0xCBF29CE484222325u;

    if (k.type == J_STR) {
        for (uint32_t i = 0; i < k.u.s->n; i++)
            h = (h ^ (uint8_t)k.u.s->s[i]) * 0x100000001B3u;
    } else if (j_is_number(k)) {
        double f = j_number(k) + 0.0; /* -0.0 is 0 */
        memcpy(&h, &f, sizeof h);
        h *= 0x9E3779B97F4A7C15u;
    }
    return (size_t)(h ^ h >> 32);
}

/* Steps to compare a key, or to hash it, which goes by the byte. */
static int64_t weight(jval k)
{
    int64_t sum = 0;

    if (k.type == J_STR)
        return k.u.s->n / 64;
    for (size_t i = 0; k.type == J_TUPLE && i < k.u.l->n; i++)
        sum += 1 + (k.u.l->v[i].type == J_STR ? k.u.l->v[i].u.s->n / 64 : 0);
    return sum;
}

/* The place in the index that holds the key, or the free one where it belongs. */
static size_t probe(const jdict *d, jval key, int64_t *steps)
{
    const int64_t one = weight(key) + 1;
    size_t at = hash_of(key) & (d->n_index - 1);

    *steps -= 4 * one;
    for (; d->index[at] && *steps >= 0; at = (at + 1) & (d->n_index - 1), *steps -= one)
        if (jkey_equal(d->keys[d->index[at] - 1], key))
            break;
    return at;
}

static int reindex(jarena *a, jdict *d, int64_t *steps)
{
    size_t n = d->n_index ? 2 * d->n_index : 64;

    d->index = jarena_alloc(a, n * sizeof *d->index);
    d->n_index = d->index ? n : 0;
    if (!d->index)
        return 0;
    memset(d->index, 0, n * sizeof *d->index);
    for (size_t i = 0; i < d->n; i++)
        d->index[probe(d, d->keys[i], steps)] = (uint32_t)i + 1;
    return 1;
}

jval *jdict_get(const jdict *d, jval key, int64_t *steps)
{
    if (d->index) {
        uint32_t i = d->index[probe(d, key, steps)];
        return i ? &d->vals[i - 1] : NULL;
    }
    *steps -= (int64_t)d->n * weight(key);
    for (size_t i = 0; i < d->n && *steps >= 0; i++)
        if (jkey_equal(d->keys[i], key))
            return &d->vals[i];
    return NULL;
}

jval *jdict_text(const jdict *d, const char *key)
{
    jstr s = { key, NULL, (uint32_t)strlen(key), 0, 0 };
    int64_t steps = INT32_MAX;

    return jdict_get(d, (jval){ .type = J_STR, .u.s = &s }, &steps);
}

static int grow(jarena *a, jdict *d)
{
    size_t cap = d->cap < 4 ? 8 : 2 * d->cap;
    jval *v = cap <= a->most / sizeof *v / 2 ? jarena_alloc(a, 2 * cap * sizeof *v) : NULL;

    if (!v)
        return 0;
    if (d->n) {
        memcpy(v, d->keys, d->n * sizeof *v);
        memcpy(v + cap, d->vals, d->n * sizeof *v);
    }
    d->keys = v;
    d->vals = v + cap;
    d->cap = cap;
    return 1;
}

int jdict_put(jarena *a, jdict *d, jval key, jval v, int64_t *steps)
{
    jval *old = jdict_get(d, key, steps);

    if (old) {
        *old = v;
        return 1;
    }
    if (d->n == d->cap && !grow(a, d))
        return 0;
    d->keys[d->n] = key;
    d->vals[d->n++] = v;
    if (d->index ? d->n * 2 > d->n_index : d->n > SMALL_DICT)
        return reindex(a, d, steps);
    if (d->index)
        d->index[probe(d, key, steps)] = (uint32_t)d->n;
    return 1;
}
