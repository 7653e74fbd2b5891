/* simd_int_neon.h: the integer path of attention (prep_q8, score_q8, axpy_q8 of kvant/format.h) on NEON: sdot where
 * the file is compiled for the dot product, widening multiplications otherwise.
 *
 * A format takes part by giving its codes as bytes; a value is  scale * CARD_STEP7 * code. Before including: the
 * card, and card_signed(row, b): 32 signed bytes of values 32b..32b+31, natural order. CARD_DIGITS: bytes per value
 * of a query: 1, or 2 for formats in real space, near 8 bits.
 *
 * Both sides are signed, so no offset has to be taken out again.  Two digits are q = 255*hi + lo, both within +-127:
 * then two products of any bytes fit 16 bits, which the form without sdot relies on. score: per 32 values and query
 * two sdot a digit, and one conversion and FMA per scale, where f16 needs 8 FMAs. axpy: weight * scale becomes such
 * a number of two digits; four rows are interleaved, so that a lane of sdot sums over four rows: 16 sdot for 32
 * columns of 4 rows, where f16 needs 32 FMAs. Inside a scale (score) or a block (axpy) sums are exact integers, then
 * f32 over ascending groups: nothing depends on tiles, and both forms have the same bits.  Error: half a step of q
 * (or w*scale), and of a centroid where CARD_STEP7 rounds it.  A query, weight or scale that is not finite gives a
 * result that is not. */
#include <math.h>
#include "formats/simd/simd_rep.h"

enum { INT_ROWS = 64, INT_HEAD = 64, INT_BASE = 255, INT_TOP = 127 * INT_BASE + 127 };

/* A prepared query: f32 factor; at byte 64 i8[sdim] high digits (or the only one), then i8[sdim] low digits. */

/* ---- 32 products ---- */

/* 32 signed bytes */
typedef struct int_codes {
    int8x16_t lo, hi;
} int_codes;

static inline int_codes int_codes_at(const uint8_t *row, int b)
{
    const vb x = card_signed(row, b);
    return (int_codes){ vreinterpretq_s8_u8(x.lo), vreinterpretq_s8_u8(x.hi) };
}

#if defined(__ARM_FEATURE_DOTPROD)
static inline int32x4_t int_dot32(int_codes c, int8x16_t x0, int8x16_t x1, int32x4_t sum)
{
    return vdotq_s32(vdotq_s32(sum, c.lo, x0), c.hi, x1);
}
#else
static inline int32x4_t int_dot32(int_codes c, int8x16_t x0, int8x16_t x1, int32x4_t sum)
{
    int16x8_t a = vmlal_high_s8(vmull_s8(vget_low_s8(c.lo), vget_low_s8(x0)), c.lo, x0);
    int16x8_t b = vmlal_high_s8(vmull_s8(vget_low_s8(c.hi), vget_low_s8(x1)), c.hi, x1);
    return vpadalq_s16(vpadalq_s16(sum, a), b);
}
#endif

/* ---- queries ---- */

/* Largest magnitude; NaN if a value is not finite. */
static inline float int_amax(const float *x, int n)
{
    float32x4_t top = vdupq_n_f32(0.0f), sum = top;
    for (int j = 0; j < n; j += 4) {
        float32x4_t a = vabsq_f32(vld1q_f32(x + j));
        top = vmaxq_f32(top, a);
        sum = vfmaq_n_f32(sum, a, 0.0f);
    }
    return vmaxvq_f32(top) + vaddvq_f32(sum);
}

/* The two digits of v, |v| <= INT_TOP: hi = nearest to v/255. */
static inline int32x4_t int_high(int32x4_t v)
{
    return vcvtnq_s32_f32(vmulq_n_f32(vcvtq_f32_s32(v), 1.0f / (float)INT_BASE));
}

static inline int8x8_t int_narrow(int32x4_t a, int32x4_t b)
{
    return vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b)));
}

/* 8 numbers as two digits */
static inline void int_put_digits(int8_t *high, int8_t *low, int32x4_t a, int32x4_t b)
{
    int32x4_t p = int_high(a), q = int_high(b);
    vst1_s8(high, int_narrow(p, q));
    vst1_s8(low, int_narrow(vmlsq_n_s32(a, p, INT_BASE), vmlsq_n_s32(b, q, INT_BASE)));
}

static void int_prep_q8(const void *param, const float *qp, void *q8, int d)
{
    const float top = CARD_DIGITS == 2 ? (float)INT_TOP : 127.0f;
    int8_t *values = (int8_t *)q8 + INT_HEAD;
    float amax = int_amax(qp, d), inv = top / amax, factor = amax * (CARD_STEP7 / top);

    (void)param;
    if (!(inv <= 3.4e38f))                 /* zeros, or so small that the score is zero, or NaN: all in the factor */
        inv = 0.0f;
    memset(q8, 0, INT_HEAD);
    memcpy(q8, &factor, sizeof factor);
    for (int j = 0; j < d; j += 8) {
        int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(qp + j), inv));
        int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(qp + j + 4), inv));
        if (CARD_DIGITS == 2)
            int_put_digits(values + j, values + d + j, a, b);
        else
            vst1_s8(values + j, int_narrow(a, b));
    }
}

/* ---- score ---- */

typedef struct int_strip {
    const uint8_t *head, *rows;            /* queries and keys of the tile */
    size_t ldq8, stride;
    int d;
} int_strip;

/* j: query, k: key of the tile; g: scale group, b: block */
#define IS_ZERO(j, k) float32x4_t a##j##k = vdupq_n_f32(0.0f);
#define IS_VALUES(j) ((const int8_t *)t->head + (size_t)(j) * t->ldq8 + INT_HEAD + 32 * b)
#define IS_DOT(j, at) vld1q_s8(IS_VALUES(j) + (at)), vld1q_s8(IS_VALUES(j) + (at) + 16)
#define IS_SUM(j) int32x4_t s##j = vdupq_n_s32(0), l##j = s##j;
#if CARD_DIGITS == 2
#define IS_ADD(j) s##j = int_dot32(c, IS_DOT(j, 0), s##j), l##j = int_dot32(c, IS_DOT(j, t->d), l##j);
#define IS_WHOLE(j) vmlaq_n_s32(l##j, s##j, INT_BASE)
#else
#define IS_ADD(j) s##j = int_dot32(c, IS_DOT(j, 0), s##j);
#define IS_WHOLE(j) vaddq_s32(s##j, l##j)
#endif
#define IS_FOLD(j, k) a##j##k = vfmaq_f32(a##j##k, vcvtq_f32_s32(IS_WHOLE(j)), scale);
#define IS_KEY(k, Q)                                                                                \
    {                                                                                               \
        const uint8_t *row = t->rows + (k) * t->stride;                                             \
        float32x4_t scale = neon_splat_f16(card_scale(row, (g) * CARD_BLOCKS));                                      \
        REP##Q(IS_SUM)                                                                              \
        for (int b = CARD_BLOCKS * g; b < CARD_BLOCKS * (g + 1); b++) {                                 \
            int_codes c = int_codes_at(row, b);                                                        \
            REP##Q(IS_ADD)                                                                          \
        }                                                                                           \
        COL##Q(IS_FOLD, k)                                                                          \
    }
#define COL1(M, k) M(0, k)
#define COL2(M, k) COL1(M, k) M(1, k)
#define COL4(M, k) COL2(M, k) M(2, k) M(3, k)
#define IS_KEY1(k) IS_KEY(k, 1)
#define IS_KEY2(k) IS_KEY(k, 2)
#define IS_KEY4(k) IS_KEY(k, 4)
/* Query j, keys 0..3 */
#define IS_PUT(j)                                                                                   \
    vst1q_f32(s + (j) * lds,                                                                        \
              vmulq_n_f32(vpaddq_f32(vpaddq_f32(a##j##0, a##j##1), vpaddq_f32(a##j##2, a##j##3)),   \
                          *(const float *)(const void *)(t->head + (j) * t->ldq8)));

/* Q queries x 4 keys */
#define INT_TILE(Q)                                                                                 \
    static void int_score_##Q##x4(const int_strip *t, float *s, size_t lds)                         \
    {                                                                                               \
        GRID##Q##x4(IS_ZERO)                                                                        \
        (void)lds;                                                                                  \
        for (int g = 0; g < t->d / (32 * CARD_BLOCKS); g++) {                                         \
            IS_KEY##Q(0) IS_KEY##Q(1) IS_KEY##Q(2) IS_KEY##Q(3)                                     \
        }                                                                                           \
        REP##Q(IS_PUT)                                                                              \
    }
INT_TILE(1)
INT_TILE(2)
INT_TILE(4)

static void int_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride,
                         int n, float *s, size_t lds, int d)
{
    static void (*const tiles[5])(const int_strip *, float *, size_t) = { NULL, int_score_1x4, int_score_2x4, NULL,
                                                                          int_score_4x4 };
    int_strip t = { .rows = rows, .ldq8 = ldq8, .stride = stride, .d = d };

    (void)param;
    for (int i = 0; i < n; i += 4, t.rows += 4 * stride)
        for (int j = 0, q; j < r; j += q) {
            q = r - j >= 4 ? 4 : r - j >= 2 ? 2 : 1;
            t.head = (const uint8_t *)q8 + (size_t)j * ldq8;
            if (i + 4 <= n) {
                tiles[q](&t, s + (size_t)j * lds + i, lds);
                continue;
            }
            int_strip one = t;             /* the last keys one by one, each as four copies of itself */
            one.stride = 0;
            for (int k = i; k < n; k++, one.rows += stride) {
                float copies[16];
                tiles[q](&one, copies, 4);
                for (int m = 0; m < q; m++)
                    s[(size_t)(j + m) * lds + (size_t)k] = copies[4 * m];
            }
        }
}

/* ---- axpy ---- */

/* Up to 64 weights or scales times range/max; zeros up to a multiple of 16. */
typedef struct int_side {
    float v[INT_ROWS];
    float max;                             /* NaN if a value is not finite */
} int_side;

static void int_normalise(const float *x, int count, float range, int_side *out)
{
    out->max = int_amax(x, count);
    float by = range / out->max;
    if (!(by <= 3.4e38f))                  /* nothing but zeros, or nearly */
        by = 0.0f;
    for (int i = 0; i < count; i += 4)
        vst1q_f32(out->v + i, vmulq_n_f32(vld1q_f32(x + i), by));
}

/* Weights of one query row for one group: two digits of 64 rows. */
typedef struct int_weights {
    int8_t high[INT_ROWS], low[INT_ROWS];
} int_weights;

static void int_quantise(const int_side *w, const int_side *scale, int count, int_weights *out)
{
    for (int i = 0; i < count; i += 8) {
        int32x4_t a = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(w->v + i), vld1q_f32(scale->v + i)));
        int32x4_t b = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(w->v + i + 4), vld1q_f32(scale->v + i + 4)));
        int_put_digits(out->high + i, out->low + i, a, b);
    }
}

/* Block b of n rows, four rows interleaved: panel[quad][column][4]; missing rows are zeros. */
static void int_panel(const uint8_t *rows, size_t stride, int n, int b, int8_t *panel)
{
    const int_codes none = { vdupq_n_s8(0), vdupq_n_s8(0) };
    for (int i = 0; i < n; i += 4, rows += 4 * stride, panel += 128) {
        int_codes x0 = int_codes_at(rows, b), x1 = none, x2 = none, x3 = none;
        if (i + 1 < n)
            x1 = int_codes_at(rows + stride, b);
        if (i + 2 < n)
            x2 = int_codes_at(rows + 2 * stride, b);
        if (i + 3 < n)
            x3 = int_codes_at(rows + 3 * stride, b);
#define INT_INTERLEAVE(half, at)                                                                               \
    {                                                                                                          \
        int16x8_t p = vreinterpretq_s16_s8(vzip1q_s8(x0.half, x1.half)),                                       \
                  q = vreinterpretq_s16_s8(vzip2q_s8(x0.half, x1.half)),                                       \
                  u = vreinterpretq_s16_s8(vzip1q_s8(x2.half, x3.half)),                                       \
                  v = vreinterpretq_s16_s8(vzip2q_s8(x2.half, x3.half));                                       \
        vst1q_s8(panel + (at), vreinterpretq_s8_s16(vzip1q_s16(p, u)));                                        \
        vst1q_s8(panel + (at) + 16, vreinterpretq_s8_s16(vzip2q_s16(p, u)));                                   \
        vst1q_s8(panel + (at) + 32, vreinterpretq_s8_s16(vzip1q_s16(q, v)));                                   \
        vst1q_s8(panel + (at) + 48, vreinterpretq_s8_s16(vzip2q_s16(q, v)));                                   \
    }
        INT_INTERLEAVE(lo, 0)
        INT_INTERLEAVE(hi, 64)
    }
}

/* sum[column] += four rows of a column quad times four digits */
#if defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t int_sums;
#define INT_NO_SUMS vdupq_n_s32(0)
#define INT_TOTAL(a) (a)
static inline int_sums int_rows4(int_sums a, int8x16_t x, int8x16_t w)
{
    return vdotq_s32(a, x, w);
}
#else
typedef struct int_sums {
    int32x4_t lo, hi;
} int_sums;
#define INT_NO_SUMS { vdupq_n_s32(0), vdupq_n_s32(0) }
#define INT_TOTAL(a) vpaddq_s32((a).lo, (a).hi)
static inline int_sums int_rows4(int_sums a, int8x16_t x, int8x16_t w)
{
    return (int_sums){ vpadalq_s16(a.lo, vmull_s8(vget_low_s8(x), vget_low_s8(w))),
                       vpadalq_s16(a.hi, vmull_high_s8(x, w)) };
}
#endif

static inline int8x16_t int_four(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* One query row x 16 columns (four quads): sums of both digits. */
#define IA_ZERO(c) int_sums h##c = INT_NO_SUMS, l##c = INT_NO_SUMS;
#define IA_ADD(c)                                                                                  \
    {                                                                                              \
        int8x16_t x = vld1q_s8(panel + 16 * (c));                                                  \
        h##c = int_rows4(h##c, x, high);                                                           \
        l##c = int_rows4(l##c, x, low);                                                            \
    }
#define IA_PUT(c)                                                                                  \
    vst1q_f32(acc + 4 * (c),                                                                       \
              vfmaq_n_f32(vld1q_f32(acc + 4 * (c)),                                                \
                          vcvtq_f32_s32(vmlaq_n_s32(INT_TOTAL(l##c), INT_TOTAL(h##c), INT_BASE)), factor));

static void int_axpy_16(const int_weights *w, float factor, const int8_t *panel, int n, float *acc)
{
    REP4(IA_ZERO)
    for (int i = 0; i < n; i += 4, panel += 128) {
        int8x16_t high = int_four(w->high + i), low = int_four(w->low + i);
        REP4(IA_ADD)
    }
    REP4(IA_PUT)
}

/* At most INT_SLICE query rows at once, so that the weights fit the stack. */
enum { INT_SLICE = 16 };

static void int_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                        float *acc, size_t lda, int d)
{
    float padded[INT_ROWS] = { 0 }, scale[INT_ROWS] = { 0 }, factor[INT_SLICE];
    int_weights digits[INT_SLICE];
    int_side weights[INT_SLICE], scales;
    int8_t panel[INT_ROWS / 4 * 128];
    int count = (n + 7) / 8 * 8;

    if (r > INT_SLICE) {
        int_axpy_q8(param, w, ldw, INT_SLICE, rows, stride, n, acc, lda, d);
        int_axpy_q8(param, w + INT_SLICE * ldw, ldw, r - INT_SLICE, rows, stride, n, acc + INT_SLICE * lda, lda, d);
        return;
    }
    for (int j = 0; j < r; j++) {
        memcpy(padded, w + (size_t)j * ldw, (size_t)n * sizeof *padded);
        int_normalise(padded, count, (float)INT_TOP, &weights[j]);
    }
    for (int b = 0; b < d / 32; b++) {
        if (b % CARD_BLOCKS == 0) {
            for (int i = 0; i < n; i++)
                scale[i] = f16_scalar(card_scale(rows + (size_t)i * stride, b));
            int_normalise(scale, count, 1.0f, &scales);
            for (int j = 0; j < r; j++) {
                int_quantise(&weights[j], &scales, count, &digits[j]);
                factor[j] = weights[j].max * scales.max * (CARD_STEP7 / (float)INT_TOP);
            }
        }
        int_panel(rows, stride, n, b, panel);
        for (int j = 0; j < r; j++) {
            int_axpy_16(&digits[j], factor[j], panel, n, acc + (size_t)j * lda + 32 * b);
            int_axpy_16(&digits[j], factor[j], panel + 64, n, acc + (size_t)j * lda + 32 * b + 16);
        }
    }
}
