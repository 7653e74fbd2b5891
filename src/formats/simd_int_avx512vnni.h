/* simd_int_avx512vnni.h: the integer path of attention (prep_q8, score_q8, axpy_q8 of kvant/format.h) with
 * vpdpbusd: four products of an unsigned and a signed byte summed into a 32-bit lane.
 *
 * A format takes part by giving its codes as unsigned bytes u; a value is  scale * INT_STEP * (u - INT_OFFSET).
 * Before including:
 *   INT_KEYS(p, stride, b, x)    x[8]: block b (32 values) of 16 rows; lane k of x[c] = four values of row k
 *   INT_QUAD(p, stride, b, x)    x[2]: block b of 4 rows; lane i of x[h] = one value of the four rows
 *   INT_VALUE(j)                 which byte of a prepared query value j of a block is: 4c + byte in x[c] of INT_KEYS
 *   INT_COLUMNS                  not defined: x[0] of INT_QUAD holds values 0-15, x[1] 16-31; else, for values 0-15,
 *                                the lane of x[0] or 16 + the lane of x[1] (values 16-31: 8 lanes on)
 *   INT_SCALE(row, g)            address of the fp16 scale of group g
 *   INT_GROUP                    blocks of 32 per scale: 1 or 4
 *   INT_STEP, INT_OFFSET
 *   INT_DIGITS                   bytes per value of a query: 1, or 2 (hi * 256 + lo) for formats near 8 bits
 *   INT_MAX_ROW                  bytes of the longest row (512 values)
 *
 * score: lanes are keys, so no sum crosses lanes.  A page is unpacked once into L1, 128 bytes per 32 keys and four
 * values; queries come as broadcast dwords.  Per (query, key) of 128 values: 8 vpdpbusd lanes (16 with two digits), per
 * key about 10 instructions of unpacking.
 * axpy: lanes are columns; weight * scale becomes 16 bits, split into two signed digits: 16 vpdpbusd lanes per key.
 * Sums are exact integers up to one scale group, then f32 over ascending groups: nothing depends on tiles.  Error: half
 * a step of q (or w), and of a centroid where INT_STEP rounds it.  A query, weight or scale that is not finite gives
 * NaN. */
#include <math.h>
#include "formats/simd_rep.h"

enum { INT_ROWS = 64, INT_GROUPS = 16, INT_HEAD = 192, INT_WIDTH = 8 * INT_GROUP };

/* A prepared query: f32 factor; at byte 64 i32[16] and at byte 128 i32[16]: -INT_OFFSET * sum of group g, of the first
 * and of the second digit; at 192 i8[sdim] first digits, then i8[sdim] second ones. */
#if INT_DIGITS == 2
enum { INT_QUERY_MAX = 32512 };            /* 127 * 256: the first digit stays within a signed byte */
#else
enum { INT_QUERY_MAX = 127 };
#endif

/* Largest magnitude; NaN if a value is not finite. */
static inline float int_amax(const float *x, int n)
{
    __m512 top = _mm512_setzero_ps(), sum = top;
    for (int j = 0; j < n; j += 16) {
        __m512 a = _mm512_loadu_ps(x + j);
        top = _mm512_max_ps(_mm512_abs_ps(a), top);
        sum = _mm512_fmadd_ps(a, _mm512_setzero_ps(), sum);
    }
    return _mm512_reduce_max_ps(top) + _mm512_reduce_add_ps(sum);
}

static void int_prep_q8(const void *param, const float *qp, void *q8, int d)
{
    uint8_t *head = q8;
    float amax = int_amax(qp, d), inv = (float)INT_QUERY_MAX / amax, factor = amax * (INT_STEP / (float)INT_QUERY_MAX);
    int32_t init[2][INT_GROUPS] = { { 0 } };

    (void)param;
    if (!(inv <= 3.4e38f))                 /* zeros, or so small that the score is zero, or NaN: all in the factor */
        inv = 0.0f;
    for (int b = 0; b < d / 32; b++)
        for (int j = 0; j < 32; j++) {
            float x = qp[32 * b + j] * inv;
            int v = x == x ? (int)lrintf(x) : 0, hi = v, at = INT_HEAD + 32 * b + INT_VALUE(j);
            if (INT_DIGITS == 2) {
                hi = (v + 128) >> 8;
                head[at + d] = (uint8_t)(v - hi * 256);
                init[1][b / INT_GROUP] -= INT_OFFSET * (v - hi * 256);
            }
            head[at] = (uint8_t)hi;
            init[0][b / INT_GROUP] -= INT_OFFSET * hi;
        }
    memset(head, 0, 64);
    memcpy(head, &factor, sizeof factor);
    memcpy(head + 64, init, sizeof init);
}

/* What a page of keys is unpacked into. */
typedef struct int_page {
    uint8_t codes[KVANT_MAX_HEAD_DIM / 4 * INT_ROWS * 4];   /* [four values][key][4] */
    uint16_t half[INT_GROUPS * INT_ROWS];                   /* scale of key i, group g at g*64 + i */
} int_page;

/* The fp16 scales as they are, zeros up to a multiple of 16 rows.  Copied first and converted later: a vector load
 * right behind the small stores would wait for them. */
static void int_page_halves(const uint8_t *rows, size_t stride, int n, int groups, uint16_t *half)
{
    int i = 0;
#define INT_HALF(g) memcpy(half + (g) * INT_ROWS + i, INT_SCALE(rows, g), 2);
    for (; i < n && groups == 4; i++, rows += stride) {    /* a head of 128, scale per 32 */
        REP4(INT_HALF)
    }
    for (; i < n; i++, rows += stride)
        for (int g = 0; g < groups; g++) {
            INT_HALF(g)
        }
    for (; i % 16; i++)
        for (int g = 0; g < groups; g++)
            half[g * INT_ROWS + i] = 0;
}

static inline __m512 int_scale(const uint16_t *half, int g, int i)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(half + g * INT_ROWS + i)));
}

static inline void int_page_16(int_page *p, const uint8_t *rows, size_t stride, int i, int d)
{
    for (int b = 0; b < d / 32; b++) {
        __m512i x[8];
        uint8_t *out = p->codes + (size_t)(8 * b * INT_ROWS + i) * 4;
        INT_KEYS(rows, stride, b, x);
        for (int c = 0; c < 8; c++)
            _mm512_storeu_si512(out + (size_t)c * INT_ROWS * 4, x[c]);
    }
}

/* n rows at `rows` into whole sets of `set` rows: copies behind which zeros follow. */
static const uint8_t *int_last_rows(const uint8_t *rows, size_t stride, int n, size_t row_bytes, int set, uint8_t *copy)
{
    for (int i = 0; i < set; i++, copy += row_bytes) {
        if (i < n)
            memcpy(copy, rows + (size_t)i * stride, row_bytes);
        else
            memset(copy, 0, row_bytes);
    }
    return copy - (size_t)set * row_bytes;
}

static void int_page_open(int_page *p, const uint8_t *rows, size_t stride, int n, int d)
{
    uint8_t last[16 * INT_MAX_ROW];
    size_t row_bytes = (size_t)d * INT_MAX_ROW / KVANT_MAX_HEAD_DIM;
    int i = 0;

    int_page_halves(rows, stride, n, d / 32 / INT_GROUP, p->half);
    for (; i + 16 <= n; i += 16)
        int_page_16(p, rows + (size_t)i * stride, stride, i, d);
    if (i < n)
        int_page_16(p, int_last_rows(rows + (size_t)i * stride, stride, n - i, row_bytes, 16, last), row_bytes, i, d);
}

static inline __m512i int_load(const uint8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}

static inline __m512i int_dword(const uint8_t *p)
{
    int32_t w;
    memcpy(&w, p, sizeof w);
    return _mm512_set1_epi32(w);
}

/* A strip: the queries of a tile against keys of a page from `first` on. */
typedef struct int_strip {
    const int_page *page;
    const uint8_t *head;
    size_t ldq8;
    float *s;
    size_t lds;
    int d, n, first;
} int_strip;

/* j: query, k: set of 16 keys; a: sum of a group in integers, e: of the second digit, f: of all groups */
#define IS_QUERY(j) (t->head + (size_t)(j) * t->ldq8)
#define IS_ZERO(j, k) __m512 f##j##k = _mm512_setzero_ps();
#define IS_INIT(j, k) __m512i a##j##k = int_dword(IS_QUERY(j) + 64 + 4 * g);
#define IS_LOAD(k) __m512i x##k = int_load(codes + (size_t)c * INT_ROWS * 4 + 64 * (k));
#define IS_ADD(j, k) a##j##k = _mm512_dpbusd_epi32(a##j##k, x##k, y);
#if INT_DIGITS == 2
#define IS_INIT2(j, k) __m512i e##j##k = int_dword(IS_QUERY(j) + 128 + 4 * g);
#define IS_ADD2(j, k) e##j##k = _mm512_dpbusd_epi32(e##j##k, x##k, z);
#define IS_SUM(j, k) _mm512_add_epi32(_mm512_slli_epi32(a##j##k, 8), e##j##k)
#define IS_DIGIT2(j) __m512i z = int_dword(IS_QUERY(j) + INT_HEAD + t->d + 4 * c);
#else
#define IS_INIT2(j, k)
#define IS_ADD2(j, k)
#define IS_SUM(j, k) a##j##k
#define IS_DIGIT2(j)
#endif
#define IS_BOTH(j, k) IS_ADD(j, k) IS_ADD2(j, k)
#define IS_STEP1(j) { __m512i y = int_dword(IS_QUERY(j) + INT_HEAD + 4 * c); IS_DIGIT2(j) ROW1(IS_BOTH, j) }
#define IS_STEP2(j) { __m512i y = int_dword(IS_QUERY(j) + INT_HEAD + 4 * c); IS_DIGIT2(j) ROW2(IS_BOTH, j) }
#define IS_SCALE(k) __m512 v##k = int_scale(t->page->half, g, t->first + 16 * (k));
#define IS_GROUP(j, k) f##j##k = _mm512_fmadd_ps(_mm512_cvtepi32_ps(IS_SUM(j, k)), v##k, f##j##k);
#define IS_PUT(j, k) int_put(t, j, k, f##j##k);

/* Scores of query j for keys first + 16k and on, as many as there are. */
static inline void int_put(const int_strip *t, int j, int k, __m512 f)
{
    int at = t->first + 16 * k, left = t->n - at;
    float factor;
    memcpy(&factor, IS_QUERY(j), sizeof factor);
    __mmask16 m = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
    _mm512_mask_storeu_ps(t->s + (size_t)j * t->lds + at, m, _mm512_mul_ps(f, _mm512_set1_ps(factor)));
}

#define INT_TILE(Q, K)                                                                                      \
    static void int_score_##Q##x##K(const int_strip *t)                                                     \
    {                                                                                                       \
        const uint8_t *codes = t->page->codes + (size_t)t->first * 4;                                       \
        GRID##Q##x##K(IS_ZERO)                                                                              \
        for (int g = 0; g < t->d / 32 / INT_GROUP; g++) {                                                   \
            GRID##Q##x##K(IS_INIT)                                                                          \
            GRID##Q##x##K(IS_INIT2)                                                                         \
            for (int c = g * INT_WIDTH; c < (g + 1) * INT_WIDTH; c++) {                                     \
                REP##K(IS_LOAD)                                                                             \
                REP##Q(IS_STEP##K)                                                                          \
            }                                                                                               \
            REP##K(IS_SCALE)                                                                                \
            GRID##Q##x##K(IS_GROUP)                                                                         \
        }                                                                                                   \
        GRID##Q##x##K(IS_PUT)                                                                               \
    }

INT_TILE(1, 1)
INT_TILE(2, 1)
INT_TILE(4, 1)
INT_TILE(1, 2)
INT_TILE(2, 2)
INT_TILE(4, 2)

/* q = 1, 2 or 4 queries against all keys of the page. */
static void int_score_strip(int_strip *t, int q)
{
    static void (*const one[5])(const int_strip *) = { NULL, int_score_1x1, int_score_2x1, NULL, int_score_4x1 };
    static void (*const two[5])(const int_strip *) = { NULL, int_score_1x2, int_score_2x2, NULL, int_score_4x2 };

    for (t->first = 0; t->first + 16 < t->n; t->first += 32)
        two[q](t);
    if (t->first < t->n)
        one[q](t);
}

static void int_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride,
                         int n, float *s, size_t lds, int d)
{
    int_page page;

    (void)param;
    for (int i = 0; i < n; i += INT_ROWS) {
        int m = n - i < INT_ROWS ? n - i : INT_ROWS;
        int_page_open(&page, rows + (size_t)i * stride, stride, m, d);
        for (int j = 0, q; j < r; j += q) {
            q = r - j >= 4 ? 4 : r - j >= 2 ? 2 : 1;
            int_strip t = { .page = &page, .head = (const uint8_t *)q8 + (size_t)j * ldq8, .ldq8 = ldq8,
                            .s = s + (size_t)j * lds + i, .lds = lds, .d = d, .n = m };
            int_score_strip(&t, q);
        }
    }
}

/* ---- axpy ---- */

enum { INT_QUADS = INT_ROWS / 4, INT_SLICE = 4, INT_WEIGHT_MAX = 32512 };   /* 127 * 256 */

/* 64 factors of a product, scaled to at most `range`. */
typedef struct int_side {
    float v[INT_ROWS];
    float max;                             /* NaN if a value is not finite */
} int_side;

/* The weights of one query row for one group: digit[h] in sets of four rows, set q at 4*int_slot(q); and minus
 * INT_OFFSET times their sum. */
typedef struct int_weights {
    uint8_t digit[2][INT_ROWS];
    int32_t init;
    float factor;
} int_weights;

/* Packing twice inside 128-bit lanes leaves set q = 4z + l (rows 16z + 4l ..) at 4l + z. */
static inline int int_slot(int q)
{
    return q % 4 * 4 + q / 4;
}

static void int_normalise(float range, int_side *side)
{
    __m512 top = _mm512_setzero_ps(), sum = top;
    for (int i = 0; i < INT_ROWS; i += 16) {
        __m512 v = _mm512_loadu_ps(side->v + i);
        top = _mm512_max_ps(_mm512_abs_ps(v), top);
        sum = _mm512_fmadd_ps(v, _mm512_setzero_ps(), sum);
    }
    float max = _mm512_reduce_max_ps(top), f = range / max;
    if (!(f <= 3.4e38f))                   /* nothing but zeros, or nearly */
        f = 0.0f;
    for (int i = 0; i < INT_ROWS; i += 16)
        _mm512_storeu_ps(side->v + i, _mm512_mul_ps(_mm512_loadu_ps(side->v + i), _mm512_set1_ps(f)));
    side->max = max + _mm512_reduce_add_ps(sum);
}

static inline __m512i int_product(const int_side *w, const int_side *scale, int i)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(w->v + i), _mm512_loadu_ps(scale->v + i)));
}

/* 16-bit weights as v = hi * 256 + lo, both signed. */
static void int_quantise(const int_side *w, const int_side *scale, int_weights *out)
{
    __m512i a = _mm512_packs_epi32(int_product(w, scale, 0), int_product(w, scale, 16));
    __m512i b = _mm512_packs_epi32(int_product(w, scale, 32), int_product(w, scale, 48));
    const __m512i half = _mm512_set1_epi16(128), low = _mm512_set1_epi16(255), one = _mm512_set1_epi16(1);
    __m512i hi = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(a, half), 8),
                                    _mm512_srai_epi16(_mm512_add_epi16(b, half), 8));
    __m512i lo = _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low));
    __m512i sum = _mm512_dpwssd_epi32(_mm512_madd_epi16(a, one), b, one);
    _mm512_storeu_si512(out->digit[0], hi);
    _mm512_storeu_si512(out->digit[1], lo);
    out->init = -INT_OFFSET * _mm512_reduce_add_epi32(sum);
    out->factor = w->max * scale->max * (INT_STEP / (float)INT_WEIGHT_MAX);
}

/* Block b of n rows: panel[set][2][64]. */
static void int_panel(const uint8_t *rows, size_t stride, int n, size_t row_bytes, int b, uint8_t *panel)
{
    uint8_t last[4 * INT_MAX_ROW];
    for (int i = 0; i < n; i += 4, panel += 128) {
        __m512i x[2];
        const uint8_t *p = rows + (size_t)i * stride;
        if (i + 4 <= n) {
            INT_QUAD(p, stride, b, x);
        } else {
            p = int_last_rows(p, stride, n - i, row_bytes, 4, last);
            INT_QUAD(p, row_bytes, b, x);
        }
        _mm512_storeu_si512(panel, x[0]);
        _mm512_storeu_si512(panel + 64, x[1]);
    }
}

/* j: weight row, h: half of the columns; a: first digits, e: second ones */
#define IA_ZERO(j, h) __m512i a##j##h = _mm512_setzero_si512(), e##j##h = _mm512_setzero_si512();
#define IA_ADD(j, h)                                      \
    a##j##h = _mm512_dpbusd_epi32(a##j##h, x##h, y);      \
    e##j##h = _mm512_dpbusd_epi32(e##j##h, x##h, z);
#define IA_ROW(j)                                                                                           \
    {                                                                                                       \
        __m512i y = int_dword(w[j].digit[0] + at), z = int_dword(w[j].digit[1] + at);                       \
        ROW2(IA_ADD, j)                                                                                     \
    }
#define IA_PUT(j) int_put_columns(&w[j], a##j##0, e##j##0, a##j##1, e##j##1, acc + (j) * lda);

static inline __m512 int_columns(const int_weights *w, __m512i a, __m512i e)
{
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(a, 8), e);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(sum, _mm512_set1_epi32(w->init)));
}

static inline void int_put_columns(const int_weights *w, __m512i a0, __m512i e0, __m512i a1, __m512i e1, float *acc)
{
    __m512 x = int_columns(w, a0, e0), y = int_columns(w, a1, e1), f = _mm512_set1_ps(w->factor);
#ifdef INT_COLUMNS
    static const int32_t columns[16] = { INT_COLUMNS };
    const __m512i first = _mm512_loadu_si512(columns);
    __m512 u = x, v = y;
    x = _mm512_permutex2var_ps(u, first, v);
    y = _mm512_permutex2var_ps(u, _mm512_add_epi32(first, _mm512_set1_epi32(8)), v);
#endif
    _mm512_storeu_ps(acc, _mm512_fmadd_ps(x, f, _mm512_loadu_ps(acc)));
    _mm512_storeu_ps(acc + 16, _mm512_fmadd_ps(y, f, _mm512_loadu_ps(acc + 16)));
}

/* Q weight rows x 32 columns. */
#define INT_AXPY_TILE(Q)                                                                                    \
    static void int_axpy_##Q(const int_weights *w, const uint8_t *panel, int sets, float *acc, size_t lda)  \
    {                                                                                                       \
        GRID##Q##x2(IA_ZERO)                                                                                \
        (void)lda;                                                                                          \
        for (int q = 0; q < sets; q++, panel += 128) {                                                      \
            __m512i x0 = int_load(panel), x1 = int_load(panel + 64);                                        \
            int at = 4 * int_slot(q);                                                                       \
            REP##Q(IA_ROW)                                                                                  \
        }                                                                                                   \
        REP##Q(IA_PUT)                                                                                      \
    }

INT_AXPY_TILE(1)
INT_AXPY_TILE(2)
INT_AXPY_TILE(3)
INT_AXPY_TILE(4)

/* At most INT_SLICE weight rows. */
static void int_axpy_slice(const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n, float *acc,
                           size_t lda, int d)
{
    static void (*const tiles[INT_SLICE + 1])(const int_weights *, const uint8_t *, int, float *, size_t) = {
        NULL, int_axpy_1, int_axpy_2, int_axpy_3, int_axpy_4
    };
    int_side side[INT_SLICE], scale;
    int_weights weights[INT_SLICE];
    uint8_t panel[INT_QUADS * 128];
    uint16_t half[INT_GROUPS * INT_ROWS];
    size_t row_bytes = (size_t)d * INT_MAX_ROW / KVANT_MAX_HEAD_DIM;

    int_page_halves(rows, stride, n, d / 32 / INT_GROUP, half);
    for (int j = 0; j < r; j++) {
        memset(side[j].v, 0, sizeof side[j].v);
        memcpy(side[j].v, w + (size_t)j * ldw, (size_t)n * sizeof *w);
        int_normalise((float)INT_WEIGHT_MAX, &side[j]);
    }
    memset(&scale, 0, sizeof scale);
    for (int b = 0; b < d / 32; b++) {
        if (b % INT_GROUP == 0) {
            for (int i = 0; i < n; i += 16)
                _mm512_storeu_ps(scale.v + i, int_scale(half, b / INT_GROUP, i));
            int_normalise(1.0f, &scale);
            for (int j = 0; j < r; j++)
                int_quantise(&side[j], &scale, &weights[j]);
        }
        int_panel(rows, stride, n, row_bytes, b, panel);
        tiles[r](weights, panel, (n + 3) / 4, acc + 32 * b, lda);
    }
}

static void int_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                        float *acc, size_t lda, int d)
{
    (void)param;
    for (int j = 0, q; j < r; j += q) {
        q = r - j < INT_SLICE ? r - j : INT_SLICE;
        int_axpy_slice(w + (size_t)j * ldw, ldw, q, rows, stride, n, acc + (size_t)j * lda, lda, d);
    }
}
