/* gguf_build.c: see gguf_build.h.  Owns the layout of a GGUF file for the tests, written apart from the reader. */
#include "support/gguf_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"

void gb_free(gb *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}

void gb_bytes(gb *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n);
        b->data = realloc(b->data, b->cap);
        if (!b->data)
            abort();
    }
    if (n)
        memcpy(b->data + b->n, p, n);
    b->n += n;
}

void gb_u32(gb *b, uint32_t v)
{
    gb_bytes(b, &v, sizeof v);
}

void gb_u64(gb *b, uint64_t v)
{
    gb_bytes(b, &v, sizeof v);
}

static void marked(gb *b, uint64_t v)
{
    if (b->n_marks < GB_MARKS)
        b->marks[b->n_marks++] = b->n;
    gb_u64(b, v);
}

void gb_str(gb *b, const char *s)
{
    marked(b, strlen(s));
    gb_bytes(b, s, strlen(s));
}

void gb_begin(gb *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    b->n = 0;
    b->n_marks = 0;
    gb_bytes(b, "GGUF", 4);
    gb_u32(b, version);
    marked(b, n_tensors);
    marked(b, n_kv);
}

void gb_kv(gb *b, const char *key, uint32_t type, const void *value, size_t n)
{
    gb_str(b, key);
    gb_u32(b, type);
    gb_bytes(b, value, n);
}

void gb_kv_u32(gb *b, const char *key, uint32_t v)
{
    gb_kv(b, key, 4, &v, sizeof v);
}

void gb_kv_u16(gb *b, const char *key, uint16_t v)
{
    gb_kv(b, key, 2, &v, sizeof v);
}

void gb_kv_f32(gb *b, const char *key, float v)
{
    gb_kv(b, key, 6, &v, sizeof v);
}

void gb_kv_bool(gb *b, const char *key, int v)
{
    const uint8_t byte = (uint8_t)v;
    gb_kv(b, key, 7, &byte, 1);
}

void gb_kv_str(gb *b, const char *key, const char *v)
{
    gb_kv(b, key, 8, NULL, 0);
    gb_str(b, v);
}

void gb_kv_array(gb *b, const char *key, uint32_t elem, uint64_t count, const void *value, size_t n)
{
    gb_kv(b, key, 9, NULL, 0);
    gb_u32(b, elem);
    marked(b, count);
    gb_bytes(b, value, n);
}

void gb_kv_strings(gb *b, const char *key, const char *const *v, int count)
{
    gb_kv_array(b, key, 8, (uint64_t)count, NULL, 0);
    for (int i = 0; i < count; i++)
        gb_str(b, v[i]);
}

void gb_tensor(gb *b, const char *name, uint32_t n_dims, const int64_t *ne, uint32_t type, uint64_t offset)
{
    gb_str(b, name);
    gb_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++)
        marked(b, (uint64_t)ne[i]);
    gb_u32(b, type);
    marked(b, offset);
}

void gb_pad(gb *b, size_t alignment)
{
    while (b->n % alignment)
        gb_bytes(b, "", 1);
}

void gb_fill(gb *b, size_t n, uint64_t seed)
{
    rng r = { seed };

    for (size_t i = 0; i < n; i++) {
        const uint8_t v = (uint8_t)rng_u64(&r);
        gb_bytes(b, &v, 1);
    }
}

void gb_poke_u64(gb *b, size_t at, uint64_t v)
{
    if (at + sizeof v <= b->n)
        memcpy(b->data + at, &v, sizeof v);
}

int gb_write(const gb *b, const char *path)
{
    FILE *f = fopen(path, "wb");

    if (!f)
        return -1;
    const size_t n = fwrite(b->data, 1, b->n, f);
    return fclose(f) == 0 && n == b->n ? 0 : -1;
}

static const int64_t shape_a[] = { 64, 4 }, shape_b[] = { 256, 2, 3 }, shape_c[] = { 7 };

static void good_kvs(gb *b)
{
    static const char *const tokens[] = { "a", "", "long token with spaces", "\xff\xfe" };
    const int32_t ints[] = { 11, 11, 10, 0 };
    const uint64_t big = 1234567;
    const int64_t neg = -5;
    const double pi = 3.5;
    const int8_t i8 = -3;
    const uint8_t u8 = 200;
    const int16_t i16 = -300;
    const int32_t i32 = 77;

    gb_kv_str(b, "general.architecture", "qwen3");
    gb_kv_u32(b, "general.alignment", 32);
    gb_kv_u32(b, "x.u32", 42);
    gb_kv_u16(b, "x.u16", 65535);
    gb_kv_f32(b, "x.f32", 1.25f);
    gb_kv_bool(b, "x.bool", 1);
    gb_kv_str(b, "x.empty", "");
    gb_kv_array(b, "x.i32s", 5, 4, ints, sizeof ints);
    gb_kv_array(b, "x.none", 5, 0, NULL, 0);
    gb_kv_strings(b, "x.tokens", tokens, 4);
    gb_kv(b, "x.u64", 10, &big, 8);
    gb_kv(b, "x.i64", 11, &neg, 8);
    gb_kv(b, "x.f64", 12, &pi, 8);
    gb_kv(b, "x.i8", 1, &i8, 1);
    gb_kv(b, "x.u8", 0, &u8, 1);
    gb_kv(b, "x.i16", 3, &i16, 2);
    gb_kv(b, "x.i32", 5, &i32, 4);
}

void gb_good_model(gb *b, uint32_t version, size_t extra)
{
    const int64_t shape_d[] = { 256 };

    extra = (extra + 31) / 32 * 32;
    gb_begin(b, version, GB_GOOD_TENSORS, GB_GOOD_KV);
    good_kvs(b);
    gb_tensor(b, "blk.0.a.weight", 2, shape_a, 0, 0);
    gb_tensor(b, "blk.0.b.weight", 3, shape_b, 12, 1024);
    gb_tensor(b, "c", 1, shape_c, 0, 1888);
    gb_tensor(b, "d", 1, shape_d, 13, 1920 + extra);
    gb_pad(b, 32);
    gb_fill(b, 1920 + extra + 176, 1);
}

uint64_t gb_walk(const gguf *g)
{
    uint64_t sum = (uint64_t)gguf_version(g) + (uint64_t)gguf_file_bytes(g) + (uint64_t)gguf_poisoned(g);

    for (int i = 0; i < gguf_kv_count(g); i++) {
        const gguf_kv *kv = gguf_kv_at(g, i);
        char key[300];
        uint32_t u;
        float f;
        int b, n;
        int32_t v[8];
        gguf_str s;
        gguf_iter it;
        const uint8_t *raw;
        snprintf(key, sizeof key, "%.*s", (int)(kv->key.n < 256 ? kv->key.n : 256), kv->key.s);
        for (size_t j = 0; j < kv->bytes; j++)
            sum += kv->value[j];
        if (gguf_u32(g, key, 1, &u, NULL) == KVANT_OK)
            sum += u;
        if (gguf_f32(g, key, 1, &f, NULL) == KVANT_OK)
            sum += f > 0.0f;
        if (gguf_bool(g, key, 1, &b, NULL) == KVANT_OK)
            sum += (uint64_t)b;
        if (gguf_string(g, key, 1, &s, NULL) == KVANT_OK && s.n)
            sum += (uint8_t)s.s[s.n - 1];
        if (gguf_i32s(g, key, 1, v, 8, &n, NULL) == KVANT_OK && n)
            sum += (uint32_t)v[n - 1];
        if (gguf_strings(g, key, 1, &it, &n, NULL) == KVANT_OK)
            while (gguf_next(&it, &s))
                sum += s.n;
        if (gguf_raw_array(g, key, 1, GGUF_F32, &raw, &n, NULL) == KVANT_OK && n)
            sum += raw[4 * (size_t)n - 1];
    }
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        for (size_t j = 0; j < t->bytes; j += t->bytes / 64 + 1)
            sum += t->data[j];
        sum += t->data[t->bytes - 1];
    }
    return sum;
}
