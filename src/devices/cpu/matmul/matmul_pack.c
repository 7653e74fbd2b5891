/* matmul_pack.c: weights from file layout to panels of 16 outputs (layouts: matmul_pack.h).  Plain C, run once at load.
 * Owns no memory. */
#include "devices/cpu/matmul/matmul_pack.h"

#include <string.h>
#include "base/half.h"
#include "base/size.h"
#include "cards/grids.h"
#include "devices/portable.h"
#include "ops/op_util.h"

enum pack_store { STORE_byte, STORE_nibble, STORE_table, STORE_wide, STORE_two, STORE_three, STORE_five, STORE_six };
enum pack_scales { SCALES_f16, SCALES_bf16, SCALES_f16_min, SCALES_sub, SCALES_part, SCALES_sub_min };

/* Bits of the planes of a store, lowest bits first; a plane of n bits takes 64 n bytes of a 32-block. */
static const struct {
    int low, high;
} planes[] = {
    [STORE_byte] = { 8, 0 }, [STORE_nibble] = { 4, 0 }, [STORE_table] = { 4, 0 }, [STORE_wide] = { 4, 0 },
    [STORE_two] = { 2, 0 },  [STORE_three] = { 2, 1 },  [STORE_five] = { 4, 1 },  [STORE_six] = { 4, 2 },
};

/* The scales of a row's group: f16 (bf16 for SCALES_bf16) bits, and the small integers that multiply them. */
typedef struct matmul_scales {
    uint16_t top, least_top;
    uint8_t factor, least;
} matmul_scales;

/* How a type is packed: `pack` for those whose values are floats, the rest for blocks of `block` values. */
struct pack_kind {
    void (*pack)(const uint8_t *const *rows, int64_t k, uint8_t *dst);
    void (*codes)(const uint8_t *block, int v, uint8_t *to);            /* of values v .. v+7 */
    matmul_scales (*scales_of)(const uint8_t *block, int v);            /* of the group that value v is in */
    int ggml_id, layout, group, span, centre, taken, block, bytes;
    float factor;
    enum pack_store store;
    enum pack_scales scales;
    int8_t levels[16];
};

/* One panel: rows[i] is the file row of output i, NULL past n_out (packs as zeros). */
static void pack_f32(const uint8_t *const *rows, int64_t k, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t j = 0; rows[i] && j < k; j++)
            memcpy(dst + (j * PANEL + i) * 4, rows[i] + j * 4, 4);
}

static void pack_f16(const uint8_t *const *rows, int64_t k, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t j = 0; rows[i] && j < k; j++)
            memcpy(dst + (j * PANEL + i) * 2, rows[i] + j * 2, 2);
}

static void pack_bf16(const uint8_t *const *rows, int64_t k, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t j = 0; rows[i] && j < k; j++)
            memcpy(dst + (j / 2 * PANEL + i) * 4 + j % 2 * 2, rows[i] + j * 2, 2);
}

#include "cards/pack.inc"

/* Eight codes of `bits` bits, in the bytes of lo and hi, into the plane at p: elements k .. k+7 of output i. */
static void put_plane(uint8_t *p, int bits, int i, int k, uint32_t lo, uint32_t hi)
{
    const int per = 8 / bits, g = k / 4;                 /* groups that share a word */
    uint8_t *at = p + (g / per * PANEL + i) * 4;

    if (per == 1) {
        store_u32(at, lo);
        store_u32(at + PANEL * 4, hi);
    } else {
        store_u32(at, load_u32(at) | lo << g % per * bits | hi << (g + 1) % per * bits);
    }
}

static void put_codes(const struct pack_kind *kind, uint8_t *block, int i, int k, const uint8_t *q)
{
    const int low = planes[kind->store].low, high = planes[kind->store].high;
    const uint32_t lo = load_u32(q), hi = load_u32(q + 4);
    const uint32_t mask = 0x01010101u * ((1u << low) - 1), above = 0x01010101u * ((1u << high) - 1);

    put_plane(block, low, i, k, lo & mask, hi & mask);
    if (high)
        put_plane(block + 64 * low, high, i, k, lo >> low & above, hi >> low & above);
}

/* Scales of the group that begins at k (within a span) of output i. */
static void put_scales(const struct pack_kind *kind, uint8_t *rec, int i, int k, matmul_scales s)
{
    const int folds = 32 / kind->group, fold = k % 32 / kind->group, top = kind->scales == SCALES_bf16 ? fold : 0;
    const int tops = kind->scales == SCALES_f16_min || kind->scales == SCALES_sub_min ? 2 : 1;

    store_u16(rec + top * 32 + i * 2, s.top);
    if (tops == 2)
        store_u16(rec + 32 + i * 2, s.least_top);
    if (kind->scales < SCALES_sub)
        return;
    uint8_t *factors = rec + tops * 32 + k / 32 * tops * folds * PANEL;
    factors[fold * PANEL + i] = s.factor;
    if (tops == 2)
        factors[(folds + fold) * PANEL + i] = s.least;
}

static int span_bytes(const struct pack_kind *kind)
{
    const int folds = 32 / kind->group, blocks = kind->span / 32;

    switch (kind->scales) {
    case SCALES_f16: return 32;
    case SCALES_bf16: return 32 * folds;
    case SCALES_f16_min: return 64;
    case SCALES_sub_min: return 64 + blocks * 2 * folds * PANEL;
    default: return 32 + blocks * folds * PANEL;
    }
}

static void pack_row(const struct pack_kind *kind, const uint8_t *row, int i, int64_t k, const matmul_packed *h,
                     uint8_t *dst)
{
    for (int64_t at = 0; at < k; at += 8) {
        const uint8_t *src = row + at / kind->block * kind->bytes;
        const int v = (int)(at % kind->block);
        uint8_t q[8];
        kind->codes(src, v, q);
        put_codes(kind, dst + at / 32 * h->code_bytes, i, (int)(at % 32), q);
        if (at % kind->group == 0)
            put_scales(kind, dst + h->scale_offset + at / h->span * h->span_bytes, i, (int)(at % h->span),
                       kind->scales_of(src, v));
    }
}

static const struct pack_kind *kind_of(const kvant_wtype *type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].ggml_id == type->ggml_id)
            return &kinds[i];
    return NULL;
}

/* Bytes of a panel whose values are floats. */
static size_t float_bytes(int layout, size_t k)
{
    return layout == LAYOUT_F32 ? k * PANEL * 4 : (layout == LAYOUT_BF16 ? k + k % 2 : k) * PANEL * 2;
}

static matmul_packed header_of(const kvant_weight *w, const struct pack_kind *kind)
{
    const size_t k = (size_t)w->n_in;
    matmul_packed h = { .layout = kind->layout, .panels = (int)((w->n_out + PANEL - 1) / PANEL), .span = 1 };

    if (kind->pack) {
        h.panel_bytes = align64(float_bytes(kind->layout, k));
        return h;
    }
    h.code_bytes = 64 * (planes[kind->store].low + planes[kind->store].high);
    h.span = kind->span;
    h.span_bytes = span_bytes(kind);
    h.last = kind->span / 32 - 1;
    h.centre = kind->centre;
    h.min_sign = kind->taken ? 0x80000000u : 0;
    h.factor = kind->factor;
    memcpy(h.levels, kind->levels, sizeof h.levels);
    h.scale_offset = k / 32 * (size_t)h.code_bytes;
    h.panel_bytes = align64(h.scale_offset + k / (size_t)h.span * (size_t)h.span_bytes);
    return h;
}

int kvant_cpu_pack_bytes(const kvant_weight *w, size_t *bytes, kvant_diag *diag)
{
    const struct pack_kind *kind = kind_of(w->type);
    const char *name = w->name ? w->name : "weight";
    size_t total;

    if (!kind)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%.64s: type %s has no CPU layout", name, w->type->name);
    if (w->n_in < 1 || w->n_out < 1 || w->n_expert < 1 || w->n_in % w->type->block)
        return kvant_fail(diag, KVANT_EINVAL,
                          "%.64s: %lld x %lld x %d, wanted positive sizes and rows of whole blocks of %d", name,
                          (long long)w->n_in, (long long)w->n_out, w->n_expert, w->type->block);
    if (w->n_in > INT32_MAX / 8 || w->n_out > INT32_MAX / 2)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%.64s: %lld x %lld is too large", name, (long long)w->n_in,
                          (long long)w->n_out);
    matmul_packed h = header_of(w, kind);
    if (!size_mul(h.panel_bytes, (size_t)h.panels, &total) || !size_mul(total, (size_t)w->n_expert, &total) ||
        !size_add(total, PACK_HEADER, &total))
        return kvant_fail(diag, KVANT_ENOMEM, "%.64s: packed size overflows", name);
    *bytes = total;
    return KVANT_OK;
}

void kvant_cpu_pack_begin(kvant_weight *w)
{
    matmul_packed h = header_of(w, kind_of(w->type));

    memset(w->packed, 0, PACK_HEADER);
    memcpy(w->packed, &h, sizeof h);
}

void kvant_cpu_pack_part(const kvant_weight *w, int part, int parts)
{
    const matmul_packed *h = w->packed;
    const struct pack_kind *kind = kind_of(w->type);
    size_t row_bytes = (size_t)(w->n_in / w->type->block) * (size_t)w->type->bytes;
    int64_t lo, hi;

    part_range((int64_t)h->panels * w->n_expert, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const uint8_t *rows[PANEL];
        int64_t e = u / h->panels, first = u % h->panels * PANEL;
        for (int i = 0; i < PANEL; i++)
            rows[i] = first + i < w->n_out
                          ? (const uint8_t *)w->data + (size_t)(e * w->n_out + first + i) * row_bytes : NULL;
        uint8_t *dst = (uint8_t *)w->packed + PACK_HEADER + (size_t)u * h->panel_bytes;
        memset(dst, 0, h->panel_bytes);
        if (kind->pack)
            kind->pack(rows, w->n_in, dst);
        for (int i = 0; i < PANEL && !kind->pack; i++)
            if (rows[i])
                pack_row(kind, rows[i], i, w->n_in, h, dst);
    }
}

static int is_integer(const matmul_packed *w)
{
    return w->layout > LAYOUT_BF16;
}

static int same_rows(const void *a, const void *b)
{
    const kvant_matmul_args *p = a, *q = b;
    const matmul_packed *v = p->w->packed, *w = q->w->packed;

    return v && w && p->x == q->x && p->m == q->m && p->ldx == q->ldx && p->compute == q->compute &&
           p->w->n_in == q->w->n_in && p->y != q->y && is_integer(v) == is_integer(w);
}

/* Gate and up of the same rows: sorted and gathered once. */
static int same_experts(const void *a, const void *b)
{
    const kvant_matmul_id_args *p = a, *q = b;
    const matmul_packed *v = p->w->packed, *w = q->w->packed;

    return v && w && p->x == q->x && p->ids == q->ids && p->n == q->n && p->k == q->k && p->x_div == q->x_div &&
           p->ldx == q->ldx && p->compute == q->compute && p->w->n_in == q->w->n_in && p->y != q->y &&
           p->w->n_expert == q->w->n_expert && is_integer(v) == is_integer(w);
}

int kvant_cpu_same_input(const kvant_op *a, const kvant_op *b)
{
    static int (*const same[KVANT_OP_COUNT])(const void *, const void *) = {
        [KVANT_OP_MATMUL] = same_rows,
        [KVANT_OP_MATMUL_ID] = same_experts,
    };
    return a->id == b->id && same[a->id] && same[a->id](a->args, b->args);
}
