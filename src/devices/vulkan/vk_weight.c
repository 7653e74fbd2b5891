/* vk_weight.c: weights and cache sides: what the ops of this device know about kvant's weight types and formats. */
#include "devices/vulkan/vk_dev.h"

#include "base/mem.h"
#include "base/pick.h"
#include "kvant/qjl.h"

#define VULKAN_FORMAT(name, space, book, decode, encode)                                                              \
    [VK_FMT_##name] = { #name, VK_SPACE_##space, book, decode, encode },
static const struct {
    const char *name;
    int space;
    uint32_t book, decode, encode;
} formats[VK_FMT_COUNT] = {
#include "cards/vulkan_lists.inc"
};
#undef VULKAN_FORMAT

#define VULKAN_WTYPE(sym, name) [VK_WT_##sym] = name,
static const char *const wtypes[VK_WT_COUNT] = {
#include "cards/vulkan_lists.inc"
};
#undef VULKAN_WTYPE

static int format_find(const kvant_format *f)
{
    for (int i = 0; i < VK_FMT_COUNT; i++)
        if (strcmp(formats[i].name, f->name) == 0)
            return i;
    return -1;
}

int vk_wtype_find(const kvant_wtype *t)
{
    for (int i = 0; i < VK_WT_COUNT; i++)
        if (strcmp(wtypes[i], t->name) == 0)
            return i;
    return -1;
}

/* ---- cache sides ---- */

int vk_side_supports(vk_device *d, const kvant_kv_side *s, int head_dim, kvant_diag *diag)
{
    (void)d;
    if (!s->fmt || format_find(s->fmt) < 0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: cache format %s has no kernels here",
                          s->fmt ? s->fmt->name : "(none)");
    if (head_dim < 1 || head_dim > KVANT_MAX_HEAD_DIM)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: head_dim %d, wanted 1 to %d", head_dim,
                          KVANT_MAX_HEAD_DIM);
    if (s->page_bytes % 4 || s->page_bytes > 1u << 30)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "device vulkan: %s pages of %zu bytes, wanted a multiple of 4, at most 1 GiB", s->fmt->name,
                          s->page_bytes);
    return KVANT_OK;
}

/* A parameter may be host memory: it is uploaded once per address. */
static int param_of(vk_device *d, const void *param, size_t bytes, const void **out, kvant_diag *diag)
{
    int i = 0;
    *out = param;
    if (!param || vk_block_of(d, (uint64_t)(uintptr_t)param))
        return KVANT_OK;
    while (i < VK_MAX_PARAMS && d->params[i].host && d->params[i].host != param)
        i++;
    if (i == VK_MAX_PARAMS)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: more than %d different format parameters",
                          VK_MAX_PARAMS);
    if (!d->params[i].host) {
        KVANT_TRY(vk_alloc(&d->base, bytes, &d->params[i].dev, diag));
        KVANT_TRY(vk_copy_in(&d->base, d->params[i].dev, param, bytes, diag));
        d->params[i].host = param;
    }
    *out = d->params[i].dev;
    return KVANT_OK;
}

int vk_side_of(vk_device *d, const kvant_kv_side *s, int head_dim, vk_side *out, kvant_diag *diag)
{
    KVANT_TRY(vk_side_supports(d, s, head_dim, diag));
    out->s = s;
    out->fmt = format_find(s->fmt);
    out->space = formats[out->fmt].space;
    out->d = head_dim;
    out->dp = kvant_format_padded(s->fmt, head_dim);
    out->sdim = kvant_format_sdim(s->fmt, head_dim);
    out->book = formats[out->fmt].book;
    out->decode = formats[out->fmt].decode;
    out->encode = formats[out->fmt].encode;
    out->param_bytes = s->fmt->flags & KVANT_FORMAT_PARAM ? KVANT_QJL_FILE_BYTES : sizeof(float);
    return param_of(d, s->param, out->param_bytes, &out->param, diag);
}

void vk_side_pages(const vk_device *d, vk_call *c, const vk_side *s, int write)
{
    vk_ptr(c, s->s->pages, vk_rest(d, s->s->pages), write);
}

void vk_side_tail(const vk_device *d, vk_call *c, const vk_side *s, int write)
{
    vk_ptr(c, s->s->tail, s->s->tail ? vk_rest(d, s->s->tail) : 0, write);
}

void vk_side_param(vk_call *c, const vk_side *s)
{
    vk_ptr(c, s->param, s->param ? s->param_bytes : 0, VK_READ);
}

void vk_side_strides(vk_call *c, const vk_side *s)
{
    vk_uint(c, (int64_t)(s->s->page_bytes / 4));
    vk_uint(c, (int64_t)s->s->head_bytes);
    vk_uint(c, (int64_t)s->s->row_bytes);
}

void vk_books_ptr(const vk_device *d, vk_call *c)
{
    vk_ptr(c, d->books, VK_BOOK_FLOATS * sizeof(float), VK_READ);
}

int vk_fits(const char *op, int64_t count, kvant_diag *diag)
{
    if (count >= 0 && count < (int64_t)1 << 31)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %s: %lld values in one array, wanted fewer than 2^31", op,
                      (long long)count);
}

/* ---- weights: rows in file layout, but for q8_0 ---- */

enum { SPLIT_BYTES = 4 << 20 };    /* rows rearranged at a time */

static void weight_drop(kvant_device *base, vk_weight *v)
{
    vk_free(base, v->data);
    vk_free(base, v->scale);
    kvant_free(v);
}

/* q8_0 rows, 34 bytes per block, as all codes and then all scales: shaders load 16 codes at once. */
static void split_rows(const unsigned char *from, unsigned char *to, int64_t rows, int64_t n_in, size_t row_bytes)
{
    const size_t blocks = (size_t)n_in / 32;
    for (int64_t r = 0; r < rows; r++, to += row_bytes)
        for (size_t i = 0; i < blocks; i++, from += 34) {
            memcpy(to + 32 * i, from + 2, 32);
            memcpy(to + n_in + 2 * i, from, 2);
        }
}

static int split_fill(kvant_device *base, const kvant_weight *w, vk_weight *v, kvant_diag *diag)
{
    const int64_t rows = w->n_out * w->n_expert, fit = (int64_t)(SPLIT_BYTES / v->row_bytes), per = fit > 0 ? fit : 1;
    const size_t file_row = (size_t)w->n_in / 32 * 34;
    unsigned char *some = kvant_calloc((size_t)per, v->row_bytes);
    int rc = some ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "%.64s: out of memory", w->name ? w->name : "weight");
    for (int64_t r = 0; rc == KVANT_OK && r < rows; r += per) {
        const int64_t n = rows - r < per ? rows - r : per;
        split_rows((const unsigned char *)w->data + (size_t)r * file_row, some, n, w->n_in, v->row_bytes);
        rc = vk_copy_in(base, (char *)v->data + (size_t)r * v->row_bytes, some, (size_t)n * v->row_bytes, diag);
    }
    kvant_free(some);
    return rc;
}

static int weight_fill(kvant_device *base, const kvant_weight *w, vk_weight *v, kvant_diag *diag)
{
    KVANT_TRY(vk_alloc(base, v->bytes, &v->data, diag));
    if (v->type == VK_WT_q8_split)
        KVANT_TRY(split_fill(base, w, v, diag));
    else
        KVANT_TRY(vk_copy_in(base, v->data, w->data, v->bytes, diag));
    if (!w->scale)
        return KVANT_OK;
    KVANT_TRY(vk_alloc(base, (size_t)w->n_scale * sizeof(float), &v->scale, diag));
    return vk_copy_in(base, v->scale, w->scale, (size_t)w->n_scale * sizeof(float), diag);
}

int vk_weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag)
{
    const int type = vk_wtype_find(w->type);
    vk_weight *v;
    int rc;

    (void)compute;                 /* one layout serves both modes */
    if (type < 0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %.64s: weight type %s has no kernels here",
                          w->name ? w->name : "weight", w->type->name);
    v = kvant_calloc(1, sizeof *v);
    if (!v)
        return kvant_fail(diag, KVANT_ENOMEM, "%.64s: out of memory", w->name ? w->name : "weight");
    v->type = type;
    v->row_bytes = (size_t)(w->n_in / w->type->block) * (size_t)w->type->bytes;
    if (type == VK_WT_q8_0) {
        v->type = VK_WT_q8_split;
        v->row_bytes = ((size_t)w->n_in + (size_t)w->n_in / 16 + 15) & ~(size_t)15;
    }
    v->bytes = v->row_bytes * (size_t)w->n_out * (size_t)w->n_expert;
    rc = weight_fill(base, w, v, diag);
    if (rc < 0) {
        weight_drop(base, v);
        return rc;
    }
    w->packed = v;
    w->data = NULL;
    return KVANT_OK;
}

int vk_weight_make(kvant_device *base, kvant_weight *w, int compute, const void *table, int n, uint64_t seed,
                   kvant_diag *diag)
{
    const size_t each = (size_t)w->type->bytes;
    const int64_t blocks = w->n_in / w->type->block * w->n_out * w->n_expert;
    unsigned char *rows = kvant_alloc((size_t)blocks * each);
    int rc;

    if (!rows)
        return kvant_fail(diag, KVANT_ENOMEM, "%.64s: out of memory", w->name ? w->name : "weight");
    for (int64_t i = 0; i < blocks; i++)
        memcpy(rows + (size_t)i * each,
               (const unsigned char *)table + (size_t)pick_block(seed, (uint64_t)i, (uint32_t)n) * each, each);
    w->data = rows;
    rc = vk_weight_load(base, w, compute, diag);
    w->data = NULL;
    kvant_free(rows);
    return rc;
}

void vk_weight_free(kvant_device *base, kvant_weight *w)
{
    if (w->packed)
        weight_drop(base, w->packed);
    w->packed = NULL;
}
