/* matmul_pack.c: weights from file layout to panels of 16 outputs (layouts: matmul_pack.h).  Plain C, run once at load.
 * Owns no memory. */
#include "devices/cpu/matmul_pack.h"

#include <string.h>
#include "base/half.h"
#include "base/mem.h"
#include "ops/op_util.h"

/* One panel: rows[i] is the file row of output i, NULL past n_out (packs as zeros). */
typedef void (*pack_fn)(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst);

static void pack_f32(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    (void)h;
    for (int i = 0; i < PANEL; i++)
        for (int64_t j = 0; rows[i] && j < k; j++)
            memcpy(dst + (j * PANEL + i) * 4, rows[i] + j * 4, 4);
}

static void pack_f16(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    (void)h;
    for (int i = 0; i < PANEL; i++)
        for (int64_t j = 0; rows[i] && j < k; j++)
            memcpy(dst + (j * PANEL + i) * 2, rows[i] + j * 2, 2);
}

static void pack_bf16(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    (void)h;
    for (int i = 0; i < PANEL; i++)
        for (int64_t j = 0; rows[i] && j < k; j++)
            memcpy(dst + (j / 2 * PANEL + i) * 4 + j % 2 * 2, rows[i] + j * 2, 2);
}

/* Code n (0..15) of element k (0..31) of output i into a 256-byte block. */
static void put_nibble(uint8_t *codes, int i, int k, int n)
{
    uint8_t *b = codes + (k / 8 * PANEL + i) * 4 + k % 4;

    *b = (uint8_t)(*b | n << (k % 8 >= 4 ? 4 : 0));
}

static void pack_q8_0(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t b = 0; rows[i] && b < k / 32; b++) {
            const uint8_t *src = rows[i] + b * 34;
            for (int j = 0; j < 32; j++)
                dst[b * h->code_bytes + (j / 4 * PANEL + i) * 4 + j % 4] = src[2 + j];
            memcpy(dst + h->scale_offset + b * h->span_bytes + i * 2, src, 2);
        }
}

static void pack_q4_0(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t b = 0; rows[i] && b < k / 32; b++) {
            const uint8_t *src = rows[i] + b * 18;
            for (int j = 0; j < 16; j++) {
                put_nibble(dst + b * h->code_bytes, i, j, src[2 + j] & 15);
                put_nibble(dst + b * h->code_bytes, i, j + 16, src[2 + j] >> 4);
            }
            memcpy(dst + h->scale_offset + b * h->span_bytes + i * 2, src, 2);
        }
}

static void pack_mxfp4(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t b = 0; rows[i] && b < k / 32; b++) {
            const uint8_t *src = rows[i] + b * 17;
            /* 2^(e-128) as bf16: from e = 2 a normal number with exponent field e - 1; e = 0, 1 are subnormal */
            int e = src[0], bits = e >= 2 ? (e - 1) << 7 : 0x20 << e;
            for (int j = 0; j < 16; j++) {
                put_nibble(dst + b * h->code_bytes, i, j, src[1 + j] & 15);
                put_nibble(dst + b * h->code_bytes, i, j + 16, src[1 + j] >> 4);
            }
            store_u16(dst + h->scale_offset + b * h->span_bytes + i * 2, (uint16_t)bits);
        }
}

/* Half of a UE4M3 value as bf16 (exact). */
static uint16_t ue4m3_half(uint8_t v)
{
    int e = v >> 3 & 15, m = v & 7;
    float x = e == 0 ? (float)m * 0.0009765625f : bits_f32((uint32_t)(e - 8 + 127) << 23) * (1.0f + (float)m / 8.0f);

    return v == 0x7f || v == 0 ? 0 : f32_to_bf16(x);
}

static void pack_nvfp4(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t s = 0; rows[i] && s < k / 16; s++) {       /* sub-block of 16 */
            const uint8_t *src = rows[i] + s / 4 * 36, *codes = src + 4 + s % 4 * 8;
            uint8_t *block = dst + s / 2 * h->code_bytes;
            int first = (int)(s % 2) * 16;
            for (int j = 0; j < 8; j++) {
                put_nibble(block, i, first + j, codes[j] & 15);
                put_nibble(block, i, first + 8 + j, codes[j] >> 4);
            }
            store_u16(dst + h->scale_offset + s / 2 * h->span_bytes + s % 2 * 32 + i * 2, ue4m3_half(src[s % 4]));
        }
}

static void pack_q4_k_scales(const uint8_t *src, int i, uint8_t *rec)
{
    const uint8_t *sc = src + 4;

    memcpy(rec + i * 2, src, 2);
    memcpy(rec + 32 + i * 2, src + 2, 2);
    for (int b = 0; b < 8; b++) {
        int s = b < 4 ? sc[b] & 63 : (sc[b + 4] & 15) | (sc[b - 4] >> 6) << 4;
        int m = b < 4 ? sc[b + 4] & 63 : sc[b + 4] >> 4 | (sc[b] >> 6) << 4;
        rec[64 + b * 32 + i] = (uint8_t)s;
        rec[64 + b * 32 + 16 + i] = (uint8_t)m;
    }
}

static void pack_q4_k(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t b = 0; rows[i] && b < k / 256; b++) {
            const uint8_t *src = rows[i] + b * 144;
            pack_q4_k_scales(src, i, dst + h->scale_offset + b * h->span_bytes);
            for (int j = 0; j < 256; j++) {
                int byte = src[16 + j / 64 * 32 + j % 32], n = j % 64 < 32 ? byte & 15 : byte >> 4;
                put_nibble(dst + (b * 8 + j / 32) * h->code_bytes, i, j % 32, n);
            }
        }
}

/* Code (0..63) of element j of a Q6_K block. */
static int q6_code(const uint8_t *src, int j)
{
    int half = j / 128, l = j % 32, q = j % 128 / 32;
    int lo = src[64 * half + l + 32 * (q & 1)], hi = src[128 + 32 * half + l];

    return (q < 2 ? lo & 15 : lo >> 4) | (hi >> (2 * q) & 3) << 4;
}

static void pack_q6_k(const uint8_t *const *rows, int64_t k, const matmul_packed *h, uint8_t *dst)
{
    for (int i = 0; i < PANEL; i++)
        for (int64_t b = 0; rows[i] && b < k / 256; b++) {
            const uint8_t *src = rows[i] + b * 210;
            uint8_t *rec = dst + h->scale_offset + b * h->span_bytes;
            memcpy(rec + i * 2, src + 208, 2);
            for (int s = 0; s < 16; s++)
                rec[32 + s * 16 + i] = src[192 + s];
            for (int j = 0; j < 256; j++) {
                uint8_t *block = dst + (b * 8 + j / 32) * h->code_bytes;
                int q = q6_code(src, j), t = j % 32;
                uint8_t *hi = block + 256 + (t / 16 * PANEL + i) * 4 + t % 4;
                put_nibble(block, i, t, q & 15);
                *hi = (uint8_t)(*hi | q >> 4 << (t % 16 / 4 * 2));
            }
        }
}

/* Element sizes: for wide types bytes per value; for others bytes of codes per 32 k and of scales per span. */
static const struct pack_kind {
    int ggml_id, layout, value_bytes, code_bytes, span, span_bytes;
    pack_fn pack;
} kinds[] = {
    { 0, LAYOUT_F32, 4, 0, 1, 0, pack_f32 },
    { 1, LAYOUT_F16, 2, 0, 1, 0, pack_f16 },
    { 30, LAYOUT_BF16, 2, 0, 2, 0, pack_bf16 },
    { 8, LAYOUT_Q8_0, 0, 512, 32, 32, pack_q8_0 },
    { 2, LAYOUT_Q4_0, 0, 256, 32, 32, pack_q4_0 },
    { 12, LAYOUT_Q4_K, 0, 256, 256, 320, pack_q4_k },
    { 14, LAYOUT_Q6_K, 0, 384, 256, 288, pack_q6_k },
    { 39, LAYOUT_MXFP4, 0, 256, 32, 32, pack_mxfp4 },
    { 40, LAYOUT_NVFP4, 0, 256, 32, 64, pack_nvfp4 },
};

static const struct pack_kind *kind_of(const kvant_wtype *type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].ggml_id == type->ggml_id)
            return &kinds[i];
    return NULL;
}

static matmul_packed header_of(const kvant_weight *w, const struct pack_kind *kind)
{
    matmul_packed h = { .layout = kind->layout, .code_bytes = kind->code_bytes, .span = kind->span,
                        .span_bytes = kind->span_bytes };
    size_t k = (size_t)w->n_in, bytes;

    h.panels = (int)((w->n_out + PANEL - 1) / PANEL);
    if (kind->value_bytes) {
        bytes = (k + (size_t)kind->span - 1) / (size_t)kind->span * (size_t)kind->span * PANEL *
                (size_t)kind->value_bytes;
    } else {
        h.scale_offset = k / 32 * (size_t)kind->code_bytes;
        bytes = h.scale_offset + k / (size_t)kind->span * (size_t)kind->span_bytes;
    }
    h.panel_bytes = align64(bytes);
    return h;
}

int matmul_pack_bytes(const kvant_weight *w, size_t *bytes, kvant_diag *diag)
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

void matmul_pack_begin(kvant_weight *w)
{
    matmul_packed h = header_of(w, kind_of(w->type));

    memset(w->packed, 0, PACK_HEADER);
    memcpy(w->packed, &h, sizeof h);
}

void matmul_pack_part(const kvant_weight *w, int part, int parts)
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
        kind->pack(rows, w->n_in, h, dst);
    }
}

int matmul_same_input(const kvant_op *a, const kvant_op *b)
{
    if (a->id != KVANT_OP_MATMUL || b->id != KVANT_OP_MATMUL)
        return 0;
    const kvant_matmul_args *p = a->args, *q = b->args;
    const matmul_packed *v = p->w->packed, *w = q->w->packed;

    return v && w && p->x == q->x && p->m == q->m && p->ldx == q->ldx && p->compute == q->compute &&
           p->w->n_in == q->w->n_in && p->y != q->y && (v->layout > LAYOUT_BF16) == (w->layout > LAYOUT_BF16);
}
