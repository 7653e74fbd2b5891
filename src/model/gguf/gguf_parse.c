/* gguf_parse.c: the bytes of one GGUF file (v2, v3, little-endian) into keys and tensors, or a refusal.
 * Owns every check against the file's size.  Does not know about shards or about what a model needs.
 *
 *   "GGUF" | u32 version | u64 n_tensors | u64 n_kv
 *   n_kv      * { string key | i32 type | value }
 *   n_tensors * { string name | u32 n_dims | i64 ne[n_dims] | i32 ggml type | u64 offset }
 *   pad to alignment | data
 *   string = u64 length + bytes; array = i32 element type + u64 count + elements
 *
 * The rule that keeps a hostile file out: a number from the file is compared with the bytes that are left before it is
 * added, multiplied or used to allocate.  There is no recursion: arrays of arrays are refused. */
#include "model/gguf/gguf_internal.h"

#include <string.h>
#include "base/mem.h"
#include "kvant/wtype.h"

/* Read position; invariant at <= size. */
typedef struct gguf_reader {
    const uint8_t *base;
    size_t size, at;
    const char *file;
    kvant_diag *diag;
} gguf_reader;

static int truncated(const gguf_reader *r, const char *what, uint64_t wanted)
{
    return kvant_fail(r->diag, KVANT_EFORMAT, "%s: truncated in %s at byte %zu: %llu bytes wanted, %zu left", r->file,
                      what, r->at, (unsigned long long)wanted, r->size - r->at);
}

static int take(gguf_reader *r, void *out, size_t n, const char *what)
{
    if (n > r->size - r->at)
        return truncated(r, what, n);
    memcpy(out, r->base + r->at, n);
    r->at += n;
    return KVANT_OK;
}

static int take_string(gguf_reader *r, gguf_str *out, const char *what)
{
    uint64_t n = 0;

    KVANT_TRY(take(r, &n, sizeof n, what));
    if (n > GGUF_MAX_LENGTH)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %s at byte %zu: length %llu, at most 2^30 wanted", r->file, what,
                          r->at - sizeof n, (unsigned long long)n);
    if (n > r->size - r->at)
        return truncated(r, what, n);
    *out = (gguf_str){ (const char *)r->base + r->at, (size_t)n };
    r->at += (size_t)n;
    return KVANT_OK;
}

/* Key or tensor name: 1..max bytes, no NUL (callers compare with C strings). */
static int take_name(gguf_reader *r, gguf_str *out, size_t max, const char *what)
{
    const size_t at = r->at;

    KVANT_TRY(take_string(r, out, what));
    if (out->n == 0 || out->n > max)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %s '%s' at byte %zu: length %zu, 1..%zu wanted", r->file, what,
                          gguf_printable(*out).s, at, out->n, max);
    if (memchr(out->s, 0, out->n))
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %s '%s' at byte %zu contains a NUL byte", r->file, what,
                          gguf_printable(*out).s, at);
    return KVANT_OK;
}

static int bad_count(const gguf_reader *r, const char *what, uint64_t n, uint64_t max)
{
    return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %s %llu found, at most %llu wanted (%zu bytes left)", r->file, what,
                      (unsigned long long)n, (unsigned long long)max, r->size - r->at);
}

/* Magic, version, counts.  A count is believed only if that many smallest records fit into the file. */
static int parse_header(gguf_reader *r, gguf_shard *s)
{
    const size_t min_kv = 8 + 1 + 4 + 1, min_tensor = 8 + 1 + 4 + 4 + 8;
    char magic[4] = { 0 };
    uint32_t version = 0;
    uint64_t n_tensors = 0, n_kv = 0;

    KVANT_TRY(take(r, magic, sizeof magic, "magic"));
    if (memcmp(magic, "GGUF", 4) != 0)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: magic at byte 0: %02x %02x %02x %02x found, \"GGUF\" wanted",
                          r->file, (unsigned char)magic[0], (unsigned char)magic[1], (unsigned char)magic[2],
                          (unsigned char)magic[3]);
    KVANT_TRY(take(r, &version, sizeof version, "version"));
    if (version != 0 && (version & 0xffffu) == 0)
        return kvant_fail(r->diag, KVANT_EFORMAT,
                          "%s: version 0x%08x at byte 4: a big-endian file, little-endian wanted", r->file, version);
    if (version < 2 || version > 3)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: version %u at byte 4, 2 or 3 wanted", r->file, version);
    KVANT_TRY(take(r, &n_tensors, sizeof n_tensors, "tensor count"));
    KVANT_TRY(take(r, &n_kv, sizeof n_kv, "key count"));
    const uint64_t left = r->size - r->at;
    const uint64_t max_kv = left / min_kv < GGUF_MAX_KV ? left / min_kv : GGUF_MAX_KV;
    if (n_kv > max_kv)
        return bad_count(r, "key count", n_kv, max_kv);
    const uint64_t rest = (left - n_kv * min_kv) / min_tensor;
    const uint64_t max_tensors = rest < GGUF_MAX_TENSORS ? rest : GGUF_MAX_TENSORS;
    if (n_tensors > max_tensors)
        return bad_count(r, "tensor count", n_tensors, max_tensors);
    s->version = (int)version;
    s->n_kv = (int)n_kv;
    s->n_tensors = (int)n_tensors;
    return KVANT_OK;
}

static int parse_array(gguf_reader *r, gguf_kv *kv)
{
    int32_t elem = 0;
    uint64_t count = 0;

    KVANT_TRY(take(r, &elem, sizeof elem, "array type"));
    if (elem == GGUF_ARRAY)
        return kvant_fail(r->diag, KVANT_EFORMAT,
                          "%s: key %s: array of arrays found, an array of scalars or strings wanted", r->file,
                          gguf_printable(kv->key).s);
    const size_t each = gguf_type_size(elem);
    if (each == 0 && elem != GGUF_STRING)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: key %s: array element type %d found, 0..12 wanted", r->file,
                          gguf_printable(kv->key).s, elem);
    KVANT_TRY(take(r, &count, sizeof count, "array count"));
    const uint64_t fit = (r->size - r->at) / (each ? each : 8);
    const uint64_t max = fit < GGUF_MAX_LENGTH ? fit : GGUF_MAX_LENGTH;
    if (count > max)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: key %s: %llu array elements found, at most %llu fit", r->file,
                          gguf_printable(kv->key).s, (unsigned long long)count, (unsigned long long)max);
    kv->elem = elem;
    kv->count = count;
    kv->value = r->base + r->at;
    if (each)
        r->at += (size_t)count * each; /* count <= left / each */
    gguf_str ignored;
    for (uint64_t i = 0; !each && i < count; i++)
        KVANT_TRY(take_string(r, &ignored, "string array"));
    kv->bytes = (size_t)(r->base + r->at - kv->value);
    return KVANT_OK;
}

static int parse_kv(gguf_reader *r, gguf_kv *kv)
{
    int32_t type = 0;

    memset(kv, 0, sizeof *kv);
    KVANT_TRY(take_name(r, &kv->key, GGUF_MAX_KEY, "key"));
    KVANT_TRY(take(r, &type, sizeof type, "value type"));
    kv->type = type;
    if (type == GGUF_ARRAY)
        return parse_array(r, kv);
    kv->value = r->base + r->at;
    kv->count = 1;
    if (type == GGUF_STRING) {
        gguf_str v;
        KVANT_TRY(take_string(r, &v, "string value"));
    } else {
        const size_t n = gguf_type_size(type);
        if (n == 0)
            return kvant_fail(r->diag, KVANT_EFORMAT, "%s: key %s: value type %d found, 0..12 wanted", r->file,
                              gguf_printable(kv->key).s, type);
        if (n > r->size - r->at)
            return truncated(r, "value", n);
        r->at += n;
    }
    kv->bytes = (size_t)(r->base + r->at - kv->value);
    return KVANT_OK;
}

static int kv_less(const void *ctx, uint32_t a, uint32_t b)
{
    const gguf_kv *kv = ctx;
    return gguf_str_cmp(kv[a].key, kv[b].key) < 0;
}

int gguf_kv_sort(gguf_shard *s, kvant_diag *diag)
{
    for (int i = 0; i < s->n_kv; i++)
        s->kv_order[i] = (uint32_t)i;
    gguf_sort(s->kv_order, s->n_kv, kv_less, s->kv);
    for (int i = 1; i < s->n_kv; i++) {
        const gguf_str a = s->kv[s->kv_order[i - 1]].key;
        if (gguf_str_cmp(a, s->kv[s->kv_order[i]].key) == 0)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: key %s: found twice, once wanted", s->name,
                              gguf_printable(a).s);
    }
    return KVANT_OK;
}

static int parse_kvs(gguf_reader *r, gguf_shard *s)
{
    s->kv = kvant_calloc((size_t)s->n_kv + 1, sizeof *s->kv);
    s->kv_order = kvant_calloc((size_t)s->n_kv + 1, sizeof *s->kv_order);
    if (!s->kv || !s->kv_order)
        return kvant_fail(r->diag, KVANT_ENOMEM, "%s: no memory for %d keys", r->file, s->n_kv);
    for (int i = 0; i < s->n_kv; i++)
        KVANT_TRY(parse_kv(r, &s->kv[i]));
    return gguf_kv_sort(s, r->diag);
}

static int parse_alignment(gguf_shard *s, kvant_diag *diag)
{
    const gguf_kv *kv = gguf_shard_find(s, "general.alignment");

    s->alignment = 32;
    if (!kv)
        return KVANT_OK;
    uint32_t a = 0;
    KVANT_TRY(gguf_shard_u32(s, "general.alignment", 32, &a, diag));
    if (a < 1 || a > GGUF_MAX_ALIGN || (a & (a - 1)) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: key general.alignment: %u found, a power of two in 1..%d wanted",
                          s->name, a, GGUF_MAX_ALIGN);
    s->alignment = a;
    return KVANT_OK;
}

/* Bytes of a tensor from its shape and type; every product checked. */
static int tensor_bytes(const gguf_reader *r, gguf_tensor *t)
{
    const char *type_name = NULL;
    int block = 0, bytes = 0;
    size_t n = 1, total;

    if (!kvant_ggml_type_info(t->type, &type_name, &block, &bytes))
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: tensor %s: type number %d is unknown", r->file,
                          gguf_printable(t->name).s, t->type);
    if (t->ne[0] % block != 0)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: tensor %s: ne[0]=%lld, %s wants a multiple of %d", r->file,
                          gguf_printable(t->name).s, (long long)t->ne[0], type_name, block);
    for (int i = 0; i < 4; i++)
        if (!size_mul(n, (size_t)t->ne[i], &n) || n > (size_t)INT64_MAX)
            return kvant_fail(r->diag, KVANT_EFORMAT,
                              "%s: tensor %s: shape %lld x %lld x %lld x %lld is more than 2^63", r->file,
                              gguf_printable(t->name).s, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2],
                              (long long)t->ne[3]);
    if (!size_mul(n / (size_t)block, (size_t)bytes, &total))
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: tensor %s: %zu values of %s are more than 2^64 bytes", r->file,
                          gguf_printable(t->name).s, n, type_name);
    t->bytes = total;
    return KVANT_OK;
}

/* One tensor record; *offset is relative to the data section and checked later. */
static int parse_tensor(gguf_reader *r, gguf_tensor *t, uint64_t *offset)
{
    uint32_t n_dims = 0;
    int32_t type = 0;

    memset(t, 0, sizeof *t);
    KVANT_TRY(take_name(r, &t->name, GGUF_MAX_NAME, "tensor name"));
    KVANT_TRY(take(r, &n_dims, sizeof n_dims, "tensor record"));
    if (n_dims > 4) /* none: a single value */
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: tensor %s: %u dimensions found, 0..4 wanted", r->file,
                          gguf_printable(t->name).s, n_dims);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < 4; i++) {
        t->ne[i] = 1;
        if (i < t->n_dims)
            KVANT_TRY(take(r, &t->ne[i], sizeof t->ne[i], "tensor record"));
        if (t->ne[i] < 1)
            return kvant_fail(r->diag, KVANT_EFORMAT, "%s: tensor %s: ne[%d]=%lld found, 1 or more wanted", r->file,
                              gguf_printable(t->name).s, i, (long long)t->ne[i]);
    }
    KVANT_TRY(take(r, &type, sizeof type, "tensor record"));
    KVANT_TRY(take(r, offset, sizeof *offset, "tensor record"));
    t->type = type;
    return tensor_bytes(r, t);
}

static int parse_tensors(gguf_reader *r, gguf_shard *s, uint64_t *offsets)
{
    s->tensors = kvant_calloc((size_t)s->n_tensors + 1, sizeof *s->tensors);
    if (!s->tensors)
        return kvant_fail(r->diag, KVANT_ENOMEM, "%s: no memory for %d tensor records", r->file, s->n_tensors);
    for (int i = 0; i < s->n_tensors; i++)
        KVANT_TRY(parse_tensor(r, &s->tensors[i], &offsets[i]));
    const size_t left = r->size - r->at;
    const size_t pad = (0 - r->at) & (s->alignment - 1);
    if (s->n_tensors > 0 && pad > left)
        return truncated(r, "padding before the data", pad);
    s->data_start = pad > left ? r->size : r->at + pad; /* a file without tensors may end unpadded */
    return KVANT_OK;
}

/* Offsets into pointers: aligned and inside the file. */
static int place_tensors(const gguf_reader *r, gguf_shard *s, const uint64_t *offsets)
{
    const uint64_t room = s->size - s->data_start;

    for (int i = 0; i < s->n_tensors; i++) {
        gguf_tensor *t = &s->tensors[i];
        if (offsets[i] % s->alignment != 0)
            return kvant_fail(r->diag, KVANT_EFORMAT, "%s: tensor %s: offset %llu found, a multiple of %u wanted",
                              r->file, gguf_printable(t->name).s, (unsigned long long)offsets[i], s->alignment);
        if (offsets[i] > room || t->bytes > room - offsets[i])
            return kvant_fail(r->diag, KVANT_EFORMAT,
                              "%s: tensor %s: %zu bytes at offset %llu, the data section has %llu (truncated file?)",
                              r->file, gguf_printable(t->name).s, t->bytes, (unsigned long long)offsets[i],
                              (unsigned long long)room);
        if ((s->data_start + (size_t)offsets[i]) % GGUF_DATA_ALIGN != 0) /* only with an alignment below that */
            return kvant_fail(r->diag, KVANT_EFORMAT, "%s: tensor %s: data at byte %zu, a multiple of %d wanted",
                              r->file, gguf_printable(t->name).s, s->data_start + (size_t)offsets[i], GGUF_DATA_ALIGN);
        t->data = s->data + s->data_start + (size_t)offsets[i];
    }
    return KVANT_OK;
}

static int data_less(const void *ctx, uint32_t a, uint32_t b)
{
    const gguf_tensor *t = ctx;
    return t[a].data < t[b].data;
}

/* Two tensors in the same bytes: never written by a converter, so refused. */
static int check_overlap(const gguf_reader *r, const gguf_shard *s)
{
    uint32_t *order = kvant_calloc((size_t)s->n_tensors + 1, sizeof *order);
    int rc = KVANT_OK;

    if (!order)
        return kvant_fail(r->diag, KVANT_ENOMEM, "%s: no memory to check %d tensors", r->file, s->n_tensors);
    for (int i = 0; i < s->n_tensors; i++)
        order[i] = (uint32_t)i;
    gguf_sort(order, s->n_tensors, data_less, s->tensors);
    for (int i = 1; i < s->n_tensors && rc == KVANT_OK; i++) {
        const gguf_tensor *a = &s->tensors[order[i - 1]], *b = &s->tensors[order[i]];
        if ((size_t)(b->data - a->data) < a->bytes)
            rc = kvant_fail(r->diag, KVANT_EFORMAT, "%s: tensor %s overlaps tensor %s", r->file,
                            gguf_printable(b->name).s, gguf_printable(a->name).s);
    }
    kvant_free(order);
    return rc;
}

int gguf_parse(gguf_shard *s, kvant_diag *diag)
{
    gguf_reader r = { s->data, s->size, 0, s->name, diag };
    int rc;

    KVANT_TRY(parse_header(&r, s));
    KVANT_TRY(parse_kvs(&r, s));
    KVANT_TRY(parse_alignment(s, diag));
    uint64_t *offsets = kvant_calloc((size_t)s->n_tensors + 1, sizeof *offsets);
    if (!offsets)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: no memory for %d tensor offsets", s->name, s->n_tensors);
    rc = parse_tensors(&r, s, offsets);
    if (rc == KVANT_OK)
        rc = place_tensors(&r, s, offsets);
    if (rc == KVANT_OK)
        rc = check_overlap(&r, s);
    kvant_free(offsets);
    return rc;
}

void gguf_shard_clear(gguf_shard *s)
{
    kvant_free(s->kv);
    kvant_free(s->kv_order);
    kvant_free(s->tensors);
    file_unmap(&s->file);
    memset(s, 0, sizeof *s);
}
