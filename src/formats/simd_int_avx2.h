/* simd_int_avx2.h: the integer path of attention (prep_q8, score_q8, axpy_q8 of kvant/format.h) on AVX2.
 *
 * A format takes part by giving its codes as bytes; a value is  scale * INT_STEP * (u - INT_OFFSET).
 * Before including:
 *   INT_CODES(row, b)          32 unsigned bytes u of values 32b..32b+31, natural order
 *   INT_SIGNED(row, b)         the same as signed bytes u - INT_OFFSET
 *   INT_SCALES(row, g)         address of the fp16 scale of group g
 *   INT_GROUP                  blocks of 32 per scale: 1 or 4
 *   INT_STEP, INT_OFFSET
 *   INT_WIDE_QUERY             0: u <= 127 and 8-bit queries; 1: u <= 255 and 16-bit queries
 *
 * On Zen 3 every multiplication, integer or float, goes to the same two units: f16 needs 4 of them per 32 values and
 * query, 8-bit queries 2 (vpmaddubsw, and vpmaddwd that widens and applies the scale, as an integer relative to the
 * row's largest), 16-bit queries 3.  axpy: w*scale become 16-bit integers, rows are interleaved in pairs, vpmaddwd
 * multiplies and sums two rows: 2 per 32 values.
 * Sums are exact integers, so nothing depends on tiles.  Error: half a step of q (or w), of a scale (2^-13 of the row's
 * largest), and of a centroid where INT_STEP rounds it.
 * A query, weight or scale that is not finite gives NaN. */
#include <math.h>
#include "formats/simd_rep.h"

enum { INT_ROWS = 64, INT_MAX_GROUPS = 16, INT_HEAD = 64 };

/* The prepared query: head { factor }, sums f32[groups up to a multiple of 8], values i8 or i16[sdim]. */
static inline int int_pitch(int d)
{
    return (d / 32 / INT_GROUP + 7) / 8 * 8;
}

#define INT_VALUES(q8, d) ((const uint8_t *)(q8) + INT_HEAD + 4 * int_pitch(d))

static inline float int_amax(const float *x, int n)
{
    vf m = vf_zero(), t = vf_zero();
    for (int j = 0; j < n; j += 8) {
        vf a = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), vf_load(x + j));
        m = _mm256_max_ps(a, m);
        t = _mm256_add_ps(t, a);
    }
    float top[8], sum[8], r = 0.0f, s = 0.0f;
    vf_store(top, m);
    vf_store(sum, t);
    for (int j = 0; j < 8; j++) {
        r = top[j] > r ? top[j] : r;
        s += sum[j];
    }
    return s <= 3.4e38f ? r : NAN;
}

#if INT_WIDE_QUERY
enum { INT_QUERY_MAX = 32767, INT_QUERY_BYTES = 64 };

/* even values of 32, then odd ones: as the two halves of 16-bit lanes of INT_CODES */
static inline int int_place(int j)
{
    return j % 2 * 16 + j / 2;
}
#else
enum { INT_QUERY_MAX = 127, INT_QUERY_BYTES = 32 };
#endif

static void int_prep_q8(const void *param, const float *qp, void *q8, int d)
{
    float amax = int_amax(qp, d), inv = amax > 0.0f ? (float)INT_QUERY_MAX / amax : 0.0f;
    float *sums = (float *)(void *)((uint8_t *)q8 + INT_HEAD);
    uint8_t *values = (uint8_t *)q8 + INT_HEAD + 4 * int_pitch(d);

    (void)param;
    if (!(inv <= 3.4e38f))                 /* amax below 1e-34: too small to scale, and zero to any score */
        inv = 0.0f;
    *(float *)q8 = amax * (INT_STEP / (float)INT_QUERY_MAX);
    memset(sums, 0, (size_t)int_pitch(d) * sizeof *sums);
    for (int b = 0; b < d / 32; b++) {
        int sum = 0;
        for (int j = 0; j < 32; j++) {
            float x = qp[32 * b + j] * inv;
            int v = x == x ? (int)lrintf(x) : 0;
            v = v > INT_QUERY_MAX ? INT_QUERY_MAX : v < -INT_QUERY_MAX ? -INT_QUERY_MAX : v;
            sum += v;
#if INT_WIDE_QUERY
            int16_t w = (int16_t)v;
            memcpy(values + 64 * b + 2 * int_place(j), &w, sizeof w);
#else
            values[32 * b + j] = (uint8_t)v;
#endif
        }
        sums[b / INT_GROUP] -= (float)INT_OFFSET * (float)sum;
    }
}

/* Scales of up to 64 rows: value[i*pitch + g] with zeros up to the pitch; times factor[i]. */
typedef struct int_page {
    float value[INT_ROWS * INT_MAX_GROUPS];
    int32_t pair[INT_ROWS * INT_MAX_GROUPS];         /* value as two 16-bit integers (8-bit queries) */
    float factor[INT_ROWS];
} int_page;

/* Four fp16 scales from group g on, zeros past the last. */
static inline __m128 int_scales4(const uint8_t *row, int g, int groups)
{
    uint64_t four = 0;
    for (int k = 0; k < 4 && g + k < groups; k++) {
        uint16_t h;
        memcpy(&h, INT_SCALES(row, g + k), sizeof h);
        four |= (uint64_t)h << (16 * k);
    }
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)four));
}

static inline __m256i int_load(const uint8_t *p)
{
    return _mm256_load_si256((const __m256i *)(const void *)p);
}

#if INT_WIDE_QUERY
static void int_page_scales(const uint8_t *rows, size_t stride, int n, int groups, int pitch, int_page *p)
{
    for (int i = 0; i < n; i++, rows += stride) {
        for (int g = 0; g < pitch; g += 4)
            _mm_storeu_ps(p->value + i * pitch + g, int_scales4(rows, g, groups));
        p->factor[i] = 1.0f;
    }
}
#else
/* Integers up to a bound that no sum of all blocks can exceed: 2 * 2 * 127 * 127 * blocks * bound < 2^31. */
static void int_page_scales(const uint8_t *rows, size_t stride, int n, int groups, int pitch, int_page *p)
{
    const float bound = (float)(33000 / (groups * INT_GROUP) < 8191 ? 33000 / (groups * INT_GROUP) : 8191);
    const __m128 sign = _mm_set1_ps(-0.0f);

    for (int i = 0; i < n; i++, rows += stride) {
        __m128 top = _mm_setzero_ps(), sum = _mm_setzero_ps(), f[INT_MAX_GROUPS / 4];
        for (int g = 0; g < pitch; g += 4) {
            f[g / 4] = int_scales4(rows, g, groups);
            top = _mm_max_ps(_mm_andnot_ps(sign, f[g / 4]), top);
            sum = _mm_add_ps(sum, f[g / 4]);
        }
        top = _mm_max_ps(top, _mm_shuffle_ps(top, top, 0x4e));
        top = _mm_max_ps(top, _mm_shuffle_ps(top, top, 0xb1));
        sum = _mm_add_ps(sum, _mm_shuffle_ps(sum, sum, 0x4e));
        sum = _mm_add_ps(sum, _mm_shuffle_ps(sum, sum, 0xb1));
        __m128 inv = _mm_div_ps(_mm_set1_ps(bound), top);
        for (int g = 0; g < pitch; g += 4) {
            __m128i v = _mm_cvtps_epi32(_mm_mul_ps(f[g / 4], inv));
            __m128i low = _mm_and_si128(v, _mm_set1_epi32(0xffff));
            _mm_storeu_ps(p->value + i * pitch + g, _mm_cvtepi32_ps(v));
            _mm_storeu_si128((__m128i *)(void *)(p->pair + i * pitch + g), _mm_or_si128(low, _mm_slli_epi32(v, 16)));
        }
        /* 0 * sum: NaN if a scale is not finite */
        top = _mm_add_ps(_mm_mul_ps(top, _mm_set1_ps(1.0f / bound)), _mm_mul_ps(sum, _mm_setzero_ps()));
        _mm_store_ss(p->factor + i, top);
    }
}
#endif

/* j: query, k: key (key k is row k*stride, page entry k*step) */
#if INT_WIDE_QUERY
#define IS_ZERO(j, k) vf a##j##k = vf_zero();
#define IS_OPEN(k)                                                                                     \
    __m256i u = INT_CODES(rows + (k) * stride, b), even = _mm256_and_si256(u, _mm256_set1_epi16(255)); \
    __m256i odd = _mm256_srli_epi16(u, 8);                                                             \
    const uint8_t *y = values + (size_t)b * 64;                                                        \
    vf scale = vf_set1(value[(k) * step + b / INT_GROUP]);
#define IS_ADD(j, k)                                                                                           \
    a##j##k = vf_fma(_mm256_cvtepi32_ps(_mm256_add_epi32(                                                      \
                         _mm256_madd_epi16(even, int_load(y + (size_t)(j) * ldq8)),                            \
                         _mm256_madd_epi16(odd, int_load(y + (size_t)(j) * ldq8 + 32)))), scale, a##j##k);
#define IS_CLOSE(j, k) vf t##j##k = a##j##k;
#else
#define IS_ZERO(j, k) __m256i a##j##k = _mm256_setzero_si256();
#define IS_OPEN(k)                                                           \
    __m256i u = INT_CODES(rows + (k) * stride, b);                           \
    const uint8_t *y = values + (size_t)b * 32;                              \
    __m256i scale = _mm256_set1_epi32(pair[(k) * step + b / INT_GROUP]);
#define IS_ADD(j, k)                                                                                             \
    a##j##k = _mm256_add_epi32(                                                                                  \
        _mm256_madd_epi16(_mm256_maddubs_epi16(u, int_load(y + (size_t)(j) * ldq8)), scale), a##j##k);
#define IS_CLOSE(j, k) vf t##j##k = _mm256_cvtepi32_ps(a##j##k);
#endif
#define IS_KEY1(k) { IS_OPEN(k) IS_ADD(0, k) }
#define IS_KEY2(k) { IS_OPEN(k) IS_ADD(0, k) IS_ADD(1, k) }
#define IS_KEY4(k) { IS_OPEN(k) IS_ADD(0, k) IS_ADD(1, k) IS_ADD(2, k) IS_ADD(3, k) }
#define IS_HEAD(j) ((const float *)(const void *)(head + (size_t)(j) * ldq8))
#define IS_SUMS(j, k) t##j##k = vf_fma(vf_load(value + (k) * step + g), vf_load(IS_HEAD(j) + INT_HEAD / 4 + g), t##j##k);

/* factor: of the K keys.  The last two steps are the same for every tile: lane sums, then times factor * query factor. */
static inline void int_put4(float *s, __m128 sums, const float *factor, const float *query)
{
    _mm_storeu_ps(s, _mm_mul_ps(sums, _mm_mul_ps(_mm_loadu_ps(factor), _mm_set1_ps(*query))));
}

static inline void int_put22(float *s0, float *s1, __m128 sums, const float *factor, const float *q0, const float *q1)
{
    __m128 f = _mm_castpd_ps(_mm_loaddup_pd((const double *)(const void *)factor));
    sums = _mm_mul_ps(sums, _mm_mul_ps(f, _mm_setr_ps(*q0, *q0, *q1, *q1)));
    _mm_storel_pi((__m64 *)(void *)s0, sums);
    _mm_storeh_pi((__m64 *)(void *)s1, sums);
}

#define INT_TILE(Q, K, PUT)                                                                          \
    static void int_score_##Q##x##K(const uint8_t *head, size_t ldq8, const uint8_t *rows, size_t stride, \
                                    const float *value, const int32_t *pair, size_t step, const float *factor, \
                                    float *s, size_t lds, int d)                                     \
    {                                                                                                \
        const uint8_t *values = INT_VALUES(head, d);                                                 \
        GRID##Q##x##K(IS_ZERO)                                                                       \
        (void)pair;                                                                                  \
        (void)lds;                                                                                   \
        for (int b = 0; b < d / 32; b++) {                                                           \
            REP##K(IS_KEY##Q)                                                                        \
        }                                                                                            \
        GRID##Q##x##K(IS_CLOSE)                                                                      \
        for (int g = 0; g < d / 32 / INT_GROUP; g += 8) {                                            \
            GRID##Q##x##K(IS_SUMS)                                                                   \
        }                                                                                            \
        PUT                                                                                          \
    }

INT_TILE(1, 4, int_put4(s, vf_sum4(t00, t01, t02, t03), factor, IS_HEAD(0));)
INT_TILE(2, 4, int_put4(s, vf_sum4(t00, t01, t02, t03), factor, IS_HEAD(0));
         int_put4(s + lds, vf_sum4(t10, t11, t12, t13), factor, IS_HEAD(1));)
INT_TILE(4, 2, int_put22(s, s + lds, vf_sum4(t00, t01, t10, t11), factor, IS_HEAD(0), IS_HEAD(1));
         int_put22(s + 2 * lds, s + 3 * lds, vf_sum4(t20, t21, t30, t31), factor, IS_HEAD(2), IS_HEAD(3));)

typedef void (*int_tile_fn)(const uint8_t *head, size_t ldq8, const uint8_t *rows, size_t stride, const float *value,
                            const int32_t *pair, size_t step, const float *factor, float *s, size_t lds, int d);

/* q = 1, 2 or 4 queries against n <= 64 keys; a last key fills a tile by repetition (strides 0). */
static void int_score_strip(const uint8_t *q8, size_t ldq8, int q, const uint8_t *rows, size_t stride, int n,
                            const int_page *p, float *s, size_t lds, int d)
{
    static const int_tile_fn tiles[5] = { NULL, int_score_1x4, int_score_2x4, NULL, int_score_4x2 };
    size_t step = (size_t)int_pitch(d);
    int i = 0, k = q == 4 ? 2 : 4;

    for (; i + k <= n; i += k)
        tiles[q](q8, ldq8, rows + (size_t)i * stride, stride, p->value + (size_t)i * step, p->pair + (size_t)i * step, step,
                 p->factor + i, s + i, lds, d);
    for (; i < n; i++) {
        float copies[16], factor[4] = { p->factor[i], p->factor[i], p->factor[i], p->factor[i] };
        tiles[q](q8, ldq8, rows + (size_t)i * stride, 0, p->value + (size_t)i * step, p->pair + (size_t)i * step, 0, factor,
                 copies, 4, d);
        for (int j = 0; j < q; j++)
            s[(size_t)j * lds + (size_t)i] = copies[4 * j];
    }
}

static void int_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride,
                         int n, float *s, size_t lds, int d)
{
    int_page page;

    (void)param;
    for (int i = 0; i < n; i += INT_ROWS) {
        const uint8_t *at = rows + (size_t)i * stride;
        int m = n - i < INT_ROWS ? n - i : INT_ROWS;
        int_page_scales(at, stride, m, d / 32 / INT_GROUP, int_pitch(d), &page);
        for (int j = 0, q; j < r; j += q) {
            q = r - j >= 4 ? 4 : r - j >= 2 ? 2 : 1;
            int_score_strip((const uint8_t *)q8 + (size_t)j * ldq8, ldq8, q, at, stride, m, &page,
                            s + (size_t)j * lds + i, lds, d);
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
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_packs_epi32(a, b));
    }
}

/* Block b of n rows as bytes, two rows interleaved: panel[pair][column][2]; an odd last row is paired with zeros. */
static void int_panel(const uint8_t *rows, size_t stride, int n, int b, uint8_t *panel)
{
    for (int i = 0; i < n; i += 2, rows += 2 * stride, panel += 64) {
        __m256i x = INT_SIGNED(rows, b), z = _mm256_setzero_si256();
        if (i + 1 < n)
            z = INT_SIGNED(rows + stride, b);
        __m256i lo = _mm256_unpacklo_epi8(x, z), hi = _mm256_unpackhi_epi8(x, z);
        _mm_storeu_si128((__m128i *)(void *)panel, _mm256_castsi256_si128(lo));
        _mm_storeu_si128((__m128i *)(void *)(panel + 16), _mm256_castsi256_si128(hi));
        _mm_storeu_si128((__m128i *)(void *)(panel + 32), _mm256_extracti128_si256(lo, 1));
        _mm_storeu_si128((__m128i *)(void *)(panel + 48), _mm256_extracti128_si256(hi, 1));
    }
}

/* 8 columns of one pair of rows as 16-bit lanes */
static inline __m256i int_pair(const uint8_t *panel)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)panel));
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

/* Scales by group: scale[g*64 + i], zeros from row n up to a multiple of 16. */
static void int_column_scales(const uint8_t *rows, size_t stride, int n, int groups, float *scale)
{
    for (int i = 0; i < (n + 15) / 16 * 16; i++)
        for (int g = 0; g < groups; g += 4) {
            float four[4] = { 0 };
            if (i < n)
                _mm_storeu_ps(four, int_scales4(rows + (size_t)i * stride, g, groups));
            for (int k = 0; k < 4 && g + k < groups; k++)
                scale[(g + k) * INT_ROWS + i] = four[k];
        }
}

static void int_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                        float *acc, size_t lda, int d)
{
    float scale[INT_MAX_GROUPS * INT_ROWS], padded[INT_ROWS] = { 0 }, factor[INT_SLICE];
    int16_t w16[INT_SLICE * INT_ROWS];
    int_side weights[INT_SLICE], scales;
    uint8_t panel[INT_ROWS / 2 * 64];
    int count = (n + 15) / 16 * 16;

    if (r > INT_SLICE) {
        int_axpy_q8(param, w, ldw, INT_SLICE, rows, stride, n, acc, lda, d);
        int_axpy_q8(param, w + INT_SLICE * ldw, ldw, r - INT_SLICE, rows, stride, n, acc + INT_SLICE * lda, lda, d);
        return;
    }
    int_column_scales(rows, stride, n, d / 32 / INT_GROUP, scale);
    for (int j = 0; j < r; j++) {
        memcpy(padded, w + (size_t)j * ldw, (size_t)n * sizeof *padded);
        int_normalise(padded, count, 32767.0f, &weights[j]);
    }
    for (int b = 0; b < d / 32; b++) {
        if (b % INT_GROUP == 0) {
            int_normalise(scale + b / INT_GROUP * INT_ROWS, count, 1.0f, &scales);
            for (int j = 0; j < r; j++) {
                int_quantise(&weights[j], &scales, count, w16 + j * INT_ROWS);
                factor[j] = weights[j].max * scales.max * (INT_STEP / 32767.0f);
            }
        }
        int_panel(rows, stride, n, b, panel);
        int_axpy_block(w16, factor, r, panel, n, acc + 32 * b, lda);
    }
}
