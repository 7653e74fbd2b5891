/* gguf_change.c: see gguf_change.h. */
#include "support/gguf_change.h"

#include <stdlib.h>
#include <string.h>
#include "support/gguf_build.h"

static int is(gguf_str s, const char *text)
{
    return text && s.n == strlen(text) && memcmp(s.s, text, s.n) == 0;
}

static void put_kv(gb *b, gguf_str key, int type, int elem, uint64_t count, const void *value, size_t bytes)
{
    gb_u64(b, key.n);
    gb_bytes(b, key.s, key.n);
    gb_u32(b, (uint32_t)type);
    if (type == GGUF_ARRAY) {
        gb_u32(b, (uint32_t)elem);
        gb_u64(b, count);
    }
    gb_bytes(b, value, bytes);
}

static void put_change(gb *b, const gguf_change *c)
{
    const gguf_str key = { c->key, strlen(c->key) };

    if (c->type != GGUF_STRING) {
        put_kv(b, key, c->type, c->elem, c->count, c->value, c->bytes);
        return;
    }
    put_kv(b, key, c->type, 0, 1, "", 0);
    gb_str(b, c->value);
}

/* Offsets in the order of the file's tensors; what is added comes last. */
static void put_tensors(gb *b, const gguf *g, const gguf_change *c)
{
    uint64_t at = 0;
    uint32_t align = 32;

    (void)gguf_u32(g, "general.alignment", 0, &align, NULL);
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        char name[64];
        if (is(t->name, c->without))
            continue;
        memcpy(name, t->name.s, t->name.n);
        name[t->name.n] = 0;
        gb_tensor(b, name, (uint32_t)t->n_dims, t->ne, (uint32_t)t->type, at);
        at += (t->bytes + align - 1) / align * align;
    }
    if (c->tensor)
        gb_tensor(b, c->tensor, 1, &c->n, 0, at);
    gb_pad(b, align);
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        if (is(t->name, c->without))
            continue;
        gb_bytes(b, t->data, t->bytes);
        gb_pad(b, align);
    }
    for (int64_t i = 0; c->tensor && i < c->n; i++)
        gb_u32(b, 0x3e800000u);
    gb_pad(b, align);
}

int gguf_change_write(const gguf *g, const gguf_change *c, const char *to)
{
    gb b = { 0 };
    uint64_t n_kv = c->key && c->value, n_tensors = c->tensor != NULL;

    for (int i = 0; i < gguf_kv_count(g); i++)
        n_kv += !is(gguf_kv_at(g, i)->key, c->key);
    for (int i = 0; i < gguf_tensor_count(g); i++)
        n_tensors += !is(gguf_tensor_at(g, i)->name, c->without);
    gb_begin(&b, 3, n_tensors, n_kv);
    for (int i = 0; i < gguf_kv_count(g); i++) {
        const gguf_kv *kv = gguf_kv_at(g, i);
        if (!is(kv->key, c->key))
            put_kv(&b, kv->key, kv->type, kv->elem, kv->count, kv->value, kv->bytes);
    }
    if (c->key && c->value)
        put_change(&b, c);
    put_tensors(&b, g, c);
    const int rc = gb_write(&b, to);
    gb_free(&b);
    return rc;
}
