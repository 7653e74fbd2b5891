/* matmul_int_avx2.c: matmul with 8-bit activations on AVX2, and quantised panels to f32.
 *
 * Many rows: a panel is unpacked once.
 *   Q8_0 to i16 (one 32-bit lane = two k of one output), multiplied with vpmaddwd: exact, no sign tricks, twice the f32
 *   rate.  spread() gives the lanes (k0 k2) and (k1 k3) of four bytes; activations have the same order (matmul_xq.q16).
 *   Others to i8, multiplied with vpmaddubsw by unsigned activations (matmul_xq.u8, q + 128), summed in i16 for as many
 *   steps as cannot overflow, then widened: nearly four times the f32 rate.
 * Few rows: straight from the packed bytes, codes as the unsigned side. */
#if defined(__GNUC__) && !defined(__clang__)
/* gcc sees integer vector additions as plain arithmetic: it regroups a chain of them (reassoc) or puts it off to the
 * use of the sum (ter), and so keeps all products alive, far more than there are registers: 3x slower. */
#pragma GCC optimize("no-tree-reassoc", "no-tree-ter")
#endif
#include "devices/cpu/matmul_int.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

static inline __m256i load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void store256(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

static inline __m256i broadcast4(const void *p)
{
    int32_t v;

    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

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

/* ---- scales: 16 floats of one group ---- */

static inline void scale_f16(const uint8_t *p, float *dst)
{
    _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)));
    _mm256_storeu_ps(dst + 8, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 16))));
}

static inline void scale_bf16(const uint8_t *p, float *dst)
{
    for (int i = 0; i < 2; i++) {
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + i * 16)));
        _mm256_storeu_ps(dst + i * 8, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
    }
}

/* f16 d at p times 16 small integers: u8 or i8. */
static inline void scale_times(const uint8_t *p, const uint8_t *n, int is_signed, float *dst)
{
    for (int i = 0; i < 2; i++) {
        __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(n + i * 8));
        __m256i v = is_signed ? _mm256_cvtepi8_epi32(b) : _mm256_cvtepu8_epi32(b);
        __m256 d = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + i * 16)));
        _mm256_storeu_ps(dst + i * 8, _mm256_mul_ps(d, _mm256_cvtepi32_ps(v)));
    }
}

/* Scale record of 32-block b. */
static inline const uint8_t *record(const matmul_packed *h, const uint8_t *panel, int64_t b)
{
    return panel + h->scale_offset + (size_t)(b * 32 / h->span) * (size_t)h->span_bytes;
}

#include "devices/cpu/matmul_scales8.h"

/* ---- codes: the signed integers of 8 outputs x 4 k at group g (0..7), half s of the panel ---- */

static inline __m256i low_nibbles(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

static inline __m256i nibbles(const uint8_t *codes, int g, int s)
{
    __m256i v = load256(codes + g / 2 * 64 + s * 32);

    return low_nibbles(g % 2 ? _mm256_srli_epi16(v, 4) : v);
}

static inline __m256i codes_q8_0(const uint8_t *codes, int g, int s)
{
    return load256(codes + g * 64 + s * 32);
}

static inline __m256i codes_q4_0(const uint8_t *codes, int g, int s)
{
    return _mm256_sub_epi8(nibbles(codes, g, s), _mm256_set1_epi8(8));
}

static inline __m256i codes_q4_k(const uint8_t *codes, int g, int s)
{
    return nibbles(codes, g, s);
}

/* Twice the E2M1 value. */
static inline __m256i codes_fp4(const uint8_t *codes, int g, int s)
{
    const __m256i twice = _mm256_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12, 0, 1, 2, 3, 4, 6, 8,
                                           12, 0, -1, -2, -3, -4, -6, -8, -12);

    return _mm256_shuffle_epi8(twice, nibbles(codes, g, s));
}

static inline __m256i codes_q6_raw(const uint8_t *codes, int g, int s)
{
    __m256i hi = load256(codes + 256 + g / 4 * 64 + s * 32);
    __m256i two = _mm256_and_si256(_mm256_srl_epi16(hi, _mm_cvtsi32_si128(g % 4 * 2)), _mm256_set1_epi8(3));

    return _mm256_or_si256(nibbles(codes, g, s), _mm256_slli_epi16(two, 4));
}

static inline __m256i codes_q6_k(const uint8_t *codes, int g, int s)
{
    return _mm256_sub_epi8(codes_q6_raw(codes, g, s), _mm256_set1_epi8(32));
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

/* ---- few rows: one row, one panel, packed bytes ---- */

/* Integer sums of both halves of a panel. */
typedef struct dots {
    __m256i a, c;
} dots;

static inline __m256i widen(__m256i v)
{
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

static inline dots dots_zero(void)
{
    return (dots){ _mm256_setzero_si256(), _mm256_setzero_si256() };
}

static inline dots dots_widen(dots sum, dots p)
{
    return (dots){ _mm256_add_epi32(sum.a, widen(p.a)), _mm256_add_epi32(sum.c, widen(p.c)) };
}

/* Pairs of products in i16: unsigned codes of two halves times the row's four bytes. */
static inline dots pairs(__m256i w0, __m256i w1, const int8_t *x)
{
    __m256i v = broadcast4(x);

    return (dots){ _mm256_maddubs_epi16(w0, v), _mm256_maddubs_epi16(w1, v) };
}

static inline dots pairs_add(dots p, __m256i w0, __m256i w1, const int8_t *x)
{
    dots n = pairs(w0, w1, x);

    return (dots){ _mm256_add_epi16(p.a, n.a), _mm256_add_epi16(p.c, n.c) };
}

/* dot_*: groups [g0, g1) of four k of a block, plus bias * sum(x) where the codes are taken as unsigned. */

/* |w| * (x with w's sign): at most 2 * 128 * 127 in a pair, which fits i16. */
static inline dots dot_q8_0(const uint8_t *codes, int g0, int g1, const int8_t *x)
{
    dots sum = dots_zero();

    for (int g = g0; g < g1; g++) {
        __m256i w0 = load256(codes + g * 64), w1 = load256(codes + g * 64 + 32), v = broadcast4(x + g * 4);
        dots p = { _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(v, w0)),
                   _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(v, w1)) };
        sum = dots_widen(sum, p);
    }
    return sum;
}

/* Codes 0..15: 8 pairs of at most 2 * 15 * 127 fit i16. */
static inline dots dot_nibbles(const uint8_t *codes, int g0, int g1, const int8_t *x)
{
    dots p = dots_zero();

    for (int g = g0; g < g1; g += 2) {
        __m256i v0 = load256(codes + g * 32), v1 = load256(codes + g * 32 + 32);
        p = pairs_add(p, low_nibbles(v0), low_nibbles(v1), x + g * 4);
        v0 = _mm256_srli_epi16(v0, 4), v1 = _mm256_srli_epi16(v1, 4);
        p = pairs_add(p, low_nibbles(v0), low_nibbles(v1), x + g * 4 + 4);
    }
    return dots_widen(dots_zero(), p);
}

/* 12 + twice the E2M1 value, 0..24: 4 pairs of at most 2 * 24 * 127 fit i16. */
static inline dots dot_fp4(const uint8_t *codes, int g0, int g1, const int8_t *x)
{
    const __m256i table = _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13, 14, 15,
                                           16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    dots sum = dots_zero();

    for (int g = g0; g < g1; g += 4) {
        dots p = dots_zero();
        for (int i = g; i < g + 4; i += 2) {
            __m256i v0 = load256(codes + i * 32), v1 = load256(codes + i * 32 + 32);
            p = pairs_add(p, _mm256_shuffle_epi8(table, low_nibbles(v0)), _mm256_shuffle_epi8(table, low_nibbles(v1)),
                          x + i * 4);
            v0 = low_nibbles(_mm256_srli_epi16(v0, 4)), v1 = low_nibbles(_mm256_srli_epi16(v1, 4));
            p = pairs_add(p, _mm256_shuffle_epi8(table, v0), _mm256_shuffle_epi8(table, v1), x + i * 4 + 4);
        }
        sum = dots_widen(sum, p);
    }
    return sum;
}

/* Codes 0..63: 2 pairs of at most 2 * 63 * 127 fit i16. */
static inline dots dot_q6(const uint8_t *codes, int g0, int g1, const int8_t *x)
{
    dots sum = dots_zero();

    for (int g = g0; g < g1; g += 2) {
        dots p = pairs(codes_q6_raw(codes, g, 0), codes_q6_raw(codes, g, 1), x + g * 4);
        p = pairs_add(p, codes_q6_raw(codes, g + 1, 0), codes_q6_raw(codes, g + 1, 1), x + g * 4 + 4);
        sum = dots_widen(sum, p);
    }
    return sum;
}

static inline __m256 fold_row(__m256 acc, __m256i dot, int32_t off, __m256 scale, float d)
{
    __m256 t = _mm256_cvtepi32_ps(_mm256_sub_epi32(dot, _mm256_set1_epi32(off)));

    return _mm256_fmadd_ps(t, _mm256_mul_ps(scale, _mm256_set1_ps(d)), acc);
}

/* One stream with much arithmetic per byte: the hardware prefetcher alone reaches half of the memory bandwidth. */
enum { PREFETCH_AHEAD = 8192 };      /* bytes; past the end of the weights it does nothing */

static inline void prefetch_block(const uint8_t *codes, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)codes + PREFETCH_AHEAD + i, _MM_HINT_T0);
}

#define INT_ROW(name, block_bytes, dot_of, scales_of, group_k, with_min, offset)                              \
    static void int_row_##name(const matmul_packed *h, const uint8_t *panel, const matmul_xq *q, int64_t row, \
                               float *y)                                                                      \
    {                                                                                                         \
        int64_t k = q->k;                                                                                     \
        const int8_t *x = q->q8 + row * k;                                                                    \
        const int32_t *sum = q->sum + row * k / 16;                                                           \
        const float *dx = q->d + row * (k / 32), *sx = q->s + row * (k / 32);                                 \
        const uint8_t *codes = panel, *rec = panel + h->scale_offset;                                         \
        __m256 a = _mm256_setzero_ps(), c = a;                                                                \
        for (int64_t b = 0; b < k / 32; b++, x += 32, sum += 2, codes += h->code_bytes) {                     \
            _Alignas(32) float scale[2 * PANEL], min[PANEL];                                                  \
            prefetch_block(codes, block_bytes);                                                               \
            scales_of(rec, b, scale, min);                                                                    \
            for (int i = 0; i < 32 / (group_k); i++) {                                                        \
                int32_t off = (offset) * ((group_k) == 32 ? sum[0] + sum[1] : sum[i]);                        \
                dots t = dot_of(codes, i * (group_k) / 4, (i + 1) * (group_k) / 4, x);                        \
                a = fold_row(a, t.a, off, _mm256_load_ps(scale + i * PANEL), dx[b]);                          \
                c = fold_row(c, t.c, off, _mm256_load_ps(scale + i * PANEL + 8), dx[b]);                      \
            }                                                                                                 \
            if (with_min) {                                                                                   \
                a = _mm256_fmadd_ps(_mm256_load_ps(min), _mm256_set1_ps(sx[b]), a);                           \
                c = _mm256_fmadd_ps(_mm256_load_ps(min + 8), _mm256_set1_ps(sx[b]), c);                       \
            }                                                                                                 \
            if (h->span == 32 || b % 8 == 7)                                                                  \
                rec += h->span_bytes;                                                                         \
        }                                                                                                     \
        _mm256_storeu_ps(y, a);                                                                               \
        _mm256_storeu_ps(y + 8, c);                                                                           \
    }
INT_ROW(q8_0, 512, dot_q8_0, scales_f16, 32, 0, 0)
INT_ROW(q4_0, 256, dot_nibbles, scales_f16, 32, 0, 8)
INT_ROW(q4_k, 256, dot_nibbles, scales_q4_k, 32, 1, 0)
INT_ROW(q6_k, 384, dot_q6, scales_q6_k, 16, 0, 32)
INT_ROW(mxfp4, 256, dot_fp4, scales_mxfp4, 32, 0, 12)
INT_ROW(nvfp4, 256, dot_fp4, scales_nvfp4, 16, 0, 12)

const matmul_int_row_fn matmul_int_row_avx2[LAYOUT_COUNT] = {
    [LAYOUT_Q8_0] = int_row_q8_0, [LAYOUT_Q4_0] = int_row_q4_0, [LAYOUT_Q4_K] = int_row_q4_k,
    [LAYOUT_Q6_K] = int_row_q6_k, [LAYOUT_MXFP4] = int_row_mxfp4, [LAYOUT_NVFP4] = int_row_nvfp4,
};
