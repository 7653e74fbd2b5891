/* fuzz_gguf.c: libFuzzer target of the GGUF reader (reliability list, G-15).
 *
 * Opens the input from memory and, when that works, calls every getter on every key and touches every tensor, and
 * checks what the reader promised: tensors lie inside the file, apart from each other, under names that find them.
 *
 * The mutator knows the layout.  Blind mutation almost never changes a length together with what it measures, so half
 * of the mutations walk the file as far as it makes sense, remember where counts, lengths, types, dimensions and
 * offsets stand, and then put an interesting number there, or insert a whole key or tensor and repair the count. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "model/gguf/gguf.h"
#include "support/promise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

static volatile uint64_t sink;

/* Every getter on one key. */
static void use_key(const gguf *g, const char *key, kvant_diag *diag)
{
    uint32_t u = 0;
    float f = 0;
    int b = 0, n = 0;
    int32_t v[16];
    gguf_str s = { "", 0 };
    gguf_iter it;
    const uint8_t *raw = NULL;

    if (gguf_u32(g, key, 1, &u, diag) == KVANT_OK)
        sink += u;
    if (gguf_f32(g, key, 1, &f, diag) == KVANT_OK)
        PROMISE(f - f == 0.0f);
    if (gguf_bool(g, key, 1, &b, diag) == KVANT_OK)
        PROMISE(b == 0 || b == 1);
    if (gguf_string(g, key, 1, &s, diag) == KVANT_OK)
        for (size_t i = 0; i < s.n; i++)
            sink += (uint8_t)s.s[i];
    if (gguf_i32s(g, key, 1, v, 16, &n, diag) == KVANT_OK)
        PROMISE(n >= 0 && n <= 16);
    if (gguf_strings(g, key, 1, &it, &n, diag) == KVANT_OK) {
        int i = 0;
        for (; gguf_next(&it, &s); i++)
            sink += s.n ? (uint8_t)s.s[s.n - 1] : 0;
        PROMISE(i == n);
    }
    for (int elem = 0; elem < 13; elem++)
        if (gguf_raw_array(g, key, 1, elem, &raw, &n, diag) == KVANT_OK && n > 0 && elem != GGUF_STRING)
            sink += raw[n - 1];
}

static void use_keys(const gguf *g, kvant_diag *diag)
{
    for (int i = 0; i < gguf_kv_count(g); i++) {
        const gguf_kv *kv = gguf_kv_at(g, i);
        char *key = malloc(kv->key.n + 1);
        if (!key)
            return;
        memcpy(key, kv->key.s, kv->key.n);
        key[kv->key.n] = 0;
        PROMISE(gguf_find(g, key) == kv);
        use_key(g, key, diag);
        free(key);
    }
}

static void use_tensors(const gguf *g, const uint8_t *data, size_t size)
{
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        char name[64];
        PROMISE(t->name.n >= 1 && t->name.n < 64 && t->n_dims >= 0 && t->n_dims <= 4); /* 0: a number */
        PROMISE(t->data >= data && t->bytes > 0 && t->bytes <= size && (size_t)(t->data - data) <= size - t->bytes);
        for (int d = 0; d < 4; d++)
            PROMISE(t->ne[d] >= 1);
        memcpy(name, t->name.s, t->name.n);
        name[t->name.n] = 0;
        PROMISE(gguf_tensor_find(g, name) == t);
        sink += t->data[0] + t->data[t->bytes - 1];
        for (int j = 0; j < i && i < 64; j++) {
            const gguf_tensor *o = gguf_tensor_at(g, j);
            PROMISE(o->data + o->bytes <= t->data || t->data + t->bytes <= o->data);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvant_diag diag = { "" };
    gguf *g = NULL;
    const int rc = gguf_open_mem(data, size, &g, &diag);

    PROMISE((rc == KVANT_OK) == (g != NULL) && (rc == KVANT_OK || diag.text[0]));
    if (g) {
        use_keys(g, &diag);
        use_tensors(g, data, size);
        sink += (uint64_t)gguf_version(g) + (uint64_t)gguf_file_bytes(g) + (uint64_t)gguf_poisoned(g);
    }
    gguf_close(g);
    return 0;
}

/* ---- structure-aware mutation
 * ------------------------------------------------------------------------------------- */

enum { MARKS = 256 };

/* Where numbers stand in a file, as far as it could be walked. */
typedef struct layout {
    size_t at[MARKS];
    int width[MARKS];
    int n;
    size_t kvs, tensors, end; /* start of the key section, of the tensor records, end of the walk */
} layout;

static uint64_t number(const uint8_t *d, size_t size, size_t at, int width)
{
    uint64_t v = 0;

    if (at + (size_t)width <= size)
        memcpy(&v, d + at, (size_t)width);
    return v;
}

static size_t mark(layout *l, size_t at, int width)
{
    if (l->n < MARKS) {
        l->at[l->n] = at;
        l->width[l->n++] = width;
    }
    return at + (size_t)width;
}

/* Behind a string at `at`, or 0 when it does not fit. */
static size_t walk_string(layout *l, const uint8_t *d, size_t size, size_t at)
{
    const uint64_t n = number(d, size, at, 8);

    at = mark(l, at, 8);
    return at > size || n > size - at ? 0 : at + (size_t)n;
}

static size_t walk_value(layout *l, const uint8_t *d, size_t size, size_t at)
{
    static const size_t bytes[13] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    uint64_t type = number(d, size, at, 4), count = 1;

    at = mark(l, at, 4);
    if (type == GGUF_ARRAY) {
        type = number(d, size, at, 4);
        count = number(d, size, at + 4, 8);
        mark(l, at, 4);
        at = mark(l, at + 4, 8);
    }
    if (type == GGUF_STRING) {
        for (uint64_t i = 0; i < count && at; i++)
            at = at < size ? walk_string(l, d, size, at) : 0;
        return at;
    }
    const size_t each = type < 13 ? bytes[type] : 0;
    return each && at <= size && count <= (size - at) / each ? at + (size_t)count * each : 0;
}

static size_t walk_tensor(layout *l, const uint8_t *d, size_t size, size_t at)
{
    at = walk_string(l, d, size, at);
    const uint64_t dims = at ? number(d, size, at, 4) : 99;

    if (dims > 4)
        return 0;
    at = mark(l, at, 4);
    for (uint64_t i = 0; i < dims; i++)
        at = mark(l, at, 8);
    at = mark(l, at, 4);
    at = mark(l, at, 8);
    return at <= size ? at : 0;
}

static void walk_file(layout *l, const uint8_t *d, size_t size)
{
    size_t at = 24;

    memset(l, 0, sizeof *l);
    mark(l, 4, 4);
    mark(l, 8, 8);
    mark(l, 16, 8);
    l->kvs = l->tensors = l->end = 24;
    for (uint64_t i = 0, n = number(d, size, 16, 8); i < n && at && at < size; i++) {
        at = walk_string(l, d, size, at);
        at = at ? walk_value(l, d, size, at) : 0;
        if (at)
            l->tensors = l->end = at;
    }
    for (uint64_t i = 0, n = number(d, size, 8, 8); i < n && at && at < size; i++) {
        at = walk_tensor(l, d, size, at);
        if (at)
            l->end = at;
    }
}

static uint64_t interesting(rng *r, uint64_t old, size_t size)
{
    static const uint64_t values[] = { 0,
                                       1,
                                       2,
                                       3,
                                       4,
                                       7,
                                       8,
                                       9,
                                       12,
                                       13,
                                       31,
                                       32,
                                       64,
                                       255,
                                       256,
                                       1u << 20,
                                       (uint64_t)1 << 30,
                                       (uint64_t)1 << 31,
                                       (uint64_t)1 << 32,
                                       (uint64_t)1 << 62,
                                       (uint64_t)1 << 63,
                                       UINT64_MAX,
                                       UINT64_MAX - 31,
                                       0x7FFFFFFFFFFFFFC0u };

    switch (rng_below(r, 5)) {
    case 0: return old + 1;
    case 1: return old - 1;
    case 2: return size - rng_below(r, 64);
    case 3: return old ^ (uint64_t)1 << rng_below(r, 64);
    default: return values[rng_below(r, sizeof values / sizeof values[0])];
    }
}

static size_t insert(uint8_t *d, size_t size, size_t max_size, size_t at, const uint8_t *what, size_t n)
{
    if (at > size || n > max_size - size)
        return size;
    memmove(d + at + n, d + at, size - at);
    memcpy(d + at, what, n);
    return size + n;
}

static void add_one(uint8_t *d, size_t at)
{
    uint64_t v;

    memcpy(&v, d + at, 8);
    v++;
    memcpy(d + at, &v, 8);
}

/* A new key of a random type in front of the others, counted. */
static size_t insert_key(uint8_t *d, size_t size, size_t max_size, rng *r)
{
    static const char *const keys[] = { "general.alignment", "split.count", "split.no", "split.tensors.count", "k" };
    const char *key = keys[rng_below(r, 5)];
    uint8_t b[64] = { 0 };
    const uint64_t n = strlen(key);
    const uint32_t type = rng_below(r, 13), small = 1u << rng_below(r, 12);

    memcpy(b, &n, 8);
    memcpy(b + 8, key, n);
    memcpy(b + 8 + n, &type, 4);
    memcpy(b + 12 + n, &small, 4);
    const size_t grown = insert(d, size, max_size, 24, b,
                                12 + (size_t)n + (type < 4 || type == 7 ? 1 + type / 2 % 2 : 8));
    if (grown > size)
        add_one(d, 16);
    return grown;
}

/* A new tensor record behind the keys, counted; with a payload at the end when there is room. */
static size_t insert_tensor(uint8_t *d, size_t size, size_t max_size, const layout *l, rng *r)
{
    uint8_t b[64] = { 1, 0, 0, 0, 0, 0, 0, 0, (uint8_t)('a' + rng_below(r, 26)), 1 };
    const uint64_t ne = 32u << rng_below(r, 4), offset = 32u * rng_below(r, 64);
    const uint32_t type = rng_below(r, 42);

    memcpy(b + 13, &ne, 8);
    memcpy(b + 21, &type, 4);
    memcpy(b + 25, &offset, 8);
    const size_t grown = insert(d, size, max_size, l->tensors, b, 33);
    if (grown > size)
        add_one(d, 8);
    return grown;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    rng r = { seed };
    layout l;

    if (size < 24 || memcmp(data, "GGUF", 4) != 0 || rng_below(&r, 2))
        return LLVMFuzzerMutate(data, size, max_size);
    walk_file(&l, data, size);
    const uint32_t kind = rng_below(&r, 8);
    if (kind == 0)
        return insert_key(data, size, max_size, &r);
    if (kind == 1)
        return insert_tensor(data, size, max_size, &l, &r);
    if (kind == 2 && size < max_size) { /* room for data */
        const size_t n = max_size - size < 512 ? max_size - size : 512;
        memset(data + size, (int)rng_below(&r, 256), n);
        return size + n;
    }
    const int m = (int)rng_below(&r, (uint32_t)l.n);
    if (l.at[m] + (size_t)l.width[m] <= size) {
        const uint64_t v = interesting(&r, number(data, size, l.at[m], l.width[m]), size);
        memcpy(data + l.at[m], &v, (size_t)l.width[m]);
    }
    return size;
}
