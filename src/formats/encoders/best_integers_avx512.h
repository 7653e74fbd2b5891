/* best_integers_avx512.h: `best` of formats whose codes are integers (best_core_avx512.h), by the card: levels are
 * the integers CARD_LOW .. CARD_HIGH, symmetric where codes are signed. */
#include <math.h>
#include "formats/encoders/put_x86.h"
#include "formats/encoders/search.h"
#include "formats/simd/simd_card.h"

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

#include "formats/encoders/best_core_avx512.h"

/* The first value of largest magnitude of two vectors. */
INLINE float largest(const vw *y)
{
    const vw a = _mm512_abs_ps(y[0]), b = _mm512_abs_ps(y[1]);
    const vw m = _mm512_set1_ps(_mm512_reduce_max_ps(_mm512_max_ps(a, b)));
    const __mmask16 in0 = _mm512_cmp_ps_mask(a, m, _CMP_EQ_OQ), in1 = _mm512_cmp_ps_mask(b, m, _CMP_EQ_OQ);
    return _mm512_cvtss_f32(in0 ? _mm512_maskz_compress_ps(in0, y[0]) : _mm512_maskz_compress_ps(in1, y[1]));
}

/* The codes are not symmetric: both signs of the scale.  Under -s the levels are the negative ones of
 * -hi .. -lo. */
INLINE void try_signs(const levels *b, const vw *y, scale_group *g)
{
    vw part[2][16];
    scale_group other = *g;
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
    scale_group g[4];
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

#ifdef CARD_SIGNED
enum { SIGNS = 1, ZERO = 0 };
static const float divisor = CARD_HIGH;
#else
enum { SIGNS = 2, ZERO = -CARD_LOW };
static const float divisor = CARD_LOW;
#endif

/* n = 1 or 4 blocks from block k on */
INLINE int put_records(const levels *b, const float *x, uint8_t *row, int k, int n)
{
    wi code[8];
    uint16_t h[4];
    const int fine = records(b, divisor, SIGNS, x, n, code, h);
    for (int i = 0; i < 2 * n && fine; i++)
        code[i] = _mm512_add_epi32(code[i], _mm512_set1_epi32(ZERO));
    for (int i = 0; i < n && fine; i++)
        put_block(row, k + i, h[i], code + 2 * i);
    return fine;
}

static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    const levels b = { 1.0f, CARD_LOW, CARD_HIGH };
    if (encoder != KVANT_ENCODER_BEST) {
        CARD_KERNELS(CARD_NAME, avx2).encode(param, x, row, d, encoder);
        return;
    }
    for (int g = 0, n; g < d; g += 32 * n) {
        n = g + 128 <= d ? 4 : 1;
        if (!(n == 4 ? put_records(&b, x + g, row, g / 32, 4) : put_records(&b, x + g, row, g / 32, 1)))
            best_below(x + g, row + (card_record(row, g / 32) - row), 32 * n);
    }
}
