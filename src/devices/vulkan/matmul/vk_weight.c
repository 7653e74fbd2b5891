/* vk_weight.c: weights on the device: rows in file layout, but for types of matmul_dot whose blocks are no multiples of
 * 16 bytes: their rows have each part of all blocks side by side, so that shaders load 16 bytes at once. */
#include "devices/vulkan/matmul/vk_mm.h"

#include "base/mem.h"

/* A part of a block: bytes, and where they are in the file's; a row has the first part of all blocks, then the next. */
typedef struct part { size_t bytes, at; } part;
enum { MAX_PARTS = 4 };

#define VULKAN_WTYPE(sym, name, dot, grid, ...) [VK_WT_##sym] = { name, dot, grid, { __VA_ARGS__ } },
static const struct { const char *name; int dot, grid; part parts[MAX_PARTS]; } wtypes[VK_WT_COUNT] = {
#include "cards/vulkan_lists.inc"
};
#undef VULKAN_WTYPE

int vk_wtype_find(const kvant_wtype *t)
{
    for (int i = 0; i < VK_WT_COUNT; i++)
        if (strcmp(wtypes[i].name, t->name) == 0)
            return i;
    return -1;
}

void vk_grid_ptr(const vk_device *d, vk_call *c, int type)
{
    const int used = wtypes[type].grid;
    vk_ptr(c, used ? d->grids : NULL, used ? VK_GRID_WORDS * 4 : 0, VK_READ);
}

enum { SPLIT_BYTES = 4 << 20 };    /* rows rearranged at a time */

static void weight_drop(kvant_device *base, vk_weight *v)
{
    vk_free(base, v->data);
    vk_free(base, v->scale);
    vk_free(base, v->row_scale);
    kvant_free(v);
}

static int is_split(int type)
{
    return wtypes[type].parts[0].bytes > 0;
}

static void split_row(const unsigned char *from, unsigned char *to, const part *parts, size_t blocks, size_t each)
{
    for (int p = 0; p < MAX_PARTS; p++)
        for (size_t i = 0; i < blocks; i++, to += parts[p].bytes)
            memcpy(to, from + i * each + parts[p].at, parts[p].bytes);
}

static int split_fill(kvant_device *base, const kvant_weight *w, vk_weight *v, kvant_diag *diag)
{
    const int64_t rows = w->n_out * w->n_expert, fit = (int64_t)(SPLIT_BYTES / v->row_bytes), per = fit > 0 ? fit : 1;
    const part *parts = wtypes[v->type].parts;
    const size_t each = (size_t)w->type->bytes, blocks = (size_t)(w->n_in / w->type->block);
    unsigned char *some = kvant_calloc((size_t)per, v->row_bytes);
    int rc = some ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "%.64s: out of memory", w->name ? w->name : "weight");
    for (int64_t r = 0; rc == KVANT_OK && r < rows; r += per) {
        const int64_t n = rows - r < per ? rows - r : per;
        for (int64_t i = 0; i < n; i++)
            split_row((const unsigned char *)w->data + (size_t)(r + i) * blocks * each, some + (size_t)i * v->row_bytes,
                      parts, blocks, each);
        rc = vk_copy_in(base, (char *)v->data + (size_t)r * v->row_bytes, some, (size_t)n * v->row_bytes, diag);
    }
    kvant_free(some);
    return rc;
}

static int weight_fill(kvant_device *base, const kvant_weight *w, vk_weight *v, kvant_diag *diag)
{
    KVANT_TRY(vk_alloc(base, v->bytes, &v->data, diag));
    if (is_split(v->type))
        KVANT_TRY(split_fill(base, w, v, diag));
    else
        KVANT_TRY(vk_copy_in(base, v->data, w->data, v->bytes, diag));
    KVANT_TRY(vk_halves_scales((vk_device *)base, v, w->n_in, w->n_out * w->n_expert, diag));
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
    v->dot = wtypes[type].dot;
    if (is_split(type))
        v->row_bytes = (v->row_bytes + 15) & ~(size_t)15;
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

void vk_weight_free(kvant_device *base, kvant_weight *w)
{
    if (w->packed)
        weight_drop(base, w->packed);
    w->packed = NULL;
}
