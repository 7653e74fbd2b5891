/* matmul_int_avx2.c: matmul with 8-bit activations on AVX2, and quantised panels to f32.
 *
 * Many rows: a panel is unpacked once.
 *   Q8_0 to i16 (one 32-bit lane = two k of one output), multiplied with vpmaddwd: exact, no sign tricks, twice the f32
 *   rate.  spread() gives the lanes (k0 k2) and (k1 k3) of four bytes; activations have the same order (matmul_xq.q16).
 *   Others to i8, multiplied with vpmaddubsw by unsigned activations (matmul_xq.u8, q + 128), summed in i16 for as many
 *   steps as cannot overflow, then widened: nearly four times the f32 rate.
 * Few rows: matmul_row_avx2.c. */
#if defined(__GNUC__) && !defined(__clang__)
/* gcc sees integer vector additions as plain arithmetic: it regroups a chain of them (reassoc) or puts it off to the
 * use of the sum (ter), and so keeps all products alive, far more than there are registers: 3x slower. */
#pragma GCC optimize("no-tree-reassoc", "no-tree-ter")
#endif
#include "devices/cpu/matmul_codes_avx2.h"

#include <math.h>

/* ---- activations ---- */

static inline float block_amax(const float *x, int *finite)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), inf = _mm256_set1_ps(INFINITY);
    __m256 best = _mm256_setzero_ps(), ok = _mm256_castsi256_ps(_mm256_set1_epi32(-1));

    for (int i = 0; i < 32; i += 8) {
        __m256 a = _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude);
        ok = _mm256_and_ps(ok, _mm256_cmp_ps(a, inf, _CMP_LT_OQ));
        best = _mm256_max_ps(best, a);
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(best), _mm256_extractf128_ps(best, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    *finite = _mm256_movemask_ps(ok) == 255;
    return _mm_cvtss_f32(m);
}

static inline int32_t sum8(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* 16 values: i8 in natural order, i16 in (0 2 1 3) order; returns their sum. */
static inline int32_t quantise16(const float *x, __m256 id, int8_t *q8, uint8_t *u8, int16_t *q16)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7,
                                           8, 9, 12, 13, 10, 11, 14, 15);
    __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), id));
    __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), id));
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    __m128i n = _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));

    _mm_storeu_si128((__m128i *)(void *)q8, n);
    _mm_storeu_si128((__m128i *)(void *)u8, _mm_xor_si128(n, _mm_set1_epi8((char)0x80)));
    store256(q16, _mm256_shuffle_epi8(w, order));
    return sum8(_mm256_add_epi32(a, b));
}

void matmul_quantise_avx2(const float *x, const matmul_xq *q, int64_t row)
{
    int64_t k = q->k;
    int8_t *q8 = q->q8 + row * k;
    uint8_t *u8 = q->u8 + row * k;
    int16_t *q16 = q->q16 + row * k;
    int32_t *sum = q->sum + row * k / 16;

    for (int64_t b = 0; b < k / 32; b++, x += 32) {
        int finite;
        float amax = block_amax(x, &finite), d = finite ? amax / 127.0f : NAN;
        if (finite && amax > 1e-30f) {              /* below, 127 / amax could overflow; such a block counts as 0 */
            __m256 id = _mm256_set1_ps(127.0f / amax);
            sum[2 * b] = quantise16(x, id, q8 + b * 32, u8 + b * 32, q16 + b * 32);
            sum[2 * b + 1] = quantise16(x + 16, id, q8 + b * 32 + 16, u8 + b * 32 + 16, q16 + b * 32 + 16);
        } else {
            memset(q8 + b * 32, 0, 32);
            memset(u8 + b * 32, 128, 32);
            memset(q16 + b * 32, 0, 64);
            sum[2 * b] = sum[2 * b + 1] = 0;
        }
        q->d[row * (k / 32) + b] = d;
        q->s[row * (k / 32) + b] = d * (float)(sum[2 * b] + sum[2 * b + 1]);
    }
}

/* ---- unpack ---- */

static inline void spread(__m256i v, uint8_t *dst)
{
    store256(dst, _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
    store256(dst + 64, _mm256_srai_epi16(v, 8));
}

static void unpack_q8_0(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, matmul_unpacked *u)
{
    const uint8_t *src = panel + k0 / 32 * h->code_bytes, *rec = record(h, panel, k0 / 32);

    u->group = 32;
    u->has_min = 0;
    for (int64_t i = 0; i < k * PANEL; i += 64) {
        spread(load256(src + i), u->codes + i * 2);
        spread(load256(src + i + 32), u->codes + i * 2 + 32);
    }
    for (int64_t b = 0; b < k / 32; b++, rec += h->span_bytes)
        scale_f16(rec, u->scale + b * PANEL);
}

/* -128 * sum of 4 signed codes per lane, added to acc: the codes are small enough for vpmaddubsw with 128s. */
static inline __m256i bias_of(__m256i acc, __m256i codes)
{
    __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8((char)128), codes);

    return _mm256_sub_epi32(acc, _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
}

#define UNPACK(name, codes_of, scales_of, group_k, with_min)                                                           \
    static void unpack_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, matmul_unpacked *u) \
    {                                                                                                                  \
        enum { FOLDS = 32 / (group_k), GROUPS = (group_k) / 4 };                                                       \
        u->group = group_k;                                                                                            \
        u->has_min = with_min;                                                                                         \
        for (int64_t i = 0; i < k / 32; i++) {                                                                         \
            int64_t b = k0 / 32 + i;                                                                                   \
            const uint8_t *codes = panel + b * h->code_bytes;                                                          \
            for (int g = 0; g < 8; g += GROUPS) {                                                                      \
                __m256i bias0 = _mm256_setzero_si256(), bias1 = bias0;                                                 \
                for (int j = g; j < g + GROUPS; j++) {                                                                 \
                    __m256i c0 = codes_of(codes, j, 0), c1 = codes_of(codes, j, 1);                                    \
                    store256(u->codes + i * 512 + j * 64, c0);                                                         \
                    store256(u->codes + i * 512 + j * 64 + 32, c1);                                                    \
                    bias0 = bias_of(bias0, c0);                                                                        \
                    bias1 = bias_of(bias1, c1);                                                                        \
                }                                                                                                      \
                store256(u->bias + (i * FOLDS + g / GROUPS) * PANEL, bias0);                                           \
                store256(u->bias + (i * FOLDS + g / GROUPS) * PANEL + 8, bias1);                                       \
            }                                                                                                          \
            scales_of(record(h, panel, b), b, u->scale + i * FOLDS * PANEL, u->min + i * PANEL);                       \
        }                                                                                                              \
    }
UNPACK(q4_0, codes_q4_0, scales_f16, 32, 0)
UNPACK(q4_k, codes_q4_k, scales_q4_k, 32, 1)
UNPACK(q6_k, codes_q6_k, scales_q6_k, 16, 0)
UNPACK(mxfp4, codes_fp4, scales_mxfp4, 32, 0)
UNPACK(nvfp4, codes_fp4, scales_nvfp4, 16, 0)

const matmul_unpack_fn matmul_unpack_avx2[LAYOUT_COUNT] = {
    [LAYOUT_Q8_0] = unpack_q8_0, [LAYOUT_Q4_0] = unpack_q4_0, [LAYOUT_Q4_K] = unpack_q4_k,
    [LAYOUT_Q6_K] = unpack_q6_k, [LAYOUT_MXFP4] = unpack_mxfp4, [LAYOUT_NVFP4] = unpack_nvfp4,
};

/* Four k of 8 outputs to f32: x = scale * code + min, the product rounded first as the types say. */
static inline void expand4(__m256i codes, __m256 scale, __m256 min, float *dst)
{
    __m256i k[4] = {
        _mm256_srai_epi32(_mm256_slli_epi32(codes, 24), 24), _mm256_srai_epi32(_mm256_slli_epi32(codes, 16), 24),
        _mm256_srai_epi32(_mm256_slli_epi32(codes, 8), 24), _mm256_srai_epi32(codes, 24),
    };

    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(dst + i * PANEL, _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(k[i]), scale), min));
}

/* -0.0 as min leaves every product as it is, -0.0 and NaN included. */
#define EXPAND(name, codes_of, scales_of, group_k, with_min)                                                   \
    static void expand_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst) \
    {                                                                                                          \
        _Alignas(32) float scale[2 * PANEL], min[PANEL];                                                       \
        for (int64_t b = k0 / 32; b < (k0 + k) / 32; b++) {                                                    \
            scales_of(record(h, panel, b), b, scale, min);                                                     \
            for (int g = 0; g < 8; g++, dst += 4 * PANEL)                                                      \
                for (int s = 0; s < 2; s++)                                                                    \
                    expand4(codes_of(panel + b * h->code_bytes, g, s),                                         \
                            _mm256_load_ps(scale + g * 4 / (group_k) * PANEL + s * 8),                         \
                            (with_min) ? _mm256_load_ps(min + s * 8) : _mm256_set1_ps(-0.0f), dst + s * 8);    \
        }                                                                                                      \
    }
EXPAND(q8_0, codes_q8_0, scales_f16, 32, 0)
EXPAND(q4_0, codes_q4_0, scales_f16, 32, 0)
EXPAND(q4_k, codes_q4_k, scales_q4_k, 32, 1)
EXPAND(q6_k, codes_q6_k, scales_q6_k, 16, 0)
EXPAND(mxfp4, codes_fp4, scales_mxfp4, 32, 0)
EXPAND(nvfp4, codes_fp4, scales_nvfp4, 16, 0)

void matmul_expand_avx2(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst)
{
    static const matmul_expand_fn expand[LAYOUT_COUNT] = {
        [LAYOUT_Q8_0] = expand_q8_0, [LAYOUT_Q4_0] = expand_q4_0, [LAYOUT_Q4_K] = expand_q4_k,
        [LAYOUT_Q6_K] = expand_q6_k, [LAYOUT_MXFP4] = expand_mxfp4, [LAYOUT_NVFP4] = expand_nvfp4,
    };

    expand[h->layout](h, panel, k0, k, dst);
}

/* ---- many rows ----
 * The f32 sums lie in acc (L1), because the integer sums need the registers. */

#define I_1(M) M(0)
#define I_2(M) I_1(M) M(1)
#define I_3(M) I_2(M) M(2)
#define I_4(M) I_3(M) M(3)
#define I_5(M) I_4(M) M(4)
#define I_6(M) I_5(M) M(5)

static void acc_load(float *acc, const float *y, int64_t ldy, int rows, int first)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < PANEL; i++)
            acc[r * PANEL + i] = first ? 0.0f : y[r * ldy + i];
}

static void acc_store(const float *acc, float *y, int64_t ldy, int rows)
{
    for (int r = 0; r < rows; r++)
        memcpy(y + r * ldy, acc + r * PANEL, PANEL * sizeof(float));
}

static inline void fold(float *acc, __m256i dot, __m256 scale, const float *d)
{
    __m256 s = _mm256_mul_ps(scale, _mm256_broadcast_ss(d));

    _mm256_store_ps(acc, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), s, _mm256_load_ps(acc)));
}

/* Q8_0: both halves of the panel, two k per step. */
#define WORD_FIRST(r)                                               \
    __m256i a##r, c##r;                                             \
    {                                                               \
        __m256i v = broadcast4(x + (r) * k);                        \
        a##r = _mm256_madd_epi16(w0, v);                            \
        c##r = _mm256_madd_epi16(w1, v);                            \
    }
#define WORD_NEXT(r)                                                \
    {                                                               \
        __m256i v = broadcast4(x + (r) * k);                        \
        a##r = _mm256_add_epi32(a##r, _mm256_madd_epi16(w0, v));    \
        c##r = _mm256_add_epi32(c##r, _mm256_madd_epi16(w1, v));    \
    }
#define WORD_LOAD(i) w0 = load256(w + (i) * 64), w1 = load256(w + (i) * 64 + 32)
#define WORD_STEP(I, i) x += 2, WORD_LOAD(i); I(WORD_NEXT)
#define WORD_FOLD(r)                                                                    \
    fold(acc + (r) * PANEL, a##r, _mm256_load_ps(ws), dx + (r) * blocks_all);           \
    fold(acc + (r) * PANEL + 8, c##r, _mm256_load_ps(ws + 8), dx + (r) * blocks_all);
#define WORD_TILE(rows)                                                                                          \
    static void word_tile_##rows(const matmul_unpacked *u, const matmul_xq *q, int64_t row, int64_t b0,          \
                                 int64_t blocks, float *y, int64_t ldy, int first)                               \
    {                                                                                                            \
        _Alignas(32) float acc[(rows) * PANEL];                                                                  \
        int64_t k = q->k, blocks_all = k / 32;                                                                   \
        const int16_t *x = q->q16 + row * k + b0 * 32;                                                           \
        const float *dx = q->d + row * blocks_all + b0, *ws = u->scale;                                          \
        const uint8_t *w = u->codes;                                                                             \
        acc_load(acc, y, ldy, rows, first);                                                                      \
        for (int64_t b = 0; b < blocks; b++, dx++, ws += PANEL, w += 1024, x += 2) {                             \
            __m256i WORD_LOAD(0);                                                                                \
            I_##rows(WORD_FIRST)                                                                                 \
            WORD_STEP(I_##rows, 1) WORD_STEP(I_##rows, 2) WORD_STEP(I_##rows, 3) WORD_STEP(I_##rows, 4)          \
            WORD_STEP(I_##rows, 5) WORD_STEP(I_##rows, 6) WORD_STEP(I_##rows, 7) WORD_STEP(I_##rows, 8)          \
            WORD_STEP(I_##rows, 9) WORD_STEP(I_##rows, 10) WORD_STEP(I_##rows, 11) WORD_STEP(I_##rows, 12)       \
            WORD_STEP(I_##rows, 13) WORD_STEP(I_##rows, 14) WORD_STEP(I_##rows, 15)                              \
            I_##rows(WORD_FOLD)                                                                                  \
        }                                                                                                        \
        acc_store(acc, y, ldy, rows);                                                                            \
    }
WORD_TILE(1)
WORD_TILE(2)
WORD_TILE(3)
WORD_TILE(4)
WORD_TILE(5)
WORD_TILE(6)

/* Others: one half of the panel (8 outputs), four k per step; p sums in i16, a in i32. */
#define BYTE_BEGIN(r) __m256i a##r = load256(bias), p##r;
#define BYTE_FIRST(r) p##r = _mm256_maddubs_epi16(broadcast4(x + (r) * k), wv);
#define BYTE_NEXT(r) p##r = _mm256_add_epi16(p##r, _mm256_maddubs_epi16(broadcast4(x + (r) * k), wv));
#define BYTE_WIDEN(r) a##r = _mm256_add_epi32(a##r, _mm256_madd_epi16(p##r, one));
#define BYTE_FOLD(r) fold(acc + (r) * PANEL, a##r, scale, dx + (r) * blocks_all);
#define BYTE_MIN(r)                                                                                              \
    _mm256_store_ps(acc + (r) * PANEL, _mm256_fmadd_ps(min, _mm256_broadcast_ss(sx + (r) * blocks_all),          \
                                                       _mm256_load_ps(acc + (r) * PANEL)));
#define BYTE_STEP(I, M) wv = load256(w); I(M) w += 64, x += 4;
#define BYTE_1(I) BYTE_STEP(I, BYTE_FIRST)
#define BYTE_2(I) BYTE_1(I) BYTE_STEP(I, BYTE_NEXT)
#define BYTE_4(I) BYTE_2(I) BYTE_STEP(I, BYTE_NEXT) BYTE_STEP(I, BYTE_NEXT)
/* Sums of a fold: steps that fit i16, widened; repeated. */
#define SUM_Q4_0(I) BYTE_4(I) BYTE_STEP(I, BYTE_NEXT) BYTE_STEP(I, BYTE_NEXT) BYTE_STEP(I, BYTE_NEXT)            \
    BYTE_STEP(I, BYTE_NEXT) I(BYTE_WIDEN)                       /* 8 x 2 x 255 x 8 = 32640 */
#define SUM_4X2(I) BYTE_4(I) I(BYTE_WIDEN) BYTE_4(I) I(BYTE_WIDEN)   /* 4 x 2 x 255 x 15 = 30600 */
#define SUM_4(I) BYTE_4(I) I(BYTE_WIDEN)                        /* 4 x 2 x 255 x 12 = 24480 */
#define SUM_2X2(I) BYTE_2(I) I(BYTE_WIDEN) BYTE_2(I) I(BYTE_WIDEN)   /* 2 x 2 x 255 x 32 = 32640 */
#define BYTE_TILE(name, SUM, group_k, with_min, rows)                                                            \
    static void name##_tile_##rows(const matmul_unpacked *u, const matmul_xq *q, int64_t row, int64_t b0,        \
                                   int64_t blocks, float *y, int64_t ldy, int first)                             \
    {                                                                                                            \
        _Alignas(32) float all[(rows) * PANEL];                                                                  \
        int64_t k = q->k, blocks_all = k / 32;                                                                   \
        const __m256i one = _mm256_set1_epi16(1);                                                                \
        acc_load(all, y, ldy, rows, first);                                                                      \
        for (int s = 0; s < 2; s++) {                                                                            \
            const uint8_t *x = q->u8 + row * k + b0 * 32, *w = u->codes + s * 32;                                \
            const float *dx = q->d + row * blocks_all + b0, *ws = u->scale + s * 8;                              \
            const float *sx = q->s + row * blocks_all + b0, *wm = u->min + s * 8;                                \
            const int32_t *bias = u->bias + s * 8;                                                               \
            float *acc = all + s * 8;                                                                            \
            for (int64_t i = 0; i < blocks * (32 / (group_k)); i++, bias += PANEL, ws += PANEL) {                \
                __m256i wv;                                                                                      \
                I_##rows(BYTE_BEGIN)                                                                             \
                SUM(I_##rows)                                                                                    \
                __m256 scale = _mm256_load_ps(ws);                                                               \
                I_##rows(BYTE_FOLD)                                                                              \
                if (with_min) {                                                                                  \
                    __m256 min = _mm256_load_ps(wm);                                                             \
                    I_##rows(BYTE_MIN)                                                                           \
                }                                                                                                \
                wm += PANEL, sx++;                                                                               \
                dx += (group_k) == 32 || i % 2 == 1;                                                             \
            }                                                                                                    \
        }                                                                                                        \
        acc_store(all, y, ldy, rows);                                                                            \
    }
#define BYTE_TILES(name, SUM, group_k, with_min)                                                                 \
    BYTE_TILE(name, SUM, group_k, with_min, 1) BYTE_TILE(name, SUM, group_k, with_min, 2)                        \
    BYTE_TILE(name, SUM, group_k, with_min, 3) BYTE_TILE(name, SUM, group_k, with_min, 4)                        \
    BYTE_TILE(name, SUM, group_k, with_min, 5) BYTE_TILE(name, SUM, group_k, with_min, 6)
BYTE_TILES(q4_0, SUM_Q4_0, 32, 0)
BYTE_TILES(q4_k, SUM_4X2, 32, 1)
BYTE_TILES(mxfp4, SUM_4X2, 32, 0)
BYTE_TILES(nvfp4, SUM_4, 16, 0)
BYTE_TILES(q6_k, SUM_2X2, 16, 0)

#define TILE_TABLE(name)                                                                                               \
    {                                                                                                                  \
        NULL, name##_tile_1, name##_tile_2, name##_tile_3, name##_tile_4, name##_tile_5, name##_tile_6                 \
    }
const matmul_int_tile_fn matmul_int_tile_avx2[LAYOUT_COUNT][TILE_ROWS + 1] = {
    [LAYOUT_Q8_0] = TILE_TABLE(word), [LAYOUT_Q4_0] = TILE_TABLE(q4_0), [LAYOUT_Q4_K] = TILE_TABLE(q4_k),
    [LAYOUT_Q6_K] = TILE_TABLE(q6_k), [LAYOUT_MXFP4] = TILE_TABLE(mxfp4), [LAYOUT_NVFP4] = TILE_TABLE(nvfp4),
};
