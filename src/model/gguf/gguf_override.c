/* gguf_override.c: values given beside a file, "KEY=TYPE:VALUE" as llama.cpp's --override-kv has them.  Owns their
 * syntax and their bytes; readers of keys find them as though the file said so. */
#include "model/gguf/gguf_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

enum { MAX_OVERRIDES = 256, MAX_VALUE = 1 << 20 };

static int bad(const char *text, const char *why, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EINVAL,
                      "override \"%.80s\": %s; wanted KEY=TYPE:VALUE with a type of int, float, "
                      "bool or str",
                      text, why);
}

/* The value behind "TYPE:" as its bytes in a file: *type, out[*n] of at least strlen(value) + 8. */
static int value_bytes(const char *text, const char *v, uint8_t *out, int *type, size_t *n, kvant_diag *diag)
{
    char *end = NULL;

    errno = 0;
    *n = 8;
    if (strncmp(v, "int:", 4) == 0) {
        const int64_t x = strtoll(v + 4, &end, 10);
        *type = GGUF_I64;
        memcpy(out, &x, sizeof x);
        return !v[4] || *end || errno ? bad(text, "its value is no integer of 64 bits", diag) : KVANT_OK;
    }
    if (strncmp(v, "float:", 6) == 0) {
        const double x = strtod(v + 6, &end);
        *type = GGUF_F64;
        memcpy(out, &x, sizeof x);
        return !v[6] || *end || !isfinite(x) ? bad(text, "its value is no finite number", diag) : KVANT_OK;
    }
    if (strncmp(v, "bool:", 5) == 0) {
        *type = GGUF_BOOL;
        *n = 1;
        out[0] = strcmp(v + 5, "true") == 0;
        return out[0] || strcmp(v + 5, "false") == 0 ? KVANT_OK : bad(text, "a bool is true or false", diag);
    }
    if (strncmp(v, "str:", 4) != 0)
        return bad(text, "its type is unknown", diag);
    const uint64_t len = strlen(v + 4);
    *type = GGUF_STRING;
    memcpy(out, &len, sizeof len);
    memcpy(out + 8, v + 4, (size_t)len);
    *n = 8 + (size_t)len;
    return KVANT_OK;
}

/* Returns the class of a value's type: an integer, a float, a bool, a text. */
static int class_of(int type)
{
    return type == GGUF_F32 || type == GGUF_F64 ? GGUF_F64 : type == GGUF_STRING || type == GGUF_BOOL ? type : GGUF_I64;
}

/* One value may stand for an array of numbers, never for a list of texts. */
static int check_type(const char *text, const gguf_kv *old, int type, kvant_diag *diag)
{
    const int was = old->type == GGUF_ARRAY ? old->elem : old->type;

    if (class_of(was) == class_of(type) && !(old->type == GGUF_ARRAY && was == GGUF_STRING))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "override \"%.80s\": the file's value is %s%s, wanted its type", text,
                      old->type == GGUF_ARRAY ? "an array of " : "", gguf_type_name(was));
}

/* Room for n keys more: the file's keys stay where they are in the order. */
static int make_room(gguf *g, int n, kvant_diag *diag)
{
    gguf_shard *s = &g->shards[0];
    const size_t had = (size_t)s->n_kv + 1, want = had + (size_t)n;
    gguf_kv *kv = kvant_realloc(s->kv, had * sizeof *kv, want * sizeof *kv);
    s->kv = kv ? kv : s->kv;
    uint32_t *order = kvant_realloc(s->kv_order, had * sizeof *order, want * sizeof *order);
    s->kv_order = order ? order : s->kv_order;
    g->given = kvant_calloc((size_t)n, sizeof *g->given);
    return kv && order && g->given ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "override: out of memory");
}

static int override_one(gguf *g, const char *text, kvant_diag *diag)
{
    gguf_shard *s = &g->shards[0];
    const char *eq = strchr(text, '=');
    const size_t key_n = eq ? (size_t)(eq - text) : 0, len = strlen(text);
    size_t n = 0;
    int type = GGUF_I64;

    if (!eq || key_n == 0 || key_n >= 128)
        return bad(text, "it has no key of 1 to 127 bytes before a =", diag);
    if (len > MAX_VALUE)
        return bad(text, "it is longer than 1 MiB", diag);
    uint8_t *p = kvant_calloc(key_n + 1 + len + 16, 1);
    if (!p)
        return kvant_fail(diag, KVANT_ENOMEM, "override: out of memory");
    g->given[g->n_given++] = p;
    memcpy(p, text, key_n);
    uint8_t *value = p + key_n + 1;
    KVANT_TRY(value_bytes(text, eq + 1, value, &type, &n, diag));
    gguf_kv *old = (gguf_kv *)(uintptr_t)gguf_shard_find(s, (const char *)p);
    if (old && !old->given)
        KVANT_TRY(check_type(text, old, type, diag));
    gguf_kv *kv = old ? old : &s->kv[s->n_kv++];
    *kv = (gguf_kv){
        .key = { (const char *)p, key_n }, .type = type, .count = 1, .value = value, .bytes = n, .given = 1
    };
    return gguf_kv_sort(s, diag);
}

int gguf_override(gguf *g, const char *const *list, int n, kvant_diag *diag)
{
    if (n == 0)
        return KVANT_OK;
    if (n < 0 || n > MAX_OVERRIDES || g->given)
        return kvant_fail(diag, KVANT_EINVAL, "overrides: %d, wanted at most %d, once", n, MAX_OVERRIDES);
    KVANT_TRY(make_room(g, n, diag));
    for (int i = 0; i < n; i++)
        KVANT_TRY(override_one(g, list[i], diag));
    return gguf_seen_begin(g, diag);
}
