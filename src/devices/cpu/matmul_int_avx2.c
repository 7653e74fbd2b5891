/* matmul_int_avx2.c: matmul with 8-bit activations on AVX2, and quantised panels to f32.
 *
 * Many rows: a panel is unpacked once to i16 (one 32-bit lane = two k of one output) and multiplied with vpmaddwd, which
 * is exact and needs no sign tricks: 32 products per cycle, twice the f32 rate.  spread() gives the lanes (k0 k2) and
 * (k1 k3) of four bytes; activations are kept in the same order (matmul_xq.q16).
 * Few rows: straight from the packed bytes with vpmaddubsw; codes up to 4 bits sum in i16 before they widen. */
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
static inline int32_t quantise16(const float *x, __m256 id, int8_t *q8, int16_t *q16)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8,
                                           9, 12, 13, 10, 11, 14, 15);
    __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), id));
    __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), id));
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    __m128i n = _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));

    _mm_storeu_si128((__m128i *)(void *)q8, n);
    store256(q16, _mm256_shuffle_epi8(w, order));
    return sum8(_mm256_add_epi32(a, b));
}

void matmul_quantise_avx2(const float *x, const matmul_xq *q, int64_t row)
{
    int64_t k = q->k;
    int8_t *q8 = q->q8 + row * k;
    int16_t *q16 = q->q16 + row * k;
    int32_t *sum = q->sum + row * k / 16;

    for (int64_t b = 0; b < k / 32; b++, x += 32) {
        int finite;
        float amax = block_amax(x, &finite), d = finite ? amax / 127.0f : NAN;
        if (finite && amax > 1e-30f) {              /* below, 127 / amax could overflow; such a block counts as 0 */
            __m256 id = _mm256_set1_ps(127.0f / amax);
            sum[2 * b] = quantise16(x, id, q8 + b * 32, q16 + b * 32);
            sum[2 * b + 1] = quantise16(x + 16, id, q8 + b * 32 + 16, q16 + b * 32 + 16);
        } else {
            memset(q8 + b * 32, 0, 32);
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

static inline void scales_f16(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    (void)b, (void)min;
    scale_f16(rec, scale);
}

static inline void scales_mxfp4(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    (void)b, (void)min;
    scale_bf16(rec, scale);
}

static inline void scales_nvfp4(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    (void)b, (void)min;
    scale_bf16(rec, scale);
    scale_bf16(rec + 32, scale + PANEL);
}

static inline void scales_q4_k(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    const uint8_t *sm = rec + 64 + b % 8 * 32;

    scale_times(rec, sm, 0, scale);
    scale_times(rec + 32, sm + 16, 0, min);
    for (int i = 0; i < PANEL; i++)
        min[i] = -min[i];
}

static inline void scales_q6_k(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    const uint8_t *sc = rec + 32 + b % 8 * 32;

    (void)min;
    scale_times(rec, sc, 1, scale);
    scale_times(rec, sc + 16, 1, scale + PANEL);
}

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

/* ---- unpack to i16: [k/2][16][2] ---- */

static inline void spread(__m256i v, uint8_t *dst, int g, int s)
{
    store256(dst + (2 * g) * 64 + s * 32, _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
    store256(dst + (2 * g + 1) * 64 + s * 32, _mm256_srai_epi16(v, 8));
}

#define UNPACK(name, codes_of, scales_of, group_k, with_min)                                                            \
    static void unpack_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, matmul_unpacked *u)  \
    {                                                                                                                   \
        u->group = group_k;                                                                                             \
        u->has_min = with_min;                                                                                          \
        for (int64_t i = 0; i < k / 32; i++) {                                                                          \
            int64_t b = k0 / 32 + i;                                                                                    \
            const uint8_t *codes = panel + b * h->code_bytes;                                                           \
            for (int g = 0; g < 8; g++) {                                                                               \
                spread(codes_of(codes, g, 0), u->codes + i * 1024, g, 0);                                               \
                spread(codes_of(codes, g, 1), u->codes + i * 1024, g, 1);                                               \
            }                                                                                                           \
            scales_of(record(h, panel, b), b, u->scale + i * (32 / (group_k)) * PANEL, u->min + i * PANEL);             \
        }                                                                                                               \
    }
UNPACK(q8_0, codes_q8_0, scales_f16, 32, 0)
UNPACK(q4_0, codes_q4_0, scales_f16, 32, 0)
UNPACK(q4_k, codes_q4_k, scales_q4_k, 32, 1)
UNPACK(q6_k, codes_q6_k, scales_q6_k, 16, 0)
UNPACK(mxfp4, codes_fp4, scales_mxfp4, 32, 0)
UNPACK(nvfp4, codes_fp4, scales_nvfp4, 16, 0)

const matmul_unpack_fn matmul_unpack_avx2[LAYOUT_COUNT] = {
    [LAYOUT_Q8_0] = unpack_q8_0, [LAYOUT_Q4_0] = unpack_q4_0, [LAYOUT_Q4_K] = unpack_q4_k,
    [LAYOUT_Q6_K] = unpack_q6_k, [LAYOUT_MXFP4] = unpack_mxfp4, [LAYOUT_NVFP4] = unpack_nvfp4,
};

/* Four k (one spread() pair) of 8 outputs to f32: x = scale * code + min, the product rounded first as the types say. */
static inline void expand4(const uint8_t *codes, __m256 scale, __m256 min, float *dst)
{
    __m256i even = load256(codes), odd = load256(codes + 64);
    __m256i k[4] = {
        _mm256_srai_epi32(_mm256_slli_epi32(even, 16), 16), _mm256_srai_epi32(_mm256_slli_epi32(odd, 16), 16),
        _mm256_srai_epi32(even, 16), _mm256_srai_epi32(odd, 16),
    };

    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(dst + i * PANEL, _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(k[i]), scale), min));
}

void matmul_expand_avx2(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst)
{
    matmul_unpacked u;

    for (int64_t i = 0; i < k; i += 32) {
        matmul_unpack_avx2[h->layout](h, panel, k0 + i, 32, &u);
        for (int g = 0; g < 8; g++)
            for (int s = 0; s < 2; s++) {
                __m256 scale = _mm256_loadu_ps(u.scale + g * 4 / u.group * PANEL + s * 8);
                __m256 min = u.has_min ? _mm256_loadu_ps(u.min + s * 8) : _mm256_set1_ps(-0.0f);
                expand4(u.codes + g * 128 + s * 32, scale, min, dst + (i + g * 4) * PANEL + s * 8);
            }
    }
}

/* ---- many rows ---- */

#define I_1(M) M(0)
#define I_2(M) I_1(M) M(1)
#define I_3(M) I_2(M) M(2)
#define I_4(M) I_3(M) M(3)
#define I_5(M) I_4(M) M(4)
#define I_6(M) I_5(M) M(5)
#define ZERO(r) __m256i a##r = _mm256_setzero_si256(), c##r = a##r;
#define DOT(r)                                                      \
    {                                                               \
        __m256i v = broadcast4(xq + (r) * k);                       \
        a##r = _mm256_add_epi32(a##r, _mm256_madd_epi16(w0, v));    \
        c##r = _mm256_add_epi32(c##r, _mm256_madd_epi16(w1, v));    \
    }
#define FOLD(r)                                                                                                  \
    {                                                                                                            \
        __m256 d = _mm256_broadcast_ss(dx + (r) * blocks_all);                                                   \
        __m256 *y0 = (__m256 *)(void *)(acc + (r) * PANEL), *y1 = y0 + 1;                                        \
        *y0 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(a##r), _mm256_mul_ps(s0, d), *y0);                              \
        *y1 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(c##r), _mm256_mul_ps(s1, d), *y1);                              \
    }
#define FOLD_MIN(r)                                                                                              \
    {                                                                                                            \
        __m256 d = _mm256_broadcast_ss(sx + (r) * blocks_all);                                                   \
        __m256 *y0 = (__m256 *)(void *)(acc + (r) * PANEL), *y1 = y0 + 1;                                        \
        *y0 = _mm256_fmadd_ps(m0, d, *y0);                                                                       \
        *y1 = _mm256_fmadd_ps(m1, d, *y1);                                                                       \
    }
/* The sums lie in acc (L1) because the integer sums need the registers. */
#define INT_TILE(rows)                                                                                           \
    static void int_tile_##rows(const matmul_unpacked *u, const matmul_xq *q, int64_t row, int64_t b0,           \
                                int64_t blocks, float *y, int64_t ldy, int first)                                \
    {                                                                                                            \
        _Alignas(32) float acc[(rows) * PANEL];                                                                  \
        int64_t k = q->k, blocks_all = k / 32;                                                                   \
        const int16_t *xq = q->q16 + row * k + b0 * 32;                                                          \
        const float *dx = q->d + row * blocks_all + b0, *sx = q->s + row * blocks_all + b0;                      \
        const uint8_t *w = u->codes;                                                                             \
        const float *ws = u->scale, *wm = u->min;                                                                \
        int per_block = 32 / u->group, steps = u->group / 2;                                                     \
        for (int r = 0; r < (rows); r++)                                                                         \
            for (int i = 0; i < PANEL; i++)                                                                      \
                acc[r * PANEL + i] = first ? 0.0f : y[r * ldy + i];                                              \
        for (int64_t b = 0; b < blocks; b++, dx++, sx++, wm += PANEL) {                                          \
            for (int part = 0; part < per_block; part++, ws += PANEL) {                                          \
                I_##rows(ZERO)                                                                                   \
                for (int i = 0; i < steps; i++, w += 64, xq += 2) {                                              \
                    __m256i w0 = load256(w), w1 = load256(w + 32);                                               \
                    I_##rows(DOT)                                                                                \
                }                                                                                                \
                __m256 s0 = _mm256_loadu_ps(ws), s1 = _mm256_loadu_ps(ws + 8);                                   \
                I_##rows(FOLD)                                                                                   \
            }                                                                                                    \
            if (u->has_min) {                                                                                    \
                __m256 m0 = _mm256_loadu_ps(wm), m1 = _mm256_loadu_ps(wm + 8);                                   \
                I_##rows(FOLD_MIN)                                                                               \
            }                                                                                                    \
        }                                                                                                        \
        for (int r = 0; r < (rows); r++)                                                                         \
            memcpy(y + r * ldy, acc + r * PANEL, PANEL * sizeof(float));                                         \
    }
INT_TILE(1)
INT_TILE(2)
INT_TILE(3)
INT_TILE(4)
INT_TILE(5)
INT_TILE(6)

const matmul_int_tile_fn matmul_int_tile_avx2[TILE_ROWS + 1] = {
    NULL, int_tile_1, int_tile_2, int_tile_3, int_tile_4, int_tile_5, int_tile_6,
};

/* ---- few rows: one row, one panel, packed bytes ---- */

/* Sums of one group: unsigned codes of 8 outputs x 4 k times the row's bytes, pairs in i16. */
static inline __m256i pairs(__m256i codes, const int8_t *x)
{
    return _mm256_maddubs_epi16(codes, broadcast4(x));
}

static inline __m256i widen(__m256i v)
{
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

/* Integer dots of groups [g0, g1) of a block for half s, minus bias * sum(x). */
static inline __m256i dot_q8_0(const uint8_t *codes, int s, int g0, int g1, const int8_t *x)
{
    __m256i acc = _mm256_setzero_si256();

    for (int g = g0; g < g1; g++) {
        __m256i w = codes_q8_0(codes, g, s), v = broadcast4(x + g * 4);
        /* |w| * (x with w's sign): at most 2 * 128 * 127 in a pair, which fits i16 */
        acc = _mm256_add_epi32(acc, widen(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(v, w))));
    }
    return acc;
}

/* Codes 0..15: 8 pairs of at most 2 * 15 * 127 fit i16. */
static inline __m256i dot_nibbles(const uint8_t *codes, int s, int g0, int g1, const int8_t *x)
{
    __m256i acc = _mm256_setzero_si256();

    for (int g = g0; g < g1; g += 2) {
        __m256i v = load256(codes + g / 2 * 64 + s * 32);
        acc = _mm256_add_epi16(acc, pairs(low_nibbles(v), x + g * 4));
        acc = _mm256_add_epi16(acc, pairs(low_nibbles(_mm256_srli_epi16(v, 4)), x + g * 4 + 4));
    }
    return widen(acc);
}

/* 12 + twice the E2M1 value, 0..24: 4 pairs of at most 2 * 24 * 127 fit i16. */
static inline __m256i dot_fp4(const uint8_t *codes, int s, int g0, int g1, const int8_t *x)
{
    const __m256i biased = _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13, 14, 15, 16,
                                            18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    __m256i acc = _mm256_setzero_si256();

    for (int g = g0; g < g1; g += 4) {
        __m256i four = _mm256_setzero_si256();
        for (int i = g; i < g + 4; i += 2) {
            __m256i v = load256(codes + i / 2 * 64 + s * 32);
            four = _mm256_add_epi16(four, pairs(_mm256_shuffle_epi8(biased, low_nibbles(v)), x + i * 4));
            v = low_nibbles(_mm256_srli_epi16(v, 4));
            four = _mm256_add_epi16(four, pairs(_mm256_shuffle_epi8(biased, v), x + i * 4 + 4));
        }
        acc = _mm256_add_epi32(acc, widen(four));
    }
    return acc;
}

/* Codes 0..63: 2 pairs of at most 2 * 63 * 127 fit i16. */
static inline __m256i dot_q6(const uint8_t *codes, int s, int g0, int g1, const int8_t *x)
{
    __m256i acc = _mm256_setzero_si256();

    for (int g = g0; g < g1; g += 2) {
        __m256i two = pairs(codes_q6_raw(codes, g, s), x + g * 4);
        acc = _mm256_add_epi32(acc, widen(_mm256_add_epi16(two, pairs(codes_q6_raw(codes, g + 1, s), x + g * 4 + 4))));
    }
    return acc;
}

#define INT_ROW(name, dot_of, scales_of, group_k, with_min, bias)                                                       \
    static void int_row_##name(const matmul_packed *h, const uint8_t *panel, const matmul_xq *q, int64_t row, float *y) \
    {                                                                                                                   \
        int64_t k = q->k;                                                                                               \
        const int8_t *x = q->q8 + row * k;                                                                              \
        const int32_t *sum = q->sum + row * k / 16;                                                                     \
        const float *dx = q->d + row * (k / 32), *sx = q->s + row * (k / 32);                                           \
        __m256 acc[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };                                                   \
        for (int64_t b = 0; b < k / 32; b++, x += 32) {                                                                 \
            const uint8_t *codes = panel + b * h->code_bytes;                                                           \
            _Alignas(32) float scale[2 * PANEL], min[PANEL];                                                            \
            scales_of(record(h, panel, b), b, scale, min);                                                              \
            for (int s = 0; s < 2; s++) {                                                                               \
                for (int i = 0; i < 32 / (group_k); i++) {                                                              \
                    int32_t off = (bias) * ((group_k) == 32 ? sum[2 * b] + sum[2 * b + 1] : sum[2 * b + i]);            \
                    __m256i dot = dot_of(codes, s, i * (group_k) / 4, (i + 1) * (group_k) / 4, x);                      \
                    __m256 t = _mm256_cvtepi32_ps(_mm256_sub_epi32(dot, _mm256_set1_epi32(off)));                       \
                    __m256 ws = _mm256_load_ps(scale + i * PANEL + s * 8);                                              \
                    acc[s] = _mm256_fmadd_ps(t, _mm256_mul_ps(ws, _mm256_set1_ps(dx[b])), acc[s]);                      \
                }                                                                                                       \
                if (with_min)                                                                                           \
                    acc[s] = _mm256_fmadd_ps(_mm256_load_ps(min + s * 8), _mm256_set1_ps(sx[b]), acc[s]);               \
            }                                                                                                           \
        }                                                                                                               \
        _mm256_storeu_ps(y, acc[0]);                                                                                    \
        _mm256_storeu_ps(y + 8, acc[1]);                                                                                \
    }
INT_ROW(q8_0, dot_q8_0, scales_f16, 32, 0, 0)
INT_ROW(q4_0, dot_nibbles, scales_f16, 32, 0, 8)
INT_ROW(q4_k, dot_nibbles, scales_q4_k, 32, 1, 0)
INT_ROW(q6_k, dot_q6, scales_q6_k, 16, 0, 32)
INT_ROW(mxfp4, dot_fp4, scales_mxfp4, 32, 0, 12)
INT_ROW(nvfp4, dot_fp4, scales_nvfp4, 16, 0, 12)

const matmul_int_row_fn matmul_int_row_avx2[LAYOUT_COUNT] = {
    [LAYOUT_Q8_0] = int_row_q8_0, [LAYOUT_Q4_0] = int_row_q4_0, [LAYOUT_Q4_K] = int_row_q4_k,
    [LAYOUT_Q6_K] = int_row_q6_k, [LAYOUT_MXFP4] = int_row_mxfp4, [LAYOUT_NVFP4] = int_row_nvfp4,
};
