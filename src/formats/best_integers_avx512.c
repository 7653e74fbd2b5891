/* best_integers_avx512.c: `best` of q8_0 and q4_0 (best_core_avx512.h): levels are the integers lo .. hi. */
#include "formats/best_avx512.h"
#include "formats/format.h"
#include "formats/simd_encode_avx2.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m512 vw;                         /* 16 values */
typedef __m512i wi;

typedef struct levels {
    float per_unit, lo, hi;
} levels;

INLINE vw rounded(vw t)
{
    const vw whole = _mm512_set1_ps(12582912.0f);          /* 1.5 * 2^23: rounds |t| < 2^22 to an integer */
    return _mm512_sub_ps(_mm512_add_ps(t, whole), whole);
}

INLINE vw clamped(vw t, float lo, float hi)
{
    return _mm512_min_ps(_mm512_max_ps(t, _mm512_set1_ps(lo)), _mm512_set1_ps(hi));
}

INLINE vw level(const levels *b, vw y, vw inv, int i)
{
    (void)i;
    return clamped(rounded(_mm512_mul_ps(y, inv)), b->lo, b->hi);
}

INLINE wi code_at(const levels *b, vw y, vw inv, int i)
{
    return _mm512_cvtps_epi32(level(b, y, inv, i));
}

#include "formats/best_core_avx512.h"

/* The first value of largest magnitude of two vectors. */
INLINE float largest(const vw *y)
{
    const vw a = _mm512_abs_ps(y[0]), b = _mm512_abs_ps(y[1]);
    const vw m = _mm512_set1_ps(_mm512_reduce_max_ps(_mm512_max_ps(a, b)));
    const __mmask16 in0 = _mm512_cmp_ps_mask(a, m, _CMP_EQ_OQ), in1 = _mm512_cmp_ps_mask(b, m, _CMP_EQ_OQ);
    return _mm512_cvtss_f32(in0 ? _mm512_maskz_compress_ps(in0, y[0]) : _mm512_maskz_compress_ps(in1, y[1]));
}

/* The codes of q4_0 are not symmetric: both signs of the scale.  Under -s the levels are the negative ones of
 * -hi .. -lo. */
INLINE void try_signs(const levels *b, const vw *y, group *g)
{
    vw part[2][16];
    group other = *g;
    for (int k = 0; k <= TRIES; k++) {
        const vw inv = _mm512_set1_ps(1.0f / (g->guess * factors[k]));
        vw sum[4] = { _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps() };
        for (int i = 0; i < 2; i++) {
            const vw t = rounded(_mm512_mul_ps(y[i], inv));
            const vw v = clamped(t, b->lo, b->hi), w = clamped(t, -b->hi, -b->lo);
            sum[0] = _mm512_fmadd_ps(y[i], v, sum[0]);
            sum[1] = _mm512_fmadd_ps(v, v, sum[1]);
            sum[2] = _mm512_fmadd_ps(y[i], w, sum[2]);
            sum[3] = _mm512_fmadd_ps(w, w, sum[3]);
        }
        part[0][k] = sum[0];
        part[0][8 + k] = sum[1];
        part[1][k] = sum[2];
        part[1][8 + k] = sum[3];
    }
    pick_scale(part[0], g);
    pick_scale(part[1], &other);
    g->s = other.gain > g->gain ? -other.s : g->s;
}

/* `count` records of 32 values: their scales and codes.  0: one of them is not ordinary. */
INLINE int records(const levels *b, float divisor, int signs, const float *x, int count, wi *code, uint16_t *h)
{
    vw y[8];
    group g[4];
    int fine = 1;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < 2; j++)
            y[2 * i + j] = _mm512_loadu_ps(x + 32 * i + 16 * j);
        g[i].yy = squares(y + 2 * i, 2);
        g[i].guess = signs == 2 ? largest(y + 2 * i) / divisor : fabsf(largest(y + 2 * i)) / divisor;
        fine &= ordinary(g[i].guess) && g[i].yy == g[i].yy;
    }
    for (int i = 0; i < count && fine; i++)
        if (signs == 2)
            try_signs(b, y + 2 * i, &g[i]);
        else
            try_scales(b, y + 2 * i, 2, &g[i]);
    if (fine)
        settle(b, y, y, 2, g, count, 0, code, h);
    return fine;
}

INLINE void put_q8(uint8_t *row, uint16_t h, const wi *code)
{
    memcpy(row, &h, sizeof h);
    _mm_storeu_si128((__m128i *)(void *)(row + 2), _mm512_cvtepi32_epi8(code[0]));
    _mm_storeu_si128((__m128i *)(void *)(row + 18), _mm512_cvtepi32_epi8(code[1]));
}

INLINE void put_q4(uint8_t *row, uint16_t h, const wi *code)
{
    const wi eight = _mm512_set1_epi32(8);
    wi low = _mm512_add_epi32(code[0], eight), high = _mm512_add_epi32(code[1], eight);
    memcpy(row, &h, sizeof h);
    low = _mm512_or_si512(low, _mm512_slli_epi32(high, 4));
    _mm_storeu_si128((__m128i *)(void *)(row + 2), _mm512_cvtepi32_epi8(low));
}

/* q8: q8_0, else q4_0.  Four records at once, then one by one. */
INLINE void encode(int q8, const float *x, uint8_t *row, int d, int encoder)
{
    const kvant_format_kernels *other = q8 ? &kvant_q8_0_kernels_avx2 : &kvant_q4_0_kernels_avx2;
    const levels b = { 1.0f, q8 ? -127.0f : -8.0f, q8 ? 127.0f : 7.0f };
    const int record = q8 ? 34 : 18;
    wi code[8];
    uint16_t h[4];
    if (encoder != KVANT_ENCODER_BEST) {
        other->encode(NULL, x, row, d, encoder);
        return;
    }
    for (int g = 0, n; g < d; g += 32 * n, row += n * record) {
        n = g + 128 <= d ? 4 : 1;
        const int fine = n == 4 ? records(&b, q8 ? 127.0f : -8.0f, q8 ? 1 : 2, x + g, 4, code, h)
                                : records(&b, q8 ? 127.0f : -8.0f, q8 ? 1 : 2, x + g, 1, code, h);
        if (!fine)
            other->encode(NULL, x + g, row, 32 * n, encoder);
        for (int i = 0; i < n && fine; i++)
            (q8 ? put_q8 : put_q4)(row + i * record, h[i], code + 2 * i);
    }
}

void best_q8_0_avx512(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    encode(1, x, row, d, encoder);
}

void best_q4_0_avx512(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    encode(0, x, row, d, encoder);
}
