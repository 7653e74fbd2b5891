/* best_books_avx512.h: `best` of the codebook formats (best_core_avx512.h), by the card.
 *
 * The nearest centroid costs no row of comparisons: |y| is cut into 15.5 cells up to the last threshold; no cell
 * holds two thresholds, so one permutation gives the threshold of a cell, two the centroids beside it, and one
 * comparison decides. */
#include <math.h>
#include "formats/encoders/put_x86.h"
#include "formats/encoders/search.h"
#include "formats/simd/simd_card.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m512 vw; /* 16 values */
typedef __m512i wi;

/* ---- rotations: the reference's operations in its order ---- */

/* (a, b) -> (a + b, a - b) over neighbours at distance 1, 2, 4, 8 of a vector */
INLINE vw butterfly16(vw v)
{
    const vw minus = _mm512_set1_ps(-0.0f);
    v = _mm512_add_ps(_mm512_permute_ps(v, 0xb1), _mm512_mask_xor_ps(v, 0xaaaa, v, minus));
    v = _mm512_add_ps(_mm512_permute_ps(v, 0x4e), _mm512_mask_xor_ps(v, 0xcccc, v, minus));
    v = _mm512_add_ps(_mm512_shuffle_f32x4(v, v, 0xb1), _mm512_mask_xor_ps(v, 0xf0f0, v, minus));
    return _mm512_add_ps(_mm512_shuffle_f32x4(v, v, 0x4e), _mm512_mask_xor_ps(v, 0xff00, v, minus));
}

INLINE void load(const float *x, int n, vw *y)
{
    for (int i = 0; i < n; i++)
        y[i] = _mm512_loadu_ps(x + 16 * i);
}

/* H(y * before) * k * after over 16 n values; before and after may be NULL, k 0: none */
INLINE void rotate(vw *y, int n, const float *before, float k, const float *after)
{
    for (int i = 0; i < n; i++)
        y[i] = butterfly16(before ? _mm512_mul_ps(y[i], _mm512_loadu_ps(before + 16 * i)) : y[i]);
    for (int h = 1; h < n; h *= 2)
        for (int i = 0; i < n; i++)
            if (!(i & h)) {
                vw a = y[i], b = y[i + h];
                y[i] = _mm512_add_ps(a, b);
                y[i + h] = _mm512_sub_ps(a, b);
            }
    for (int i = 0; i < n; i++) {
        y[i] = k != 0.0f ? _mm512_mul_ps(y[i], _mm512_set1_ps(k)) : y[i];
        y[i] = after ? _mm512_mul_ps(y[i], _mm512_loadu_ps(after + 16 * i)) : y[i];
    }
}

/* ---- nearest centroids ---- */

/* The outer half of a symmetric codebook: magnitudes, and per cell the threshold in it (or the next above) and the
 * index of the magnitude below it. */
typedef struct levels {
    vw value, edge, below, above; /* below, above: the magnitudes on both sides of that threshold */
    wi first;
    float per_unit; /* cells of 1.0 */
    int half;
    const float *shift; /* NULL, or what is added to every level, f32[128] */
} levels;

/* c: n centroids (16 or 8), ascending and symmetric */
INLINE levels levels_of(const float *c, int n)
{
    const wi iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int half = n / 2;
    levels s = { .half = half, .first = _mm512_setzero_si512() };
    s.value = _mm512_maskz_loadu_ps((__mmask16)((1 << half) - 1), c + half);
    vw next = _mm512_permutexvar_ps(_mm512_add_epi32(iota, _mm512_set1_epi32(1)), s.value);
    s.per_unit = 31.0f / (c[n - 2] + c[n - 1]);
    vw edges = _mm512_mul_ps(_mm512_add_ps(s.value, next), _mm512_set1_ps(0.5f * s.per_unit));
    edges = _mm512_mask_mov_ps(_mm512_set1_ps(INFINITY), (__mmask16)((1 << (half - 1)) - 1), edges);
    for (int m = 0; m < half - 1; m++) {
        vw edge = _mm512_permutexvar_ps(_mm512_set1_epi32(m), edges);
        __mmask16 below = _mm512_cmp_ps_mask(edge, _mm512_cvtepi32_ps(iota), _CMP_LE_OQ);
        s.first = _mm512_mask_add_epi32(s.first, below, s.first, _mm512_set1_epi32(1));
    }
    s.edge = _mm512_permutexvar_ps(s.first, edges);
    s.below = _mm512_permutexvar_ps(s.first, s.value);
    s.above = _mm512_permutexvar_ps(s.first, next);
    return s;
}

/* The cell of t >= 0, and whether it lies above the threshold there; t in cells. */
INLINE wi cell_of(const levels *s, vw t, __mmask16 *above)
{
    t = _mm512_min_ps(t, _mm512_set1_ps(15.75f));
    wi i = _mm512_cvttps_epi32(t);
    *above = _mm512_cmp_ps_mask(t, _mm512_permutexvar_ps(i, s->edge), _CMP_GE_OQ);
    return i;
}

/* y less its shift, in cells */
INLINE vw unshifted(const levels *b, vw y, vw inv, int i)
{
    vw t = _mm512_mul_ps(y, inv);
    return b->shift ? _mm512_fnmadd_ps(_mm512_loadu_ps(b->shift + 16 * i), _mm512_set1_ps(b->per_unit), t) : t;
}

INLINE vw level(const levels *b, vw a, vw inv, int i)
{
    const vw t = unshifted(b, a, inv, i);
    __mmask16 above;
    wi cell = cell_of(b, b->shift ? _mm512_abs_ps(t) : t, &above);
    vw v = _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(cell, b->below), above, cell, b->above);
    if (!b->shift)
        return v;
    v = _mm512_mask_sub_ps(v, _mm512_cmp_ps_mask(t, _mm512_setzero_ps(), _CMP_LT_OQ), _mm512_setzero_ps(), v);
    return _mm512_add_ps(v, _mm512_loadu_ps(b->shift + 16 * i));
}

INLINE wi code_at(const levels *b, vw y, vw inv, int i)
{
    const vw t = unshifted(b, y, inv, i);
    __mmask16 above;
    wi k = _mm512_permutexvar_epi32(cell_of(b, _mm512_abs_ps(t), &above), b->first);
    k = _mm512_mask_add_epi32(k, above, k, _mm512_set1_epi32(1));
    k = _mm512_mask_xor_epi32(k, _mm512_cmp_ps_mask(t, _mm512_setzero_ps(), _CMP_LT_OQ), k, _mm512_set1_epi32(-1));
    return _mm512_add_epi32(k, _mm512_set1_epi32(b->half));
}

#include "formats/encoders/best_core_avx512.h"

INLINE void magnitudes(const vw *y, int n, vw *a)
{
    for (int i = 0; i < n; i++)
        a[i] = _mm512_abs_ps(y[i]);
}

static const float book[CARD_N] = { CARD_LEVELS };

#if defined CARD_P32
#define K32 0x1.6a09e6p-3f /* 1/sqrt(32), 0x3e3504f3 */

static const float signs32[32] = { ROTATE_SIGNS32 };

/* Up to four records of 32 values from block k on.  0: one of them is not ordinary, nothing is written. */
INLINE int encode_records(const levels *b, const float *x, uint8_t *row, int k, int count)
{
    vw y[8], a[8];
    wi code[8];
    scale_group g[4];
    uint16_t h[4];
    int fine = 1;
    for (int i = 0; i < count; i++) {
        load(x + 32 * i, 2, y + 2 * i);
        rotate(y + 2 * i, 2, signs32, K32, NULL);
        g[i].yy = squares(y + 2 * i, 2);
        g[i].guess = sqrtf(g[i].yy / 32.0f);
        fine &= ordinary(g[i].guess);
    }
    if (!fine)
        return 0;
    magnitudes(y, 2 * count, a);
    for (int i = 0; i < count; i++)
        try_scales(b, a + 2 * i, 2, &g[i]);
    settle(b, a, y, 2, g, count, 0, code, h);
    for (int i = 0; i < count; i++)
        put_block(row, k + i, h[i], code + 2 * i);
    return 1;
}

INLINE void encode_best(const float *x, uint8_t *row, int d)
{
    const levels b = levels_of(book, CARD_N);
    for (int g = 0, n; g < d; g += n) {
        n = g + 128 <= d ? 128 : 32;
        if (!(n == 128 ? encode_records(&b, x + g, row, g / 32, 4) : encode_records(&b, x + g, row, g / 32, 1)))
            best_below(x + g, row + (card_record(row, g / 32) - row), n);
    }
}

#else
/* One record's search over values y: the codes and the scale.  guess: the upstream scale; corrected: by the norm. */
INLINE void search_128(const levels *b, const vw *y, float guess, int corrected, wi *code, uint16_t *h)
{
    vw a[8];
    scale_group one = { .yy = squares(y, 8), .guess = guess };
    magnitudes(y, 8, a);
    try_scales(b, a, 8, &one);
    settle(b, a, y, 8, &one, 1, corrected, code, h);
}

INLINE void put_128(uint8_t *row, uint16_t h, const wi *code)
{
    for (int k = 0; k < 4; k++)
        put_block(row, k, h, code + 2 * k);
}

#if defined CARD_R128
#define K128 0x1.6a09e6p-4f /* 1/sqrt(128), 0x3db504f3 */

static const float signs1[128] = { ROTATE_SIGNS1 }, signs2[128] = { ROTATE_SIGNS2 };

INLINE void scaled(vw *y, int n, float k)
{
    for (int i = 0; i < n; i++)
        y[i] = _mm512_mul_ps(y[i], _mm512_set1_ps(k));
}

/* y = R(x / |x|) * |x|, rounded as the reference does; returns |x|, or 0 where that is not ordinary. */
INLINE float rotated(const float *x, vw *y)
{
    load(x, 8, y);
    const float norm = sqrtf(squares(y, 8));
    if (!ordinary(norm))
        return 0.0f;
    scaled(y, 8, 1.0f / norm);
    rotate(y, 8, signs1, K128, signs2);
    scaled(y, 8, norm);
    return norm;
}
enum { CORRECTED = 1 };
#else
/* y = H(x); returns |x|, or 0 where that is not ordinary. */
INLINE float rotated(const float *x, vw *y)
{
    load(x, 8, y);
    const float norm = sqrtf(squares(y, 8));
    rotate(y, 8, NULL, 0.0f, NULL);
    return ordinary(norm) ? norm : 0.0f;
}
enum { CORRECTED = 0 };
#endif

#ifdef CARD_RESIDUAL_AT
/* Both signs of the residual; b[1].shift is the positive one. */
INLINE void put_best(const levels *b, const vw *y, float norm, uint8_t *row)
{
    wi code[8];
    uint16_t h;
    scale_group one[2] = { { .yy = squares(y, 8), .guess = norm } };
    one[1] = one[0];
    for (int k = 0; k < 2; k++) {
        try_scales(&b[k], y, 8, &one[k]);
        fit(&b[k], y, 8, &one[k]);
        one[k].gain = one[k].sum[0] * one[k].sum[0] / one[k].sum[1];
    }
    const int bit = one[1].gain > one[0].gain;
    settle(&b[bit], y, y, 8, &one[bit], 1, 0, code, &h);
    put_128(row, h, code);
    row[CARD_RESIDUAL_AT] = (uint8_t)bit;
}

enum { BOOKS = 2 };

INLINE void books_open(levels *b, float (*shift)[128])
{
    for (int j = 0; j < 128; j++) {
        shift[1][j] = bits_f32(CARD_RESIDUAL_BITS) * card_residual[j];
        shift[0][j] = -shift[1][j];
    }
    b[0] = b[1] = levels_of(book, CARD_N);
    b[0].shift = shift[0];
    b[1].shift = shift[1];
}
#else
INLINE void put_best(const levels *b, const vw *y, float norm, uint8_t *row)
{
    wi code[8];
    uint16_t h;
    search_128(b, y, norm, CORRECTED, code, &h);
    put_128(row, h, code);
}

enum { BOOKS = 1 };

INLINE void books_open(levels *b, float (*shift)[128])
{
    (void)shift;
    b[0] = levels_of(book, CARD_N);
}
#endif

INLINE void encode_best(const float *x, uint8_t *row, int d)
{
    enum { RECORDS = 128 / CARD_VALUES * CARD_BYTES_OF_RECORD, END = CARD_VALUES == 128 ? CARD_CODES_END : RECORDS };
    float shift[BOOKS][128];
    levels b[BOOKS];
    books_open(b, shift);
    for (int g = 0; g < d; g += 128, row += RECORDS) {
        vw y[8];
        const float norm = rotated(x + g, y);
        memset(row + END, 0, RECORDS - END);
        if (norm == 0.0f)
            best_below(x + g, row, 128);
        else
            put_best(b, y, norm, row);
    }
}
#endif

static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    if (encoder == KVANT_ENCODER_BEST)
        encode_best(x, row, d);
    else
        CARD_KERNELS(CARD_NAME, avx2).encode(param, x, row, d, encoder);
}
