/* matmul_avx512vnni.c: matmul on CPUs with AVX-512 VNNI and BF16.  f32 form: the tiles of matmul_wide_avx512.h.
 * Integer form: vpdpbusd, 64 products per instruction; sums of 32 products are exact, so the bits equal AVX2's.
 *   many rows   codes as the signed side, activations u8 = q + 128; the sum starts at bias = -128 * sum of codes
 *   few rows    straight from the packed bytes: codes as the unsigned side, minus offset * sum(q) */
#if defined(__GNUC__) && !defined(__clang__)
/* See matmul_int_avx2.c: gcc regroups or delays chains of integer vector additions and then spills. */
#pragma GCC optimize("no-tree-reassoc", "no-tree-ter")
#endif
#include <string.h>
#include "devices/cpu/matmul_int.h"
#include "devices/cpu/matmul_kernels.h"
#include "devices/cpu/matmul_wide_avx512.h"

TILES_512(TILE, F32)
TILES_512_BIG(TILE, F32)
TILES_512(TILE, F16)
TILES_512(TILE, BF16)

static inline __m512i load512(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline __m512i broadcast4(const void *p)
{
    int32_t v;

    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* ---- scales: 16 floats ---- */

static inline __m512 scale_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline __m512 scale_bf16(const uint8_t *p)
{
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));

    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

static inline __m512 times_u8(__m512 d, const uint8_t *n)
{
    return _mm512_mul_ps(d,
                         _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)n))));
}

static inline __m512 times_i8(__m512 d, const uint8_t *n)
{
    return _mm512_mul_ps(d,
                         _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)n))));
}

/* scales_*(record, block, fold): scale of fold 0 or 1 of a block. */
static inline __m512 scales_f16(const uint8_t *rec, int64_t b, int fold)
{
    (void)b, (void)fold;
    return scale_f16(rec);
}

static inline __m512 scales_bf16(const uint8_t *rec, int64_t b, int fold)
{
    (void)b;
    return scale_bf16(rec + fold * 32);
}

static inline __m512 scales_q4_k(const uint8_t *rec, int64_t b, int fold)
{
    (void)fold;
    return times_u8(scale_f16(rec), rec + 64 + b % 8 * 32);
}

static inline __m512 mins_q4_k(const uint8_t *rec, int64_t b)
{
    return _mm512_xor_ps(times_u8(scale_f16(rec + 32), rec + 80 + b % 8 * 32), _mm512_set1_ps(-0.0f));
}

static inline __m512 scales_q6_k(const uint8_t *rec, int64_t b, int fold)
{
    return times_i8(scale_f16(rec), rec + 32 + b % 8 * 32 + fold * 16);
}

/* ---- codes of 16 outputs x 4 k at group g (0..7), as unsigned bytes offset by OFFSET_* ---- */

enum { OFFSET_q8_0 = 128, OFFSET_q4_0 = 8, OFFSET_q4_k = 0, OFFSET_q6_k = 32, OFFSET_fp4 = 12 };

static inline __m512i nibbles(const uint8_t *codes, int g)
{
    __m512i v = load512(codes + g / 2 * 64);

    return _mm512_and_si512(g % 2 ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
}

static inline __m512i codes_q8_0(const uint8_t *codes, int g)
{
    return _mm512_xor_si512(load512(codes + g * 64), _mm512_set1_epi8((char)0x80));
}

static inline __m512i codes_q4_0(const uint8_t *codes, int g)
{
    return nibbles(codes, g);
}

static inline __m512i codes_q4_k(const uint8_t *codes, int g)
{
    return nibbles(codes, g);
}

/* 12 + twice the E2M1 value. */
static inline __m512i codes_fp4(const uint8_t *codes, int g)
{
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

    return _mm512_shuffle_epi8(table, nibbles(codes, g));
}

static inline __m512i codes_q6_k(const uint8_t *codes, int g)
{
    __m512i hi = _mm512_srl_epi16(load512(codes + 256 + g / 4 * 64), _mm_cvtsi32_si128(g % 4 * 2));

    return _mm512_or_si512(nibbles(codes, g), _mm512_slli_epi16(_mm512_and_si512(hi, _mm512_set1_epi8(3)), 4));
}

/* ---- many rows ---- */

#define UNPACK(name, kind, scales_of, group_k, with_min)                                                               \
    static void unpack_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, matmul_unpacked *u) \
    {                                                                                                                  \
        enum { FOLDS = 32 / (group_k), GROUPS = (group_k) / 4 };                                                       \
        u->group = group_k;                                                                                            \
        u->has_min = with_min;                                                                                         \
        for (int64_t i = 0; i < k / 32; i++) {                                                                         \
            int64_t b = k0 / 32 + i;                                                                                   \
            const uint8_t *codes = panel + b * h->code_bytes;                                                          \
            const uint8_t *rec = panel + h->scale_offset + (size_t)(b * 32 / h->span) * (size_t)h->span_bytes;         \
            for (int g = 0; g < 8; g += GROUPS) {                                                                      \
                __m512i sum = _mm512_setzero_si512();                                                                  \
                for (int j = g; j < g + GROUPS; j++) {                                                                 \
                    __m512i c = _mm512_sub_epi8(codes_##kind(codes, j), _mm512_set1_epi8((char)OFFSET_##kind));        \
                    _mm512_store_si512(u->codes + i * 512 + j * 64, c);                                                \
                    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8((char)128), c);                                    \
                }                                                                                                      \
                int64_t at = (i * FOLDS + g / GROUPS) * PANEL;                                                         \
                _mm512_store_si512(u->bias + at, _mm512_sub_epi32(_mm512_setzero_si512(), sum));                       \
                _mm512_store_ps(u->scale + at, scales_of(rec, b, g / GROUPS));                                         \
            }                                                                                                          \
            if (with_min)                                                                                              \
                _mm512_store_ps(u->min + i * PANEL, mins_q4_k(rec, b));                                                \
        }                                                                                                              \
    }
UNPACK(q8_0, q8_0, scales_f16, 32, 0)
UNPACK(q4_0, q4_0, scales_f16, 32, 0)
UNPACK(q4_k, q4_k, scales_q4_k, 32, 1)
UNPACK(q6_k, q6_k, scales_q6_k, 16, 0)
UNPACK(mxfp4, fp4, scales_bf16, 32, 0)
UNPACK(nvfp4, fp4, scales_bf16, 16, 0)

static const matmul_unpack_fn unpack_table[LAYOUT_COUNT] = {
    [LAYOUT_Q8_0] = unpack_q8_0, [LAYOUT_Q4_0] = unpack_q4_0, [LAYOUT_Q4_K] = unpack_q4_k,
    [LAYOUT_Q6_K] = unpack_q6_k, [LAYOUT_MXFP4] = unpack_mxfp4, [LAYOUT_NVFP4] = unpack_nvfp4,
};

/* R rows: R integer sums, R float sums, one weight vector; the x bytes are broadcast from memory. */
#define V_INIT(r, P) __m512 f##r = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + (r) * ldy);
#define V_SAVE(r, P) _mm512_storeu_ps(y + (r) * ldy, f##r);
#define V_BEGIN(r, P) __m512i a##r = start;
#define V_DOT(r, P) a##r = _mm512_dpbusd_epi32(a##r, broadcast4(x + (r) * k), wv);
#define V_FOLD(r, P)                                                                                             \
    f##r = _mm512_fmadd_ps(_mm512_cvtepi32_ps(a##r), _mm512_mul_ps(scale, _mm512_set1_ps(dx[(r) * blocks_all])), f##r);
#define V_MIN(r, P) f##r = _mm512_fmadd_ps(min, _mm512_set1_ps(sx[(r) * blocks_all]), f##r);
#define V_STEP(R) { __m512i wv = load512(w); R(V_DOT, unused) w += 64, x += 4; }
#define V_FOLD16(R)                                                                                              \
    {                                                                                                            \
        const __m512i start = load512(bias);                                                                     \
        R(V_BEGIN, unused) V_STEP(R) V_STEP(R) V_STEP(R) V_STEP(R)                                               \
        const __m512 scale = _mm512_loadu_ps(ws);                                                                \
        R(V_FOLD, unused) bias += PANEL, ws += PANEL;                                                            \
    }
#define V_BLOCK_16(R) V_FOLD16(R) V_FOLD16(R)
#define V_BLOCK_32(R)                                                                                            \
    {                                                                                                            \
        const __m512i start = load512(bias);                                                                     \
        R(V_BEGIN, unused) V_STEP(R) V_STEP(R) V_STEP(R) V_STEP(R) V_STEP(R) V_STEP(R) V_STEP(R) V_STEP(R)       \
        const __m512 scale = _mm512_loadu_ps(ws);                                                                \
        R(V_FOLD, unused) bias += PANEL, ws += PANEL;                                                            \
    }
#define V_TILE(group_k, rows)                                                                                    \
    static void int_tile_##group_k##_##rows(const matmul_unpacked *u, const matmul_xq *q, int64_t row,           \
                                            int64_t b0, int64_t blocks, float *y, int64_t ldy, int first)        \
    {                                                                                                            \
        int64_t k = q->k, blocks_all = k / 32;                                                                   \
        const uint8_t *x = q->u8 + row * k + b0 * 32, *w = u->codes;                                             \
        const float *dx = q->d + row * blocks_all + b0, *sx = q->s + row * blocks_all + b0;                      \
        const float *ws = u->scale, *wm = u->min;                                                                \
        const int32_t *bias = u->bias;                                                                           \
        R_##rows(V_INIT, unused)                                                                                 \
        for (int64_t b = 0; b < blocks; b++, dx++, sx++, wm += PANEL) {                                          \
            V_BLOCK_##group_k(R_##rows)                                                                          \
            if (u->has_min) {                                                                                    \
                const __m512 min = _mm512_loadu_ps(wm);                                                          \
                R_##rows(V_MIN, unused)                                                                          \
            }                                                                                                    \
        }                                                                                                        \
        R_##rows(V_SAVE, unused)                                                                                 \
    }
#define V_TILES(M, g)                                                                                            \
    M(g, 1) M(g, 2) M(g, 3) M(g, 4) M(g, 5) M(g, 6) M(g, 7) M(g, 8) M(g, 9) M(g, 10) M(g, 11) M(g, 12)
V_TILES(V_TILE, 32)
V_TILES(V_TILE, 16)

#define V_ENTRY(g, rows) [rows] = int_tile_##g##_##rows,
static const matmul_int_tile_fn tile_table[LAYOUT_COUNT][TILE_ROWS + 1] = {
    [LAYOUT_Q8_0] = { V_TILES(V_ENTRY, 32) }, [LAYOUT_Q4_0] = { V_TILES(V_ENTRY, 32) },
    [LAYOUT_Q4_K] = { V_TILES(V_ENTRY, 32) }, [LAYOUT_MXFP4] = { V_TILES(V_ENTRY, 32) },
    [LAYOUT_Q6_K] = { V_TILES(V_ENTRY, 16) }, [LAYOUT_NVFP4] = { V_TILES(V_ENTRY, 16) },
};

/* ---- few rows: one row, one panel, packed bytes ---- */

#define INT_ROW(name, kind, scales_of, group_k, with_min)                                                              \
    static void int_row_##name(const matmul_packed *h, const uint8_t *panel, const matmul_xq *q, int64_t row,          \
                               float *y)                                                                               \
    {                                                                                                                  \
        int64_t k = q->k;                                                                                              \
        const int8_t *x = q->q8 + row * k;                                                                             \
        const int32_t *sum = q->sum + row * k / 16;                                                                    \
        const float *dx = q->d + row * (k / 32), *sx = q->s + row * (k / 32);                                          \
        const uint8_t *codes = panel, *rec = panel + h->scale_offset;                                                  \
        __m512 acc = _mm512_setzero_ps();                                                                              \
        for (int64_t b = 0; b < k / 32; b++, x += 32, sum += 2, codes += h->code_bytes) {                              \
            for (int i = 0; i < 32 / (group_k); i++) {                                                                 \
                int32_t off = -OFFSET_##kind * ((group_k) == 32 ? sum[0] + sum[1] : sum[i]);                           \
                __m512i even = _mm512_set1_epi32(off), odd = _mm512_setzero_si512();                                   \
                for (int g = i * (group_k) / 4; g < (i + 1) * (group_k) / 4; g += 2) {                                 \
                    even = _mm512_dpbusd_epi32(even, codes_##kind(codes, g), broadcast4(x + g * 4));                   \
                    odd = _mm512_dpbusd_epi32(odd, codes_##kind(codes, g + 1), broadcast4(x + g * 4 + 4));             \
                }                                                                                                      \
                __m512 t = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));                                            \
                acc = _mm512_fmadd_ps(t, _mm512_mul_ps(scales_of(rec, b, i), _mm512_set1_ps(dx[b])), acc);             \
            }                                                                                                          \
            if (with_min)                                                                                              \
                acc = _mm512_fmadd_ps(mins_q4_k(rec, b), _mm512_set1_ps(sx[b]), acc);                                  \
            if (h->span == 32 || b % 8 == 7)                                                                           \
                rec += h->span_bytes;                                                                                  \
        }                                                                                                              \
        _mm512_storeu_ps(y, acc);                                                                                      \
    }
INT_ROW(q8_0, q8_0, scales_f16, 32, 0)
INT_ROW(q4_0, q4_0, scales_f16, 32, 0)
INT_ROW(q4_k, q4_k, scales_q4_k, 32, 1)
INT_ROW(q6_k, q6_k, scales_q6_k, 16, 0)
INT_ROW(mxfp4, fp4, scales_bf16, 32, 0)
INT_ROW(nvfp4, fp4, scales_bf16, 16, 0)

static const matmul_int_row_fn row_table[LAYOUT_COUNT] = {
    [LAYOUT_Q8_0] = int_row_q8_0, [LAYOUT_Q4_0] = int_row_q4_0, [LAYOUT_Q4_K] = int_row_q4_k,
    [LAYOUT_Q6_K] = int_row_q6_k, [LAYOUT_MXFP4] = int_row_mxfp4, [LAYOUT_NVFP4] = int_row_nvfp4,
};

static const matmul_isa isa = {
    ISA_512_F32,
    .quantise = matmul_quantise_avx2,
    .unpack = unpack_table,
    .int_row = row_table,
    .int_rows = 12,
    .int_direct_rows = 3,
    .int_tile = tile_table,
};

MATMUL_KERNELS(avx512vnni)
