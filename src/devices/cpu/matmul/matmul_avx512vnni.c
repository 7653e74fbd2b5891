/* matmul_avx512vnni.c: matmul on CPUs with AVX-512 VNNI and BF16.  f32 form: the tiles of matmul_wide_avx512.h.
 * Integer form: vpdpbusd, 64 products per instruction; sums of 32 products are exact, so the bits equal AVX2's.
 *   many rows   codes as the signed side, activations u8 = q + 128; the sum starts at bias = -128 * sum of codes
 *   few rows    straight from the packed bytes: codes as the unsigned side, minus offset * sum(q) */
#if defined(__GNUC__) && !defined(__clang__)
/* See matmul_int_avx2.c: gcc regroups or delays chains of integer vector additions and then spills. */
#pragma GCC optimize("no-tree-reassoc", "no-tree-ter")
#endif
#include "devices/cpu/matmul/matmul_int.h"
#include "devices/cpu/matmul/matmul_kernels.h"
#include "devices/cpu/matmul/matmul_wide_avx512.h"

TILES_512(TILE, F32)
TILES_512_BIG(TILE, F32)
TILES_512(TILE, F16)
TILES_512(TILE, BF16)

/* ---- scales: 16 floats ---- */

static inline __m512 times_u8(__m512 d, const uint8_t *n)
{
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load128(n))));
}

static inline __m512 times_i8(__m512 d, const uint8_t *n)
{
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(n))));
}

/* scales_<kind>(h, record, block, folds, fold), mins_<kind>: of one fold of a block. */
#define SCALES_ARGS const matmul_packed *h, const uint8_t *rec, int64_t b, int folds, int fold

static inline __m512 scales_f16(SCALES_ARGS)
{
    (void)h, (void)b, (void)folds, (void)fold;
    return vf_load_f16(rec);
}

static inline __m512 scales_bf16(SCALES_ARGS)
{
    (void)h, (void)b, (void)folds;
    return vf_load_bf16(rec + fold * 32);
}
#define scales_f16_min scales_f16

static inline __m512 scales_sub(SCALES_ARGS)
{
    return times_i8(vf_load_f16(rec), rec + 32 + ((b & h->last) * folds + fold) * PANEL);
}

static inline __attribute__((unused)) __m512 scales_part(SCALES_ARGS) /* no type of today with digits */
{
    return _mm512_mul_ps(scales_sub(h, rec, b, folds, fold), _mm512_set1_ps(h->factor));
}

static inline __m512 scales_sub_min(SCALES_ARGS)
{
    return times_u8(vf_load_f16(rec), rec + 64 + ((b & h->last) * 2 * folds + fold) * PANEL);
}

static inline __m512 with_sign(const matmul_packed *h, __m512 v)
{
    return _mm512_xor_ps(v, _mm512_castsi512_ps(_mm512_set1_epi32((int)h->min_sign)));
}

static inline __m512 mins_f16_min(SCALES_ARGS)
{
    (void)b, (void)folds, (void)fold;
    return with_sign(h, vf_load_f16(rec + 32));
}

static inline __m512 mins_sub_min(SCALES_ARGS)
{
    return with_sign(h, times_u8(vf_load_f16(rec + 32), rec + 64 + ((b & h->last) * 2 * folds + folds + fold) * PANEL));
}

/* Layouts without minima never call these. */
#define mins_f16 scales_f16
#define mins_bf16 scales_f16
#define mins_sub scales_f16
#define mins_part scales_f16

/* ---- codes of 16 outputs x 4 k at group g (0..7): raw_<store> gives unsigned bytes, centre_of above the signed code
 * (t: levels_of(h), for stores that look codes up) ---- */

enum { WHOLE_byte = 128, WHOLE_wide = 128, WHOLE_nibble = 0, WHOLE_table = 0, WHOLE_two = 0, WHOLE_three = 0,
       WHOLE_five = 0, WHOLE_six = 0 };
#define centre_of(h, store) (WHOLE_##store ? WHOLE_##store : (h)->centre)

/* The 16 levels as unsigned bytes, in every quarter. */
static inline __m512i levels_of(const matmul_packed *h, int centre)
{
    __m512i v = _mm512_broadcast_i32x4(load128(h->levels));

    return _mm512_add_epi8(v, _mm512_set1_epi8((char)centre));
}

static inline __m512i plane_four(const uint8_t *p, int g)
{
    __m512i v = load512(p + g / 2 * 64);

    return _mm512_and_si512(g % 2 ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
}

static inline __m512i plane_two(const uint8_t *p, int g)
{
    __m512i v = load512(p + g / 4 * 64);

    return _mm512_and_si512(_mm512_srl_epi16(v, _mm_cvtsi32_si128(g % 4 * 2)), _mm512_set1_epi8(3));
}

static inline __m512i plane_one(const uint8_t *p, int g)
{
    return _mm512_and_si512(_mm512_srl_epi16(load512(p), _mm_cvtsi32_si128(g)), _mm512_set1_epi8(1));
}

static inline __m512i raw_byte(const uint8_t *codes, int g, __m512i t)
{
    (void)t;
    return _mm512_xor_si512(load512(codes + g * 64), _mm512_set1_epi8((char)0x80));
}

static inline __m512i raw_nibble(const uint8_t *codes, int g, __m512i t)
{
    (void)t;
    return plane_four(codes, g);
}

static inline __m512i raw_table(const uint8_t *codes, int g, __m512i t)
{
    return _mm512_shuffle_epi8(t, plane_four(codes, g));
}
#define raw_wide raw_table

static inline __m512i raw_two(const uint8_t *codes, int g, __m512i t)
{
    (void)t;
    return plane_two(codes, g);
}

static inline __m512i raw_three(const uint8_t *codes, int g, __m512i t)
{
    (void)t;
    return _mm512_or_si512(plane_two(codes, g), _mm512_slli_epi16(plane_one(codes + 128, g), 2));
}

static inline __m512i raw_five(const uint8_t *codes, int g, __m512i t)
{
    (void)t;
    return _mm512_or_si512(plane_four(codes, g), _mm512_slli_epi16(plane_one(codes + 256, g), 4));
}

static inline __m512i raw_six(const uint8_t *codes, int g, __m512i t)
{
    (void)t;
    return _mm512_or_si512(plane_four(codes, g), _mm512_slli_epi16(plane_two(codes + 256, g), 4));
}

/* ---- many rows ---- */

#define UNPACK(name, store, scales, group_k, with_min, steps)                                                          \
    static void unpack_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, matmul_unpacked *u) \
    {                                                                                                                  \
        enum { FOLDS = 32 / (group_k), GROUPS = (group_k) / 4 };                                                       \
        const __m512i t = levels_of(h, centre_of(h, store)), centre = _mm512_set1_epi8((char)centre_of(h, store));     \
        u->group = group_k;                                                                                            \
        u->has_min = with_min;                                                                                         \
        for (int64_t i = 0; i < k / 32; i++) {                                                                         \
            int64_t b = k0 / 32 + i;                                                                                   \
            const uint8_t *codes = panel + b * h->code_bytes;                                                          \
            const uint8_t *rec = panel + h->scale_offset + (size_t)(b * 32 / h->span) * (size_t)h->span_bytes;         \
            for (int g = 0; g < 8; g += GROUPS) {                                                                      \
                const int fold = g / GROUPS;                                                                           \
                __m512i sum = _mm512_setzero_si512();                                                                  \
                for (int j = g; j < g + GROUPS; j++) {                                                                 \
                    __m512i c = raw_##store(codes, j, t);                                                              \
                    c = (with_min) ? c : _mm512_sub_epi8(c, centre);                                                   \
                    _mm512_store_si512(u->codes + i * 512 + j * 64, c);                                                \
                    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8((char)128), c);                                    \
                }                                                                                                      \
                int64_t at = (i * FOLDS + fold) * PANEL;                                                               \
                _mm512_store_si512(u->bias + at, _mm512_sub_epi32(_mm512_setzero_si512(), sum));                       \
                _mm512_store_ps(u->scale + at, scales_##scales(h, rec, b, FOLDS, fold));                               \
                if (with_min)                                                                                          \
                    _mm512_store_ps(u->min + at, mins_##scales(h, rec, b, FOLDS, fold));                               \
            }                                                                                                          \
        }                                                                                                              \
    }
INT_LAYOUTS(UNPACK)

#define UNPACK_ENTRY(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = unpack_##name,
static const matmul_unpack_fn unpack_table[LAYOUT_COUNT] = { INT_LAYOUTS(UNPACK_ENTRY) };

/* R rows: R integer sums, R float sums, one weight vector; the x bytes are broadcast from memory. */
#define V_INIT(r, P) __m512 f##r = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + (r) * ldy);
#define V_SAVE(r, P) _mm512_storeu_ps(y + (r) * ldy, f##r);
#define V_BEGIN(r, P) __m512i a##r = start;
#define V_DOT(r, P) a##r = _mm512_dpbusd_epi32(a##r, vb_splat4(x + (r) * k), wv);
#define V_FOLD(r, P)                                                                                             \
    f##r = _mm512_fmadd_ps(_mm512_cvtepi32_ps(a##r), _mm512_mul_ps(scale, _mm512_set1_ps(dx[(r) * blocks_all])), f##r);
#define V_MIN(r, group_k)                                                                                        \
    f##r = _mm512_fmadd_ps(min, _mm512_set1_ps(sx[(r) * blocks_all * (32 / (group_k))]), f##r);
#define V_MINS(R, group_k)                                                                                       \
    if (u->has_min) {                                                                                            \
        const __m512 min = _mm512_loadu_ps(wm);                                                                  \
        R(V_MIN, group_k) wm += PANEL, sx++;                                                                     \
    }
#define V_STEP(R) { __m512i wv = load512(w); R(V_DOT, unused) w += 64, x += 4; }
#define V_STEPS_16(R) V_STEP(R) V_STEP(R) V_STEP(R) V_STEP(R)
#define V_STEPS_32(R) V_STEPS_16(R) V_STEPS_16(R)
#define V_GROUP(R, group_k)                                                                                      \
    {                                                                                                            \
        const __m512i start = load512(bias);                                                                     \
        R(V_BEGIN, unused) V_STEPS_##group_k(R)                                                                  \
        const __m512 scale = _mm512_loadu_ps(ws);                                                                \
        R(V_FOLD, unused) bias += PANEL, ws += PANEL;                                                            \
    }                                                                                                            \
    V_MINS(R, group_k)
#define V_BLOCK_16(R) V_GROUP(R, 16) V_GROUP(R, 16)
#define V_BLOCK_32(R) V_GROUP(R, 32)
#define V_TILE(group_k, rows)                                                                                    \
    static void int_tile_##group_k##_##rows(const matmul_unpacked *u, const matmul_xq *q, int64_t row,           \
                                            int64_t b0, int64_t blocks, float *y, int64_t ldy, int first)        \
    {                                                                                                            \
        int64_t k = q->k, blocks_all = k / 32, at = row * blocks_all + b0;                                       \
        const uint8_t *x = q->u8 + row * k + b0 * 32, *w = u->codes;                                             \
        const float *dx = q->d + at, *sx = (group_k) == 32 ? q->s + at : q->s16 + 2 * at;                        \
        const float *ws = u->scale, *wm = u->min;                                                                \
        const int32_t *bias = u->bias;                                                                           \
        R_##rows(V_INIT, unused)                                                                                 \
        for (int64_t b = 0; b < blocks; b++, dx++) {                                                             \
            V_BLOCK_##group_k(R_##rows)                                                                          \
        }                                                                                                        \
        R_##rows(V_SAVE, unused)                                                                                 \
    }
#define V_TILES(M, g)                                                                                            \
    M(g, 1) M(g, 2) M(g, 3) M(g, 4) M(g, 5) M(g, 6) M(g, 7) M(g, 8) M(g, 9) M(g, 10) M(g, 11) M(g, 12)
V_TILES(V_TILE, 32)
V_TILES(V_TILE, 16)

#define V_ENTRY(g, rows) [rows] = int_tile_##g##_##rows,
#define TILE_ENTRY_OF(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = { V_TILES(V_ENTRY, group_k) },
static const matmul_int_tile_fn tile_table[LAYOUT_COUNT][TILE_ROWS + 1] = { INT_LAYOUTS(TILE_ENTRY_OF) };

/* ---- few rows: one row, one panel, packed bytes ---- */

#define INT_ROW(name, store, scales, group_k, with_min, steps)                                                         \
    static void int_row_##name(const matmul_packed *h, const uint8_t *panel, const matmul_xq *q, int64_t row,          \
                               float *y)                                                                               \
    {                                                                                                                  \
        enum { FOLDS = 32 / (group_k) };                                                                               \
        int64_t k = q->k;                                                                                              \
        const int8_t *x = q->q8 + row * k;                                                                             \
        const int32_t *sum = q->sum + row * k / 16, centre = (with_min) ? 0 : centre_of(h, store);                     \
        const float *dx = q->d + row * (k / 32);                                                                       \
        const float *sx = (group_k) == 32 ? q->s + row * (k / 32) : q->s16 + row * (k / 16);                           \
        const uint8_t *codes = panel, *rec = panel + h->scale_offset;                                                  \
        const __m512i t = levels_of(h, centre);                                                                        \
        __m512 acc = _mm512_setzero_ps();                                                                              \
        for (int64_t b = 0; b < k / 32; b++, x += 32, sum += 2, codes += h->code_bytes) {                              \
            for (int i = 0; i < FOLDS; i++) {                                                                          \
                int32_t off = -centre * (FOLDS == 1 ? sum[0] + sum[1] : sum[i]);                                       \
                __m512i even = _mm512_set1_epi32(off), odd = _mm512_setzero_si512();                                   \
                _Pragma("GCC unroll 4") for (int g = i * (group_k) / 4; g < (i + 1) * (group_k) / 4; g += 2) {         \
                    even = _mm512_dpbusd_epi32(even, raw_##store(codes, g, t), vb_splat4(x + g * 4));                 \
                    odd = _mm512_dpbusd_epi32(odd, raw_##store(codes, g + 1, t), vb_splat4(x + g * 4 + 4));           \
                }                                                                                                      \
                __m512 v = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));                                            \
                __m512 scale = scales_##scales(h, rec, b, FOLDS, i);                                                   \
                acc = _mm512_fmadd_ps(v, _mm512_mul_ps(scale, _mm512_set1_ps(dx[b])), acc);                            \
                if (with_min)                                                                                          \
                    acc = _mm512_fmadd_ps(mins_##scales(h, rec, b, FOLDS, i), _mm512_set1_ps(sx[b * FOLDS + i]), acc); \
            }                                                                                                          \
            if ((b & h->last) == h->last)                                                                              \
                rec += h->span_bytes;                                                                                  \
        }                                                                                                              \
        _mm512_storeu_ps(y, acc);                                                                                      \
    }
INT_LAYOUTS(INT_ROW)

#define INT_ROW_ENTRY(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = int_row_##name,
static const matmul_int_row_fn row_table[LAYOUT_COUNT] = { INT_LAYOUTS(INT_ROW_ENTRY) };

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
