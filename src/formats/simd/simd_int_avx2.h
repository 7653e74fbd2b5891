/* simd_int_avx2.h: the integer path of attention (prep_q8, score_q8, axpy_q8 of kvant/format.h) on AVX2.
 *
 * A format takes part by giving its codes as bytes; a value is  scale * CARD_STEP7 * (u - CARD_OFFSET7). Before
 * including: the card, and its class's functions
 *   card_bytes(row, b)         32 unsigned bytes u of values 32b..32b+31, natural order
 *   card_signed(row, b)        the same as signed bytes u - CARD_OFFSET7
 * CARD_DIGITS 1: u <= 127 and 8-bit queries; 2: u <= 255 and 16-bit queries.
 *
 * On Zen 3 every multiplication, integer or float, goes to the same two units: f16 needs 4 of them per 32 values and
 * query, 8-bit queries 2 (vpmaddubsw, and vpmaddwd that widens and applies the scale, as an integer relative to the
 * row's largest), 16-bit queries 3.  axpy: w*scale become 16-bit integers, rows are interleaved in pairs, vpmaddwd
 * multiplies and sums two rows: 2 per 32 values. Sums are exact integers, so nothing depends on tiles.  Error: half
 * a step of q (or w), of a scale (2^-11 of the row's largest), and of a centroid where CARD_STEP7 rounds it. A
 * query, weight or scale that is not finite gives NaN. */
#include <math.h>
#include "formats/simd/simd_rep.h"

enum { INT_ROWS = 64, INT_GROUPS = 16, INT_HEAD = 128 };

/* A prepared query: f32 factor; at byte 64 f32[16] corrections for CARD_OFFSET7 (-CARD_OFFSET7 * sum of group g); at
 * 128 values i8[sdim], or i16[sdim] with the even values of each 32 before the odd ones, as card_bytes splits. */
#if CARD_DIGITS == 2
enum { INT_QUERY_MAX = 32767, INT_QUERY_BYTES = 64 };

static inline void int_put_value(uint8_t *values, int j, int v)
{
    int16_t w = (int16_t)v;
    memcpy(values + (j % 2 * 16 + j / 2) * 2, &w, sizeof w);
}
#else
enum { INT_QUERY_MAX = 127, INT_QUERY_BYTES = 32 };

static inline void int_put_value(uint8_t *values, int j, int v)
{
    values[j] = (uint8_t)v;
}
#endif

/* Largest magnitude; NaN if a value is not finite. */
static inline float int_amax(const float *x, int n)
{
    float top = 0.0f, sum = 0.0f;
    for (int j = 0; j < n; j++) {
        float a = fabsf(x[j]);
        top = a > top ? a : top;
        sum += a * 0.0f;
    }
    return top + sum;
}

static void int_prep_q8(const void *param, const float *qp, void *q8, int d)
{
    uint8_t *head = q8;
    float amax = int_amax(qp, d), inv = (float)INT_QUERY_MAX / amax;
    float factor = amax * (CARD_STEP7 / (float)INT_QUERY_MAX);
    float correction[INT_GROUPS] = { 0 };

    (void)param;
    if (!(inv <= 3.4e38f))                 /* zeros, or so small that the score is zero, or NaN: all in the factor */
        inv = 0.0f;
    for (int b = 0; b < d / 32; b++) {
        int sum = 0;
        for (int j = 0; j < 32; j++) {
            float x = qp[32 * b + j] * inv;
            int v = x == x ? (int)lrintf(x) : 0;
            int_put_value(head + INT_HEAD + b * INT_QUERY_BYTES, j, v);
            sum += v;
        }
        correction[b / CARD_BLOCKS] -= (float)CARD_OFFSET7 * (float)sum;
    }
    memset(head, 0, 64);
    memcpy(head, &factor, sizeof factor);
    memcpy(head + 64, correction, sizeof correction);
}

/* A page of keys needs these numbers beside its rows; row i of group g at g*64 + i. */
typedef struct int_page {
    uint16_t half[INT_GROUPS * INT_ROWS];
    float value[INT_GROUPS * INT_ROWS];    /* the scale; for 8-bit queries an integer, relative to factor[i] */
    int32_t pair[INT_GROUPS * INT_ROWS];   /* 8-bit queries: the integer, twice in 16 bits */
    float factor[INT_ROWS];
} int_page;

/* The fp16 scales as they are, zeros up to a multiple of 16 rows.  Copied first and converted later: a vector load
 * right behind the small stores would wait for them. */
static void int_page_halves(const uint8_t *rows, size_t stride, int n, int groups, int_page *p)
{
    int i = 0;
#define INT_HALF(g) memcpy(p->half + (g) * INT_ROWS + i, card_scale(rows, (g) * CARD_BLOCKS), 2);
    for (; i < n && groups == 4; i++, rows += stride) {    /* a head of 128: worth 2 ns a row */
        REP4(INT_HALF)
    }
    for (; i < n; i++, rows += stride)
        for (int g = 0; g < groups; g++) {
            INT_HALF(g)
        }
    for (; i % 16; i++)
        for (int g = 0; g < groups; g++)
            p->half[g * INT_ROWS + i] = 0;
}

static inline vf int_half(const int_page *p, int g, int i)
{
    return vf_load_f16(p->half + g * INT_ROWS + i);
}

#if CARD_DIGITS == 2
static void int_page_scales(int n, int groups, int_page *p)
{
    for (int i = 0; i < n; i += 8) {
        for (int g = 0; g < groups; g++)
            vf_store(p->value + g * INT_ROWS + i, int_half(p, g, i));
        vf_store(p->factor + i, vf_set1(1.0f));
    }
}
#else
/* Integers up to a bound with which no sum can leave 32 bits: 32 * 127 * 127 * blocks * bound < 2^31. */
static void int_page_scales(int n, int groups, int_page *p)
{
    const vf bound = vf_set1((float)(4160 / (groups * CARD_BLOCKS))), sign = vf_set1(-0.0f);
    const __m256i twice = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13, 0, 1, 0, 1, 4, 5, 4, 5,
                                           8, 9, 8, 9, 12, 13, 12, 13);

    for (int i = 0; i < n; i += 8) {
        vf top = vf_zero(), sum = vf_zero();
        for (int g = 0; g < groups; g++) {
            vf f = int_half(p, g, i);
            top = _mm256_max_ps(_mm256_andnot_ps(sign, f), top);
            sum = _mm256_add_ps(sum, f);
        }
        vf inv = _mm256_div_ps(bound, top);
        for (int g = 0; g < groups; g++) {
            __m256i v = _mm256_cvtps_epi32(vf_mul(int_half(p, g, i), inv));
            vf_store(p->value + g * INT_ROWS + i, _mm256_cvtepi32_ps(v));
            store256(p->pair + g * INT_ROWS + i, _mm256_shuffle_epi8(v, twice));
        }
        /* 0 * sum: NaN if a scale is not finite */
        vf_store(p->factor + i, _mm256_add_ps(_mm256_div_ps(top, bound), vf_mul(sum, vf_zero())));
    }
}
#endif

/* A strip: the queries of a tile against n keys.  correction[j*64 + i] is added to the lane sum of query j and key
 * i. */
typedef struct int_strip {
    const uint8_t *head, *rows;
    size_t ldq8, stride;
    const int_page *page;
    const float *correction;
    float *s;
    size_t lds;
    int d, n, first;                       /* keys first .. n-1 */
} int_strip;

static void int_corrections(const uint8_t *head, size_t ldq8, int q, const int_page *p, int n, int groups, float *out)
{
    for (int j = 0; j < q; j++, head += ldq8) {
        const float *c = (const float *)(const void *)(head + 64);
        for (int i = 0; i < n; i += 8) {
            vf t = vf_zero();
            for (int g = 0; g < groups; g++)
                t = vf_fma(vf_load(p->value + g * INT_ROWS + i), vf_set1(c[g]), t);
            vf_store(out + j * INT_ROWS + i, t);
        }
    }
}

/* j: query, k: key of the tile */
#define IS_QUERY(j) (y + (size_t)(j) * t->ldq8)
#if CARD_DIGITS == 2
#define IS_ZERO(j, k) vf a##j##k = vf_zero();
#define IS_OPEN(k)                                                                                       \
    __m256i u = card_bytes(row + (k) * t->stride, b), even = _mm256_and_si256(u, _mm256_set1_epi16(255)); \
    __m256i odd = _mm256_srli_epi16(u, 8);                                                               \
    const uint8_t *y = values + (size_t)b * 64;                                                          \
    vf scale = vf_set1(t->page->value[b / CARD_BLOCKS * INT_ROWS + i + (k)]);
#define IS_ADD(j, k)                                                                                            \
    a##j##k = vf_fma(_mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_madd_epi16(even, load256(IS_QUERY(j))),        \
                                                         _mm256_madd_epi16(odd, load256(IS_QUERY(j) + 32)))), \
                     scale, a##j##k);
#define IS_SUM4(a, b, c, d) vf_sum4(a, b, c, d)
#else
#define IS_ZERO(j, k) __m256i a##j##k = _mm256_setzero_si256();
#define IS_OPEN(k)                                                           \
    __m256i u = card_bytes(row + (k) * t->stride, b);                         \
    const uint8_t *y = values + (size_t)b * 32;                              \
    __m256i scale = _mm256_set1_epi32(t->page->pair[b / CARD_BLOCKS * INT_ROWS + i + (k)]);
#define IS_ADD(j, k) \
    a##j##k = _mm256_add_epi32(_mm256_madd_epi16(_mm256_maddubs_epi16(u, load256(IS_QUERY(j))), scale), a##j##k);
#define IS_SUM4(a, b, c, d) int_sum4(a, b, c, d)

static inline __m256i int_hadd(__m256i a, __m256i b)
{
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
                            _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)));
}

static inline __m128 int_sum4(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i t = int_hadd(int_hadd(a, b), int_hadd(c, d));
    return _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(t), _mm256_extracti128_si256(t, 1)));
}
#endif
/* Key after key, so that few registers are live: gcc 12 spills accumulators of interleaved keys. */
#define IS_KEY1(k) for (int b = 0; b < blocks; b++) { IS_OPEN(k) IS_ADD(0, k) }
#define IS_KEY2(k) for (int b = 0; b < blocks; b++) { IS_OPEN(k) IS_ADD(0, k) IS_ADD(1, k) }
#define IS_KEY4(k) for (int b = 0; b < blocks; b++) { IS_OPEN(k) IS_ADD(0, k) IS_ADD(1, k) IS_ADD(2, k) IS_ADD(3, k) }

static inline float int_factor(const int_strip *t, int j)
{
    return *(const float *)(const void *)(t->head + (size_t)j * t->ldq8);
}

/* Query j, keys i..i+3: (sum + correction) * factor of the key * factor of the query. */
static inline void int_put4(const int_strip *t, int j, int i, __m128 sum)
{
    sum = _mm_add_ps(sum, _mm_loadu_ps(t->correction + j * INT_ROWS + i));
    sum = _mm_mul_ps(sum, _mm_mul_ps(_mm_loadu_ps(t->page->factor + i), _mm_set1_ps(int_factor(t, j))));
    _mm_storeu_ps(t->s + (size_t)j * t->lds + i, sum);
}

static inline __m128 int_two(const float *a, const float *b)
{
    __m128 x = _mm_castpd_ps(_mm_load_sd((const double *)(const void *)a));
    return _mm_loadh_pi(x, (const __m64 *)(const void *)b);
}

/* Queries j and j + 1, keys i and i + 1. */
static inline void int_put22(const int_strip *t, int j, int i, __m128 sum)
{
    const float *c = t->correction + j * INT_ROWS + i, f = int_factor(t, j), g = int_factor(t, j + 1);
    float *s = t->s + (size_t)j * t->lds + i;
    sum = _mm_add_ps(sum, int_two(c, c + INT_ROWS));
    sum = _mm_mul_ps(sum, _mm_mul_ps(int_two(t->page->factor + i, t->page->factor + i), _mm_setr_ps(f, f, g, g)));
    _mm_storel_pi((__m64 *)(void *)s, sum);
    _mm_storeh_pi((__m64 *)(void *)(s + t->lds), sum);
}

#define INT_TILE(Q, K, PUT)                                                                         \
    static void int_score_##Q##x##K(const int_strip *t)                                             \
    {                                                                                               \
        const uint8_t *values = t->head + INT_HEAD, *row = t->rows + (size_t)t->first * t->stride;  \
        int blocks = t->d / 32;                                                                     \
        for (int i = t->first; i + K <= t->n; i += K, row += K * t->stride) {                       \
            GRID##Q##x##K(IS_ZERO)                                                                  \
            REP##K(IS_KEY##Q)                                                                       \
            PUT                                                                                     \
        }                                                                                           \
    }

INT_TILE(1, 4, int_put4(t, 0, i, IS_SUM4(a00, a01, a02, a03));)
INT_TILE(2, 4, int_put4(t, 0, i, IS_SUM4(a00, a01, a02, a03)); int_put4(t, 1, i, IS_SUM4(a10, a11, a12, a13));)
INT_TILE(4, 2, int_put22(t, 0, i, IS_SUM4(a00, a01, a10, a11)); int_put22(t, 2, i, IS_SUM4(a20, a21, a30, a31));)

/* q = 1, 2 or 4 queries; keys that fill no tile are copied until they do. */
static void int_score_strip(int_strip *t, int q)
{
    static void (*const tiles[5])(const int_strip *) = { NULL, int_score_1x4, int_score_2x4, NULL, int_score_4x2 };
    int k = q == 4 ? 2 : 4, whole = t->n / k * k, n = t->n;

    t->first = 0;
    tiles[q](t);
    for (int i = whole; i < n; i++) {      /* the same arithmetic on a page that holds this key only */
        int_page one;
        float s[16], correction[4 * INT_ROWS];
        for (int c = 0; c < 4; c++) {
            for (int g = 0; g < t->d / 32 / CARD_BLOCKS; g++) {
                one.value[g * INT_ROWS + c] = t->page->value[g * INT_ROWS + i];
                one.pair[g * INT_ROWS + c] = t->page->pair[g * INT_ROWS + i];
            }
            one.factor[c] = t->page->factor[i];
            for (int j = 0; j < q; j++)
                correction[j * INT_ROWS + c] = t->correction[j * INT_ROWS + i];
        }
        int_strip copy = { .head = t->head, .ldq8 = t->ldq8, .rows = t->rows + (size_t)i * t->stride, .page = &one,
                           .correction = correction, .s = s, .lds = 4, .d = t->d, .n = k };
        tiles[q](&copy);
        for (int j = 0; j < q; j++)
            t->s[(size_t)j * t->lds + (size_t)i] = s[4 * j];
    }
}

static void int_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride,
                         int n, float *s, size_t lds, int d)
{
    float correction[4 * INT_ROWS];
    int_page page;
    int groups = d / 32 / CARD_BLOCKS;

    (void)param;
    for (int i = 0; i < n; i += INT_ROWS) {
        const uint8_t *at = rows + (size_t)i * stride;
        int m = n - i < INT_ROWS ? n - i : INT_ROWS;
        int_page_halves(at, stride, m, groups, &page);
        int_page_scales(m, groups, &page);
        for (int j = 0, q; j < r; j += q) {
            const uint8_t *head = (const uint8_t *)q8 + (size_t)j * ldq8;
            q = r - j >= 4 ? 4 : r - j >= 2 ? 2 : 1;
            int_corrections(head, ldq8, q, &page, m, groups, correction);
            int_strip t = { .head = head, .ldq8 = ldq8, .rows = at, .stride = stride, .page = &page,
                            .correction = correction, .s = s + (size_t)j * lds + i, .lds = lds, .d = d, .n = m };
            int_score_strip(&t, q);
        }
    }
}

/* ---- axpy ---- */

/* 64 factors of a product, scaled to at most `range`, in the order that vpackssdw puts right: of 16 values 0-3, 8-11,
 * then 4-7, 12-15. */
typedef struct int_side {
    float v[INT_ROWS];
    float max;                             /* NaN if a value is not finite */
} int_side;

static void int_normalise(const float *x, int count, float range, int_side *out)
{
    vf top = vf_zero(), sum = vf_zero();
    for (int i = 0; i < count; i += 8) {
        vf v = vf_load(x + i);
        top = _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v), top);
        sum = _mm256_add_ps(sum, v);
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1)), f;
    m = _mm_max_ps(m, _mm_shuffle_ps(m, m, 0x4e));
    m = _mm_max_ps(m, _mm_shuffle_ps(m, m, 0xb1));
    f = _mm_div_ps(_mm_set1_ps(range), m);
    if (!(_mm_cvtss_f32(f) <= 3.4e38f))    /* nothing but zeros, or nearly */
        f = _mm_setzero_ps();
    vf factor = _mm256_set_m128(f, f);
    for (int i = 0; i < count; i += 16) {
        vf a = vf_mul(vf_load(x + i), factor), b = vf_mul(vf_load(x + i + 8), factor);
        vf_store(out->v + i, _mm256_permute2f128_ps(a, b, 0x20));
        vf_store(out->v + i + 8, _mm256_permute2f128_ps(a, b, 0x31));
    }
    out->max = _mm_cvtss_f32(m) + 0.0f * _mm_cvtss_f32(vf_sum4(sum, sum, sum, sum));
}

/* 16-bit weights of one query row for one group, in the order of the rows. */
static void int_quantise(const int_side *w, const int_side *scale, int count, int16_t *out)
{
    for (int i = 0; i < count; i += 16) {
        __m256i a = _mm256_cvtps_epi32(vf_mul(vf_load(w->v + i), vf_load(scale->v + i)));
        __m256i b = _mm256_cvtps_epi32(vf_mul(vf_load(w->v + i + 8), vf_load(scale->v + i + 8)));
        store256(out + i, _mm256_packs_epi32(a, b));
    }
}

/* Block b of n rows as bytes, two rows interleaved: panel[pair][column][2]; an odd last row is paired with zeros. */
static void int_panel(const uint8_t *rows, size_t stride, int n, int b, uint8_t *panel)
{
    for (int i = 0; i < n; i += 2, rows += 2 * stride, panel += 64) {
        __m256i x = card_signed(rows, b), z = _mm256_setzero_si256();
        if (i + 1 < n)
            z = card_signed(rows + stride, b);
        __m256i lo = _mm256_unpacklo_epi8(x, z), hi = _mm256_unpackhi_epi8(x, z);
        store128(panel, _mm256_castsi256_si128(lo));
        store128(panel + 16, _mm256_castsi256_si128(hi));
        store128(panel + 32, _mm256_extracti128_si256(lo, 1));
        store128(panel + 48, _mm256_extracti128_si256(hi, 1));
    }
}

/* 8 columns of one pair of rows as 16-bit lanes */
static inline __m256i int_pair(const uint8_t *panel)
{
    return _mm256_cvtepi8_epi16(load128(panel));
}

static inline __m256i int_weight_pair(const int16_t *w)
{
    int32_t two;
    memcpy(&two, w, sizeof two);
    return _mm256_set1_epi32(two);
}

#define IA_ZERO(j, c) __m256i a##j##c = _mm256_setzero_si256();
#define IA_VALUE(c) __m256i x##c = int_pair(panel + 16 * (c));
#define IA_ADD(j, c) a##j##c = _mm256_add_epi32(_mm256_madd_epi16(x##c, y), a##j##c);
#define IA_WEIGHT2(j) { __m256i y = int_weight_pair(w + (j) * INT_ROWS + i); ROW2(IA_ADD, j) }
#define IA_WEIGHT4(j) { __m256i y = int_weight_pair(w + (j) * INT_ROWS + i); ROW4(IA_ADD, j) }
#define IA_PUT(j, c)                                                                               \
    vf_store(acc + (j) * lda + 8 * (c),                                                            \
             vf_fma(_mm256_cvtepi32_ps(a##j##c), vf_set1(factor[j]), vf_load(acc + (j) * lda + 8 * (c))));

/* Q weight rows x C vectors of 8 columns, starting at column 0 of panel and acc. */
#define INT_AXPY_TILE(Q, C)                                                                        \
    static void int_axpy_##Q##x##C(const int16_t *w, const float *factor, const uint8_t *panel, int n, float *acc, \
                                   size_t lda)                                                     \
    {                                                                                              \
        GRID##Q##x##C(IA_ZERO)                                                                     \
        (void)lda;                                                                                 \
        for (int i = 0; i < n; i += 2, panel += 64) {                                              \
            REP##C(IA_VALUE)                                                                       \
            REP##Q(IA_WEIGHT##C)                                                                   \
        }                                                                                          \
        GRID##Q##x##C(IA_PUT)                                                                      \
    }

INT_AXPY_TILE(1, 4)
INT_AXPY_TILE(2, 2)
INT_AXPY_TILE(4, 2)

static void int_axpy_block(const int16_t *w, const float *factor, int r, const uint8_t *panel, int n, float *acc,
                           size_t lda)
{
    int j = 0;
    for (; j + 4 <= r; j += 4) {
        int_axpy_4x2(w + j * INT_ROWS, factor + j, panel, n, acc + (size_t)j * lda, lda);
        int_axpy_4x2(w + j * INT_ROWS, factor + j, panel + 32, n, acc + (size_t)j * lda + 16, lda);
    }
    if (j + 2 <= r) {
        int_axpy_2x2(w + j * INT_ROWS, factor + j, panel, n, acc + (size_t)j * lda, lda);
        int_axpy_2x2(w + j * INT_ROWS, factor + j, panel + 32, n, acc + (size_t)j * lda + 16, lda);
        j += 2;
    }
    if (j < r)
        int_axpy_1x4(w + j * INT_ROWS, factor + j, panel, n, acc + (size_t)j * lda, lda);
}

/* At most INT_SLICE query rows at once, so that the weights fit the stack. */
enum { INT_SLICE = 16 };

static void int_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                        float *acc, size_t lda, int d)
{
    float padded[INT_ROWS] = { 0 }, scale[INT_ROWS], factor[INT_SLICE];
    int16_t w16[INT_SLICE * INT_ROWS];
    int_side weights[INT_SLICE], scales;
    uint8_t panel[INT_ROWS / 2 * 64];
    int_page page;
    int count = (n + 15) / 16 * 16;

    if (r > INT_SLICE) {
        int_axpy_q8(param, w, ldw, INT_SLICE, rows, stride, n, acc, lda, d);
        int_axpy_q8(param, w + INT_SLICE * ldw, ldw, r - INT_SLICE, rows, stride, n, acc + INT_SLICE * lda, lda, d);
        return;
    }
    int_page_halves(rows, stride, n, d / 32 / CARD_BLOCKS, &page);
    for (int j = 0; j < r; j++) {
        memcpy(padded, w + (size_t)j * ldw, (size_t)n * sizeof *padded);
        int_normalise(padded, count, 32767.0f, &weights[j]);
    }
    for (int b = 0; b < d / 32; b++) {
        if (b % CARD_BLOCKS == 0) {
            for (int i = 0; i < count; i += 8)
                vf_store(scale + i, int_half(&page, b / CARD_BLOCKS, i));
            int_normalise(scale, count, 1.0f, &scales);
            for (int j = 0; j < r; j++) {
                int_quantise(&weights[j], &scales, count, w16 + j * INT_ROWS);
                factor[j] = weights[j].max * scales.max * (CARD_STEP7 / 32767.0f);
            }
        }
        int_panel(rows, stride, n, b, panel);
        int_axpy_block(w16, factor, r, panel, n, acc + 32 * b, lda);
    }
}
