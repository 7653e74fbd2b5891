/* gguf_keys.c: see gguf_keys.h. */
#include "make/gguf/gguf_keys.h"

#include <string.h>
#include "model/gguf/gguf.h"

void gguf_keys_put(gguf_keys *k, const void *p, size_t n)
{
    sbuf_put(&k->bytes, p, n);
}

void gguf_keys_array_str(gguf_keys *k, const char *s, size_t n)
{
    const uint64_t len = n;

    gguf_keys_put(k, &len, sizeof len);
    gguf_keys_put(k, s, n);
}

static void begin(gguf_keys *k, const char *key, int type)
{
    const size_t prefix = *key == '.' ? strlen(k->arch) : 0;
    const uint64_t len = prefix + strlen(key);
    const uint32_t t = (uint32_t)type;

    gguf_keys_put(k, &len, sizeof len);
    gguf_keys_put(k, k->arch, prefix);
    gguf_keys_put(k, key, strlen(key));
    gguf_keys_put(k, &t, sizeof t);
    k->n++;
}

void gguf_keys_u32(gguf_keys *k, const char *key, uint32_t v)
{
    begin(k, key, GGUF_U32);
    gguf_keys_put(k, &v, sizeof v);
}

void gguf_keys_i32(gguf_keys *k, const char *key, int32_t v)
{
    begin(k, key, GGUF_I32);
    gguf_keys_put(k, &v, sizeof v);
}

void gguf_keys_f32(gguf_keys *k, const char *key, double v)
{
    const float f = (float)v;

    begin(k, key, GGUF_F32);
    gguf_keys_put(k, &f, sizeof f);
}

void gguf_keys_bool(gguf_keys *k, const char *key, int v)
{
    const uint8_t b = v != 0;

    begin(k, key, GGUF_BOOL);
    gguf_keys_put(k, &b, 1);
}

void gguf_keys_str(gguf_keys *k, const char *key, const char *s, size_t n)
{
    begin(k, key, GGUF_STRING);
    gguf_keys_array_str(k, s, n);
}

void gguf_keys_array(gguf_keys *k, const char *key, int elem, uint64_t count)
{
    const uint32_t e = (uint32_t)elem;

    begin(k, key, GGUF_ARRAY);
    gguf_keys_put(k, &e, sizeof e);
    gguf_keys_put(k, &count, sizeof count);
}

void gguf_keys_free(gguf_keys *k)
{
    sbuf_free(&k->bytes);
}
