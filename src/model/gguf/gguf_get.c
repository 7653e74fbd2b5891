/* gguf_get.c: typed values out of a parsed GGUF: convert exactly or refuse, never reinterpret. */
#include "model/gguf/gguf_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size; /* 0: no fixed size */
    int integer; /* 1 unsigned, 2 signed */
} value_types[] = {
    [GGUF_U8] = { "u8", 1, 1 },       [GGUF_I8] = { "i8", 1, 2 },     [GGUF_U16] = { "u16", 2, 1 },
    [GGUF_I16] = { "i16", 2, 2 },     [GGUF_U32] = { "u32", 4, 1 },   [GGUF_I32] = { "i32", 4, 2 },
    [GGUF_F32] = { "f32", 4, 0 },     [GGUF_BOOL] = { "bool", 1, 0 }, [GGUF_STRING] = { "string", 0, 0 },
    [GGUF_ARRAY] = { "array", 0, 0 }, [GGUF_U64] = { "u64", 8, 1 },   [GGUF_I64] = { "i64", 8, 2 },
    [GGUF_F64] = { "f64", 8, 0 },
};
enum { N_VALUE_TYPES = sizeof value_types / sizeof value_types[0] };

size_t gguf_type_size(int type)
{
    return type >= 0 && type < N_VALUE_TYPES ? value_types[type].size : 0;
}

const char *gguf_type_name(int type)
{
    return type >= 0 && type < N_VALUE_TYPES ? value_types[type].name : "unknown";
}

static int wrong_type(const gguf_kv *kv, const char *wanted, kvant_diag *diag)
{
    if (kv->type == GGUF_ARRAY)
        return kvant_fail(diag, KVANT_EFORMAT, "key %s: array of %llu %s found, %s wanted", gguf_printable(kv->key).s,
                          (unsigned long long)kv->count, gguf_type_name(kv->elem), wanted);
    return kvant_fail(diag, KVANT_EFORMAT, "key %s: type %s found, %s wanted", gguf_printable(kv->key).s,
                      gguf_type_name(kv->type), wanted);
}

/* Finds key for a getter: 1 found, 0 absent and optional, else the error. */
static int lookup(const gguf *g, const char *key, int required, const gguf_kv **kv, kvant_diag *diag)
{
    *kv = gguf_find(g, key);
    if (*kv)
        return 1;
    return required ? kvant_fail(diag, KVANT_EFORMAT, "key %.120s: absent, required", key) : 0;
}

static int number_type(const gguf_kv *kv)
{
    return kv->type == GGUF_ARRAY ? kv->elem : kv->type;
}

/* Element i of integers as int64; 0: above INT64_MAX. */
static int integer_at(const gguf_kv *kv, uint64_t i, int64_t *v)
{
    const int type = number_type(kv);
    const size_t size = gguf_type_size(type);
    uint64_t u = 0;

    memcpy(&u, kv->value + i * size, size); /* little-endian: the low bytes */
    if (value_types[type].integer == 2 && size < 8 && (u >> (8 * size - 1)) & 1)
        u |= UINT64_MAX << (8 * size); /* sign */
    memcpy(v, &u, sizeof *v);
    return type != GGUF_U64 || u <= (uint64_t)INT64_MAX;
}

static double float_at(const gguf_kv *kv, uint64_t i)
{
    float f;
    double d;

    if (number_type(kv) == GGUF_F32) {
        memcpy(&f, kv->value + i * sizeof f, sizeof f);
        return f;
    }
    memcpy(&d, kv->value + i * sizeof d, sizeof d);
    return d;
}

int gguf_integer_at(const gguf_kv *kv, uint64_t i, int64_t *v)
{
    const int type = number_type(kv);

    if (i >= kv->count)
        return 0;
    if (type != GGUF_F32 && type != GGUF_F64)
        return gguf_type_size(type) > 0 && value_types[type].integer && integer_at(kv, i, v);
    const double d = float_at(kv, i);
    if (!(fabs(d) < 9007199254740992.0) || d != floor(d))
        return 0;
    *v = (int64_t)d;
    return 1;
}

int gguf_real_at(const gguf_kv *kv, uint64_t i, double *v)
{
    const int type = number_type(kv);
    int64_t n;

    if (i < kv->count && (type == GGUF_F32 || type == GGUF_F64)) {
        *v = float_at(kv, i);
        return 1;
    }
    if (!gguf_integer_at(kv, i, &n))
        return 0;
    *v = (double)n;
    return 1;
}

/* One value stands for an array whose elements are all that value: writers differ in which they give. */
static int check_one_value(const gguf_kv *kv, const char *wanted, kvant_diag *diag)
{
    const size_t size = gguf_type_size(number_type(kv));

    if (kv->type != GGUF_ARRAY)
        return KVANT_OK;
    if (size == 0 || kv->count == 0)
        return wrong_type(kv, wanted, diag);
    for (uint64_t i = 1; i < kv->count; i++)
        if (memcmp(kv->value + i * size, kv->value, size) != 0)
            return kvant_fail(diag, KVANT_EFORMAT, "key %s: an array with different values (element %llu), %s wanted",
                              gguf_printable(kv->key).s, (unsigned long long)i, wanted);
    return KVANT_OK;
}

int gguf_integer(const gguf_kv *kv, int64_t *v, kvant_diag *diag)
{
    const int type = number_type(kv);

    KVANT_TRY(check_one_value(kv, "an integer", diag));
    if (gguf_integer_at(kv, 0, v))
        return KVANT_OK;
    if (type == GGUF_U64)
        return kvant_fail(diag, KVANT_EFORMAT, "key %s: above 2^63 found, less wanted", gguf_printable(kv->key).s);
    if (type == GGUF_F32 || type == GGUF_F64)
        return kvant_fail(diag, KVANT_EFORMAT, "key %s: %g (%s) found, an integer wanted", gguf_printable(kv->key).s,
                          float_at(kv, 0), gguf_type_name(type));
    return wrong_type(kv, "an integer", diag);
}

static int as_u32(const gguf_kv *kv, uint32_t *v, kvant_diag *diag)
{
    int64_t x = 0;

    KVANT_TRY(gguf_integer(kv, &x, diag));
    if (x < 0 || x > (int64_t)UINT32_MAX)
        return kvant_fail(diag, KVANT_EFORMAT, "key %s: %lld found, 0..4294967295 wanted", gguf_printable(kv->key).s,
                          (long long)x);
    *v = (uint32_t)x;
    return KVANT_OK;
}

int gguf_shard_u32(const gguf_shard *s, const char *key, uint32_t absent, uint32_t *v, kvant_diag *diag)
{
    const gguf_kv *kv = gguf_shard_find(s, key);

    if (kv)
        return as_u32(kv, v, diag);
    *v = absent;
    return KVANT_OK;
}

int gguf_u32(const gguf *g, const char *key, int required, uint32_t *v, kvant_diag *diag)
{
    const gguf_kv *kv;
    const int found = lookup(g, key, required, &kv, diag);

    return found == 1 ? as_u32(kv, v, diag) : found;
}

/* A hyperparameter that is not finite is always an error, so it is refused here, once. */
int gguf_f32(const gguf *g, const char *key, int required, float *v, kvant_diag *diag)
{
    const gguf_kv *kv;
    const int found = lookup(g, key, required, &kv, diag);
    double x;

    if (found != 1)
        return found;
    KVANT_TRY(check_one_value(kv, "a number", diag));
    if (!gguf_real_at(kv, 0, &x))
        return wrong_type(kv, "a number", diag);
    if (!(fabs(x) <= (double)FLT_MAX))
        return kvant_fail(diag, KVANT_EFORMAT, "key %s: %g found, a finite f32 wanted", gguf_printable(kv->key).s, x);
    *v = (float)x;
    return KVANT_OK;
}

int gguf_bool(const gguf *g, const char *key, int required, int *v, kvant_diag *diag)
{
    const gguf_kv *kv;
    const int found = lookup(g, key, required, &kv, diag);
    int64_t x = 0;

    if (found != 1)
        return found;
    KVANT_TRY(check_one_value(kv, "bool", diag));
    if (number_type(kv) == GGUF_BOOL)
        x = kv->value[0];
    else if (!gguf_integer_at(kv, 0, &x))
        return wrong_type(kv, "bool", diag);
    if (x < 0 || x > 1)
        return kvant_fail(diag, KVANT_EFORMAT, "key %s: %lld found, a bool (0 or 1) wanted", gguf_printable(kv->key).s,
                          (long long)x);
    *v = (int)x;
    return KVANT_OK;
}

int gguf_string(const gguf *g, const char *key, int required, gguf_str *v, kvant_diag *diag)
{
    const gguf_kv *kv;
    const int found = lookup(g, key, required, &kv, diag);

    if (found != 1)
        return found;
    if (kv->type != GGUF_STRING)
        return wrong_type(kv, "string", diag);
    *v = (gguf_str){ (const char *)kv->value + 8, kv->bytes - 8 };
    return KVANT_OK;
}

int gguf_i32s(const gguf *g, const char *key, int required, int32_t *v, int cap, int *n, kvant_diag *diag)
{
    const gguf_kv *kv;
    const int found = lookup(g, key, required, &kv, diag);

    if (found != 1)
        return found;
    if (!gguf_type_size(number_type(kv)) || number_type(kv) == GGUF_BOOL)
        return wrong_type(kv, "an array of integers", diag);
    if (kv->count > (uint64_t)(cap > 0 ? cap : 0))
        return kvant_fail(diag, KVANT_EFORMAT, "key %s: %llu elements found, at most %d wanted",
                          gguf_printable(kv->key).s, (unsigned long long)kv->count, cap);
    for (int i = 0; i < (int)kv->count; i++) {
        int64_t x = 0;
        if (!gguf_integer_at(kv, (uint64_t)i, &x) || x < INT32_MIN || x > INT32_MAX)
            return kvant_fail(diag, KVANT_EFORMAT, "key %s: element %d is no integer of 32 bits (below 2^31)",
                              gguf_printable(kv->key).s, i);
        v[i] = (int32_t)x;
    }
    *n = (int)kv->count;
    return KVANT_OK;
}

int gguf_strings(const gguf *g, const char *key, int required, gguf_iter *it, int *n, kvant_diag *diag)
{
    const gguf_kv *kv;
    const int found = lookup(g, key, required, &kv, diag);

    if (found != 1)
        return found;
    if (kv->type != GGUF_ARRAY || kv->elem != GGUF_STRING)
        return wrong_type(kv, "an array of strings", diag);
    *it = (gguf_iter){ kv->value, kv->value + kv->bytes, kv->count };
    *n = (int)kv->count; /* at most 2^30: gguf_parse.c */
    return KVANT_OK;
}

/* The lengths were checked when the file was opened; they are checked again because a file truncated since then reads
 * as zeroes, and one rewritten in place reads as anything. */
int gguf_next(gguf_iter *it, gguf_str *v)
{
    uint64_t n;

    if (it->left == 0 || (size_t)(it->end - it->p) < sizeof n)
        return 0;
    memcpy(&n, it->p, sizeof n);
    if (n > (uint64_t)(it->end - it->p) - sizeof n)
        return 0;
    *v = (gguf_str){ (const char *)it->p + sizeof n, (size_t)n };
    it->p += sizeof n + (size_t)n;
    it->left--;
    return 1;
}

int gguf_raw_array(const gguf *g, const char *key, int required, int elem, const uint8_t **data, int *n,
                   kvant_diag *diag)
{
    const gguf_kv *kv;
    const int found = lookup(g, key, required, &kv, diag);

    if (found != 1)
        return found;
    if (kv->type != GGUF_ARRAY || kv->elem != elem)
        return wrong_type(kv, gguf_type_name(elem), diag);
    *data = kv->value;
    *n = (int)kv->count;
    return KVANT_OK;
}
