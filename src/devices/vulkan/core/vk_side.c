/* vk_side.c: a side of a cache, K or V: its pages, its parameter, and what its format's card says
 * (cards/vulkan_lists.inc). */
#include "devices/vulkan/core/vk_dev.h"

#include "kvant/qjl.h"

#define VULKAN_FORMAT(name, space, book, decode, encode, encoder, unit, unit_bytes, factor, nibbles, centre, bits)    \
    [VK_FMT_##name] = { #name, { VK_SPACE_##space, VK_ENCODE_##encoder, unit, unit_bytes, factor, nibbles, centre,    \
                                 bits, book, decode, encode } },
static const struct { const char *name; vk_card card; } formats[VK_FMT_ALL] = {
#include "cards/vulkan_lists.inc"
};
#undef VULKAN_FORMAT

static int format_find(const kvant_format *f)
{
    for (int i = 0; i < VK_FMT_ALL; i++)
        if (strcmp(formats[i].name, f->name) == 0)
            return i;
    return -1;
}

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
    out->card = formats[out->fmt].card;
    out->d = head_dim;
    out->dp = kvant_format_padded(s->fmt, head_dim);
    out->sdim = kvant_format_sdim(s->fmt, head_dim);
    out->factor = out->card.factor && s->param;
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

static size_t table_bytes(const kvant_seqs *q)
{
    return (size_t)q->n_seqs * (size_t)q->table_stride * 4;
}

void vk_tails_ptr(vk_call *c, const kvant_seqs *q, int tails)
{
    vk_ptr(c, tails ? q->tail_table : NULL, tails ? table_bytes(q) : 0, VK_READ);
}

void vk_seqs_ptr(vk_call *c, const kvant_seqs *q, int tails)
{
    vk_ptr(c, q->q0, (size_t)(q->n_seqs + 1) * 4, VK_READ);
    vk_ptr(c, q->pos0, (size_t)q->n_seqs * 4, VK_READ);
    vk_ptr(c, q->table, table_bytes(q), VK_READ);
    vk_tails_ptr(c, q, tails);
}
