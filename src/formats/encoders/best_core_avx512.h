/* best_core_avx512.h: the encoder `best`, sixteen values at a time: search.c's rule (seven scales, one refit, the
 * unbiased scale), with sums in another order, so that a near tie may be decided otherwise.  Included by
 * best_*_avx512.h after
 *   levels                  a struct with `per_unit`: what 1/scale is multiplied with before the two functions see it
 *   level(b, a, inv, i)     the level nearest to vector i's values a (|y| where levels are magnitudes, else y)
 *   code_at(b, y, inv, i)   the code of its values y
 *
 * The seven scales are independent; their 14 sums, and the two of the start, are added up together.  Groups go step
 * by step, several at once, because one alone is a chain of waits.  Rows whose scale is zero, tiny, huge or NaN are
 * left to the AVX2 kernels. */
#include <math.h>

enum { TRIES = 7 };                        /* scales; with the start eight pairs of sums */

INLINE void products(const levels *b, const vw *a, int n, float s, vw *yv, vw *vv)
{
    const vw inv = _mm512_set1_ps(b->per_unit / s);
    vw p = _mm512_setzero_ps(), q = p;
    for (int i = 0; i < n; i++) {
        const vw v = level(b, a[i], inv, i);
        p = _mm512_fmadd_ps(a[i], v, p);
        q = _mm512_fmadd_ps(v, v, q);
    }
    *yv = p;
    *vv = q;
}

/* Lane k of the result: the sum of the lanes of x[k]. */
INLINE vw sums16(const vw *x)
{
    vw t[8], u[4], w[2];
    for (int i = 0; i < 8; i++)
        t[i] = _mm512_add_ps(_mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]), _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]));
    for (int i = 0; i < 4; i++)
        u[i] = _mm512_add_ps(_mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    for (int i = 0; i < 2; i++)
        w[i] = _mm512_add_ps(_mm512_shuffle_f32x4(u[2 * i], u[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(u[2 * i], u[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(w[0], w[1], 0x88), _mm512_shuffle_f32x4(w[0], w[1], 0xdd));
}

INLINE uint16_t half_of(float v)
{
    return (uint16_t)_cvtss_sh(v, 0);
}

/* search_storable, back in f32 */
INLINE float storable(float s)
{
    const uint16_t h = half_of(s), size = h & 0x7fff, sign = h & 0x8000;
    return _cvtsh_ss((uint16_t)(sign | (size == 0 ? 1 : size > 0x7bff ? 0x7bff : size)));
}

/* The state of one group that shares a scale. */
typedef struct scale_group {
    float yy, guess;                       /* sum of squares; the scale to search around */
    float start[2], sum[2];                /* sums y v and v v for guess, and for s */
    float s, gain;                         /* the scale so far; sum of squares less its error */
} scale_group;

/* The scales that are tried, over the guess; the last is the start's. */
static const float factors[TRIES + 1] = { 0.78f, 0.84f, 0.9f, 0.96f, 1.02f, 1.09f, 1.17f, 1.0f };

/* From the products of all tries (y v, then v v): s, the scale of least squares of the best one, and its gain. */
INLINE void pick_scale(const vw *part, scale_group *g)
{
    float sum[16];
    vw all = sums16(part);
    __m256 yv = _mm512_castps512_ps256(all), vv = _mm512_extractf32x8_ps(all, 1), s = _mm256_div_ps(yv, vv);
    __m256 gain = _mm256_blend_ps(_mm256_mul_ps(yv, s), _mm256_setzero_ps(), 1 << TRIES);
    __m256 most = _mm256_max_ps(gain, _mm256_permute2f128_ps(gain, gain, 1));
    most = _mm256_max_ps(most, _mm256_permute_ps(most, 0x4e));
    most = _mm256_max_ps(most, _mm256_permute_ps(most, 0xb1));
    _mm512_storeu_ps(sum, all);
    g->s = _mm256_cvtss_f32(_mm256_maskz_compress_ps(_mm256_cmp_ps_mask(gain, most, _CMP_EQ_OQ), s));
    g->gain = _mm256_cvtss_f32(most);
    g->start[0] = sum[TRIES];
    g->start[1] = sum[8 + TRIES];
}

INLINE void try_scales(const levels *b, const vw *a, int n, scale_group *g)
{
    vw part[16];
    for (int k = 0; k <= TRIES; k++)
        products(b, a, n, g->guess * factors[k], &part[k], &part[8 + k]);
    pick_scale(part, g);
}

/* The two sums at s, as it would be stored. */
INLINE void fit(const levels *b, const vw *a, int n, scale_group *g)
{
    vw yv, vv;
    g->s = storable(g->s);
    products(b, a, n, g->s, &yv, &vv);
    g->sum[0] = _mm512_reduce_add_ps(yv);
    g->sum[1] = _mm512_reduce_add_ps(vv);
}

/* The start's codes under its stored scale, where they err less. */
INLINE void prefer_start(scale_group *g, float stored)
{
    const float s = g->s, first = _cvtsh_ss(half_of(stored));
    if (!(s * (s * g->sum[1] - 2 * g->sum[0]) < first * (first * g->start[1] - 2 * g->start[0]))) { /* errors less yy */
        g->s = g->guess;
        g->sum[0] = g->start[0];
    }
}

/* After try_scales: codes of `count` groups of n vectors, and their scales in h.  A format whose upstream norm is
 * corrected stores guess/|values|, others guess. */
INLINE void settle(const levels *b, const vw *a, const vw *y, int n, scale_group *g, int count, int corrected, wi *code,
                   uint16_t *h)
{
    for (int i = 0; i < count; i++)
        fit(b, a + i * n, n, &g[i]);
    for (int i = 0; i < count; i++) {
        g[i].s = g[i].sum[0] / g[i].sum[1];
        fit(b, a + i * n, n, &g[i]);
    }
    for (int i = 0; i < count; i++) {
        prefer_start(&g[i], corrected ? g[i].guess / sqrtf(g[i].start[1]) : g[i].guess);
        const vw inv = _mm512_set1_ps(b->per_unit / g[i].s);
        for (int j = 0; j < n; j++)
            code[i * n + j] = code_at(b, y[i * n + j], inv, j);
        h[i] = search_unbiased_scale((double)g[i].yy, (double)g[i].sum[0], half_of(g[i].s));
    }
}

INLINE float squares(const vw *y, int n)
{
    vw s = _mm512_mul_ps(y[0], y[0]);
    for (int i = 1; i < n; i++)
        s = _mm512_fmadd_ps(y[i], y[i], s);
    return _mm512_reduce_add_ps(s);
}

/* Squares of such values neither vanish nor overflow in f32, and fp16 holds their scale or its neighbour. */
INLINE int ordinary(float guess)
{
    return fabsf(guess) > 1e-7f && fabsf(guess) < 1e15f;
}

/* Block k of a row: its record's scale, and its codes, from 0 up. */
INLINE void put_block(uint8_t *row, int k, uint16_t scale, const wi *code)
{
    memcpy(row + (card_scale(row, k) - row), &scale, sizeof scale);
    const __m128i lo = _mm512_cvtepi32_epi8(code[0]), hi = _mm512_cvtepi32_epi8(code[1]);
    CARD_OF(put)(row + (card_codes(row, k) - row), _mm256_set_m128i(hi, lo));
}

/* Values whose scale is out of the ordinary. */
INLINE void best_below(const float *x, uint8_t *row, int d)
{
    CARD_KERNELS(CARD_NAME, avx2).encode(NULL, x, row, d, KVANT_ENCODER_BEST);
}
