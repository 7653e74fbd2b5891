/* simd_int_avx512vnni.h: the integer path of attention (prep_q8, score_q8, axpy_q8 of kvant/format.h) with vpdpbusd:
 * four products of an unsigned and a signed byte summed into a 32-bit lane.
 *
 * A format takes part by giving its codes as unsigned bytes u; a value is  scale * CARD_STEP8 * (u - CARD_OFFSET8).
 * Before including:
 *   INT_KEYS(p, stride, b, x)    x[8]: block b (32 values) of 16 rows; lane k of x[c] = four values of row k
 *   INT_QUAD(p, stride, b, x)    x[2]: block b of 4 rows; lane i of x[h] = one value of the four rows
 *   INT_VALUE(j)                 which byte of a prepared query value j of a block is: 4c + byte in x[c] of INT_KEYS
 *   INT_COLUMNS                  not defined: x[0] of INT_QUAD holds values 0-15, x[1] 16-31; else, for values 0-15,
 *                                the lane of x[0] or 16 + the lane of x[1] (values 16-31: 8 lanes on)
 * CARD_DIGITS: bytes per value of a query: 1, or 2 (hi * 256 + lo) for formats near 8 bits.
 *
 * score: lanes are keys, so no sum crosses lanes; queries come as broadcast dwords.  Sets of 16 keys are unpacked in
 * registers, again for every four queries: through memory it took longer (stores 4 KiB away from the next loads).
 * axpy: lanes are columns; weight * scale becomes 16 bits, split into two signed digits. Instructions per key of 128
 * values and 4 bits: unpacking 8 to 10, then for every query 2 (score; 4 with two digits) or 4 (axpy) vpdpbusd. Sums
 * are exact integers up to one scale group, then f32 over ascending groups: nothing depends on tiles.  Error: half a
 * step of q (or w), and of a centroid where CARD_STEP8 rounds it.  A query, weight or scale that is not finite gives
 * NaN. */
#include <math.h>
#include "formats/simd/simd_rep.h"

enum { INT_ROWS = 64, INT_GROUPS = 16, INT_HEAD = 192 };

/* A prepared query: f32 factor; at byte 64 i32[16] and at byte 128 i32[16]: -CARD_OFFSET8 * sum of group g, of the
 * first and of the second digit; at 192 i8[sdim] first digits, then i8[sdim] second ones. */
#if CARD_DIGITS == 2
enum { INT_QUERY_MAX = 32512 };            /* 127 * 256: the first digit stays within a signed byte */
#else
enum { INT_QUERY_MAX = 127 };
#endif

/* Bits of the largest magnitude lane by lane; as integers, so that NaN and Inf are the largest of all. */
static inline __m512i int_larger(__m512i top, __m512 v)
{
    return _mm512_max_epi32(top, _mm512_castps_si512(_mm512_abs_ps(v)));
}

/* Returns the largest of all lanes; NaN if a value was not finite. */
static inline float int_largest(__m512i top)
{
    int32_t bits = _mm512_reduce_max_epi32(top);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v + v * 0.0f;
}

static inline float int_amax(const float *x, int n)
{
    __m512i top = _mm512_setzero_si512();
    for (int j = 0; j < n; j += 16)
        top = int_larger(top, _mm512_loadu_ps(x + j));
    return int_largest(top);
}

static void int_prep_q8(const void *param, const float *qp, void *q8, int d)
{
    uint8_t *head = q8;
    float amax = int_amax(qp, d), inv = (float)INT_QUERY_MAX / amax;
    float factor = amax * (CARD_STEP8 / (float)INT_QUERY_MAX);
    int32_t init[2][INT_GROUPS] = { { 0 } };

    (void)param;
    if (!(inv <= 3.4e38f))                 /* zeros, or so small that the score is zero, or NaN: all in the factor */
        inv = 0.0f;
    for (int b = 0; b < d / 32; b++)
        for (int j = 0; j < 32; j++) {
            float x = qp[32 * b + j] * inv;
            int v = x == x ? (int)lrintf(x) : 0, hi = v, at = INT_HEAD + 32 * b + INT_VALUE(j);
            if (CARD_DIGITS == 2) {
                hi = (v + 128) >> 8;
                head[at + d] = (uint8_t)(v - hi * 256);
                init[1][b / CARD_BLOCKS] -= CARD_OFFSET8 * (v - hi * 256);
            }
            head[at] = (uint8_t)hi;
            init[0][b / CARD_BLOCKS] -= CARD_OFFSET8 * hi;
        }
    memset(head, 0, 64);
    memcpy(head, &factor, sizeof factor);
    memcpy(head + 64, init, sizeof init);
}

/* 16 rows at a variable stride are 16 addresses, more than there are registers: code is made for the strides of 128,
 * 256 and 512 values, and rows of other sizes, or too few for a set, are copied to the next of these. */
#define INT_ROW(d) ((d) * (KVANT_MAX_HEAD_DIM / CARD_VALUES * CARD_BYTES_OF_RECORD) / KVANT_MAX_HEAD_DIM)

enum { INT_SET = 16, INT_SETS = INT_ROWS / INT_SET };

/* Up to 64 rows. */
typedef struct int_page {
    const uint8_t *set[INT_SETS];
    int sets, wide;                                         /* wide: 0, 1, 2: stride of 128, 256, 512 values */
    _Alignas(64) uint16_t half[INT_GROUPS * INT_ROWS];      /* scale of row i, group g at g*64 + i; 0 behind the rows */
    uint8_t copy[INT_ROWS * INT_ROW(KVANT_MAX_HEAD_DIM)];
} int_page;

/* The fp16 scales as they are.  Copied first and converted later: a vector load right behind the small stores would
 * wait for them. */
static void int_page_halves(int_page *p, const uint8_t *rows, size_t stride, int n, int groups)
{
    int i = 0;
#define INT_HALF(g) memcpy(p->half + (g) * INT_ROWS + i, card_scale(rows, (g) * CARD_BLOCKS), 2);
    for (; i < n && groups == 4; i++, rows += stride) {     /* a head of 128, scale per 32 */
        REP4(INT_HALF)
    }
    for (; i < n; i++, rows += stride)
        for (int g = 0; g < groups; g++) {
            INT_HALF(g)
        }
    for (int g = 0; g < groups && n < INT_ROWS; g++)
        memset(p->half + g * INT_ROWS + n, 0, (size_t)(INT_ROWS - n) * sizeof *p->half);
}

/* Row i of the copy lies at i * step; zeros fill the last set. */
static void int_page_copy(int_page *p, const uint8_t *rows, size_t stride, int from, int n, int d, size_t step)
{
    size_t row_bytes = (size_t)INT_ROW(d);
    for (int i = from; i < n; i++)
        memcpy(p->copy + (size_t)i * step, rows + (size_t)i * stride, row_bytes);
    for (int i = n; i % INT_SET; i++)
        memset(p->copy + (size_t)i * step, 0, row_bytes);
}

static void int_page_open(int_page *p, const uint8_t *rows, size_t stride, int n, int d)
{
    p->wide = d <= 128 ? 0 : d <= 256 ? 1 : 2;
    p->sets = (n + INT_SET - 1) / INT_SET;
    size_t step = (size_t)INT_ROW(128 << p->wide);
    int whole = stride == step ? n / INT_SET : 0;

    int_page_halves(p, rows, stride, n, d / 32 / CARD_BLOCKS);
    if (whole < p->sets)
        int_page_copy(p, rows, stride, whole * INT_SET, n, d, step);
    for (int i = 0; i < p->sets; i++)
        p->set[i] = (i < whole ? rows : p->copy) + (size_t)i * INT_SET * step;
}

static inline __m512 int_scale(const int_page *p, int g, int i)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)(p->half + g * INT_ROWS + i)));
}

/* The queries of a tile against one set of keys. */
typedef struct int_strip {
    const int_page *page;
    const uint8_t *head;
    size_t ldq8;
    float *s;
    size_t lds;
    int d, n, set;                         /* n: keys of the page */
} int_strip;

/* j: query; a, e: sums of a group in integers: of the first and second digit; of even and odd c where there is one
 * digit (two chains hide the latency of vpdpbusd); f: of all groups */
#define IS_QUERY(j) (t->head + (size_t)(j) * t->ldq8)
#define IS_ZERO(j) __m512 f##j = _mm512_setzero_ps();
#define IS_VALUE(j, c, digit) vb_splat4(IS_QUERY(j) + INT_HEAD + (digit) * t->d + 32 * b + 4 * (c))
#define IS_INIT(j) __m512i a##j = vb_splat4(IS_QUERY(j) + 64 + 4 * g), e##j = vb_splat4(IS_QUERY(j) + 128 + 4 * g);
#if CARD_DIGITS == 2
#define IS_BOTH(j, c)                                                 \
    a##j = _mm512_dpbusd_epi32(a##j, x[c], IS_VALUE(j, c, 0));        \
    e##j = _mm512_dpbusd_epi32(e##j, x[c], IS_VALUE(j, c, 1));
#define IS_PAIR(j, c) IS_BOTH(j, c) IS_BOTH(j, c + 1)
#define IS_SUM(j) _mm512_add_epi32(_mm512_slli_epi32(a##j, 8), e##j)
#else
#define IS_PAIR(j, c)                                                 \
    a##j = _mm512_dpbusd_epi32(a##j, x[c], IS_VALUE(j, c, 0));        \
    e##j = _mm512_dpbusd_epi32(e##j, x[c + 1], IS_VALUE(j, c + 1, 0));
#define IS_SUM(j) _mm512_add_epi32(a##j, e##j)
#endif
#define IS_PAIR0(j) IS_PAIR(j, 0)
#define IS_PAIR2(j) IS_PAIR(j, 2)
#define IS_PAIR4(j) IS_PAIR(j, 4)
#define IS_PAIR6(j) IS_PAIR(j, 6)
#define IS_BLOCK(Q) REP##Q(IS_PAIR0) REP##Q(IS_PAIR2) REP##Q(IS_PAIR4) REP##Q(IS_PAIR6)
#define IS_GROUP(j) f##j = _mm512_fmadd_ps(_mm512_cvtepi32_ps(IS_SUM(j)), scale, f##j);
#define IS_PUT(j) int_put(t, j, f##j);

/* Scores of query j for the keys of the set, as many as there are. */
static inline void int_put(const int_strip *t, int j, __m512 f)
{
    int at = t->set * INT_SET, left = t->n - at;
    float factor;
    memcpy(&factor, IS_QUERY(j), sizeof factor);
    __mmask16 m = (__mmask16)(left >= INT_SET ? 0xffff : (1u << left) - 1);
    _mm512_mask_storeu_ps(t->s + (size_t)j * t->lds + at, m, _mm512_mul_ps(f, _mm512_set1_ps(factor)));
}

#define INT_TILE(Q, D)                                                                                      \
    static void int_score_##Q##_##D(const int_strip *t)                                                     \
    {                                                                                                       \
        const uint8_t *rows = t->page->set[t->set];                                                         \
        REP##Q(IS_ZERO)                                                                                     \
        for (int g = 0; g < t->d / 32 / CARD_BLOCKS; g++) {                                                   \
            __m512 scale = int_scale(t->page, g, t->set * INT_SET);                                         \
            REP##Q(IS_INIT)                                                                                 \
            for (int b = g * CARD_BLOCKS; b < (g + 1) * CARD_BLOCKS; b++) {                                     \
                __m512i x[8];                                                                               \
                INT_KEYS(rows, (size_t)INT_ROW(D), b, x);                                                   \
                IS_BLOCK(Q)                                                                                 \
            }                                                                                               \
            REP##Q(IS_GROUP)                                                                                \
        }                                                                                                   \
        REP##Q(IS_PUT)                                                                                      \
    }

INT_TILE(1, 128)
INT_TILE(2, 128)
INT_TILE(4, 128)
INT_TILE(1, 256)
INT_TILE(2, 256)
INT_TILE(4, 256)
INT_TILE(1, 512)
INT_TILE(2, 512)
INT_TILE(4, 512)

static void int_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride,
                         int n, float *s, size_t lds, int d)
{
    static void (*const tiles[3][3])(const int_strip *) = {
        { int_score_1_128, int_score_2_128, int_score_4_128 },
        { int_score_1_256, int_score_2_256, int_score_4_256 },
        { int_score_1_512, int_score_2_512, int_score_4_512 },
    };
    int_page page;

    (void)param;
    for (int i = 0; i < n; i += INT_ROWS) {
        int m = n - i < INT_ROWS ? n - i : INT_ROWS;
        int_page_open(&page, rows + (size_t)i * stride, stride, m, d);
        for (int j = 0, q; j < r; j += q) {
            q = r - j >= 4 ? 4 : r - j >= 2 ? 2 : 1;
            int_strip t = { .page = &page, .head = (const uint8_t *)q8 + (size_t)j * ldq8, .ldq8 = ldq8,
                            .s = s + (size_t)j * lds + i, .lds = lds, .d = d, .n = m };
            for (; t.set < page.sets; t.set++)
                tiles[page.wide][q / 2](&t);
        }
    }
}

/* ---- axpy ---- */

enum { INT_SLICE = 4, INT_WEIGHT_MAX = 32512 };             /* 127 * 256 */

/* The weights of up to INT_SLICE query rows, scaled so that the largest product with a scale is INT_WEIGHT_MAX. */
typedef struct int_weights {
    _Alignas(64) float v[INT_SLICE][INT_ROWS];
    _Alignas(64) uint8_t digit[INT_SLICE][2][INT_ROWS];     /* of one group: rows 16z + 4l .. + 3 at byte 16l + 4z */
    _Alignas(16) int32_t init[INT_SLICE];                   /* of one group: -CARD_OFFSET8 times the sum */
    float factor[INT_SLICE];
} int_weights;

/* Largest magnitude of all scales; NaN if one is not finite. */
static float int_page_largest(const int_page *p, int groups)
{
    __m512i top = _mm512_setzero_si512();
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < INT_SET * p->sets; i += 16)
            top = int_larger(top, int_scale(p, g, i));
    return int_largest(top);
}

static inline __m512 int_load_weights(const float *from, int i, int n)
{
    int left = n - i;
    return _mm512_maskz_loadu_ps((__mmask16)(left >= 16 ? 0xffff : left > 0 ? (1u << left) - 1 : 0), from + i);
}

static void int_weights_open(int_weights *w, int j, const float *from, int n, float largest)
{
    __m512 a = int_load_weights(from, 0, n), b = int_load_weights(from, 16, n), c = int_load_weights(from, 32, n),
           e = int_load_weights(from, 48, n);
    __m512i top = int_larger(int_larger(_mm512_setzero_si512(), a), b);
    float max = int_largest(int_larger(int_larger(top, c), e)) * largest, f = (float)INT_WEIGHT_MAX / max;
    if (!(f <= 3.4e38f))                   /* nothing but zeros, or nearly, or NaN */
        f = 0.0f;
    _mm512_store_ps(w->v[j], _mm512_mul_ps(a, _mm512_set1_ps(f)));
    _mm512_store_ps(w->v[j] + 16, _mm512_mul_ps(b, _mm512_set1_ps(f)));
    _mm512_store_ps(w->v[j] + 32, _mm512_mul_ps(c, _mm512_set1_ps(f)));
    _mm512_store_ps(w->v[j] + 48, _mm512_mul_ps(e, _mm512_set1_ps(f)));
    w->factor[j] = max * (CARD_STEP8 / (float)INT_WEIGHT_MAX);
}

static inline __m512i int_product(const int_weights *w, int j, int i, __m512 scale)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(w->v[j] + i), scale));
}

/* Sums of the lanes of four vectors. */
static inline __m128i int_sum4(const __m512i *s)
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m256i e = _mm256_add_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
}

/* Weight times scale as hi * 256 + lo, both signed bytes. */
static void int_weights_group(int_weights *w, int r, const int_page *p, int g)
{
    const __m512 s0 = int_scale(p, g, 0), s1 = int_scale(p, g, 16), s2 = int_scale(p, g, 32), s3 = int_scale(p, g, 48);
    const __m512i round = _mm512_set1_epi16(128), low = _mm512_set1_epi16(255), one = _mm512_set1_epi16(1);
    __m512i sum[INT_SLICE] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512() };
    for (int j = 0; j < r; j++) {
        __m512i a = _mm512_packs_epi32(int_product(w, j, 0, s0), int_product(w, j, 16, s1));
        __m512i b = _mm512_packs_epi32(int_product(w, j, 32, s2), int_product(w, j, 48, s3));
        __m512i hi = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(a, round), 8),
                                        _mm512_srai_epi16(_mm512_add_epi16(b, round), 8));
        __m512i lo = _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low));
        sum[j] = _mm512_dpwssd_epi32(_mm512_madd_epi16(a, one), b, one);
        _mm512_store_si512(w->digit[j][0], hi);
        _mm512_store_si512(w->digit[j][1], lo);
    }
    _mm_store_si128((__m128i *)(void *)w->init, _mm_mullo_epi32(int_sum4(sum), _mm_set1_epi32(-CARD_OFFSET8)));
}

/* j: weight row, h: half of the columns, z: set, l: four rows of it; a: first digits, e: second ones */
#define IA_ZERO(j, h) __m512i a##j##h = _mm512_setzero_si512(), e##j##h = _mm512_setzero_si512();
#define IA_ADD(j, h)                                      \
    a##j##h = _mm512_dpbusd_epi32(a##j##h, x[h], y);      \
    e##j##h = _mm512_dpbusd_epi32(e##j##h, x[h], v);
#define IA_ROW(j)                                                                                           \
    {                                                                                                       \
        __m512i y = vb_splat4(w->digit[j][0] + at), v = vb_splat4(w->digit[j][1] + at);                     \
        ROW2(IA_ADD, j)                                                                                     \
    }
#define IA_FOUR(Q, D, l)                                                                                    \
    {                                                                                                       \
        __m512i x[2];                                                                                       \
        int at = 16 * (l) + 4 * z;                                                                          \
        INT_QUAD(p->set[z] + 4 * (l) * (size_t)INT_ROW(D), (size_t)INT_ROW(D), b, x);                       \
        REP##Q(IA_ROW)                                                                                      \
    }
#define IA_PUT(j) int_put_columns(w, j, a##j##0, e##j##0, a##j##1, e##j##1, acc + (j) * lda);

static inline __m512 int_columns(const int_weights *w, int j, __m512i a, __m512i e)
{
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(a, 8), e);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(sum, _mm512_set1_epi32(w->init[j])));
}

static inline void int_put_columns(const int_weights *w, int j, __m512i a0, __m512i e0, __m512i a1, __m512i e1,
                                   float *acc)
{
    __m512 x = int_columns(w, j, a0, e0), y = int_columns(w, j, a1, e1), f = _mm512_set1_ps(w->factor[j]);
#ifdef INT_COLUMNS
    static const int32_t columns[16] = { INT_COLUMNS };
    const __m512i first = load512(columns);
    __m512 u = x, v = y;
    x = _mm512_permutex2var_ps(u, first, v);
    y = _mm512_permutex2var_ps(u, _mm512_add_epi32(first, _mm512_set1_epi32(8)), v);
#endif
    _mm512_storeu_ps(acc, _mm512_fmadd_ps(x, f, _mm512_loadu_ps(acc)));
    _mm512_storeu_ps(acc + 16, _mm512_fmadd_ps(y, f, _mm512_loadu_ps(acc + 16)));
}

/* Q weight rows x block b. */
#define INT_AXPY_TILE(Q, D)                                                                                 \
    static void int_axpy_##Q##_##D(const int_weights *w, const int_page *p, int b, float *acc, size_t lda)  \
    {                                                                                                       \
        GRID##Q##x2(IA_ZERO)                                                                                \
        (void)lda;                                                                                          \
        for (int z = 0; z < p->sets; z++) {                                                                 \
            IA_FOUR(Q, D, 0) IA_FOUR(Q, D, 1) IA_FOUR(Q, D, 2) IA_FOUR(Q, D, 3)                             \
        }                                                                                                   \
        REP##Q(IA_PUT)                                                                                      \
    }

INT_AXPY_TILE(1, 128)
INT_AXPY_TILE(2, 128)
INT_AXPY_TILE(4, 128)
INT_AXPY_TILE(1, 256)
INT_AXPY_TILE(2, 256)
INT_AXPY_TILE(4, 256)
INT_AXPY_TILE(1, 512)
INT_AXPY_TILE(2, 512)
INT_AXPY_TILE(4, 512)

static void int_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                        float *acc, size_t lda, int d)
{
    static void (*const tiles[3][3])(const int_weights *, const int_page *, int, float *, size_t) = {
        { int_axpy_1_128, int_axpy_2_128, int_axpy_4_128 },
        { int_axpy_1_256, int_axpy_2_256, int_axpy_4_256 },
        { int_axpy_1_512, int_axpy_2_512, int_axpy_4_512 },
    };
    int_page page;
    int_weights weights;

    (void)param;
    int_page_open(&page, rows, stride, n, d);
    float largest = int_page_largest(&page, d / 32 / CARD_BLOCKS);
    for (int j = 0, q; j < r; j += q, acc += (size_t)q * lda) {
        q = r - j >= 4 ? 4 : r - j >= 2 ? 2 : 1;
        for (int i = 0; i < q; i++)
            int_weights_open(&weights, i, w + (size_t)(j + i) * ldw, n, largest);
        for (int b = 0; b < d / 32; b++) {
            if (b % CARD_BLOCKS == 0)
                int_weights_group(&weights, q, &page, b / CARD_BLOCKS);
            tiles[page.wide][q / 2](&weights, &page, b, acc + 32 * b, lda);
        }
    }
}
