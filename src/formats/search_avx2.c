/* search_avx2.c: the scale search of search.c, eight values at a time.
 *
 * All centroid tables are symmetric, so a code is found on |y|: half the thresholds, and a table that one permutation
 * reads.  (A value exactly on a negative threshold takes the outer code where the reference takes the inner one: both
 * are equally far.)  Books with an offset, or searches around a negative scale, are left to the reference. */
#include "formats/search_avx2.h"

#include <math.h>
#include "formats/simd_avx2.h"

/* The nearest codes at some scale, refitted: the scale of least squares for them, and the error it leaves.  Both come
 * from the residuals, whose sums keep their precision in f32 (sums of y*v would drown the error of 8 bits). */
typedef struct fit {
    float scale, error;
} fit;

/* The outer half of a symmetric book, and its thresholds; or the bounds of an integer book. */
typedef struct half_book {
    vf c, edge[7], lo, hi;
    int edges;                             /* 7, 3, or 0: integers */
} half_book;

static void book_open(const search_book *b, half_book *h)
{
    float c[8] = { 0 };
    h->edges = 0;
    h->lo = vf_set1((float)b->lo);
    h->hi = vf_set1((float)b->hi);
    h->c = vf_zero();
    if (!b->c)
        return;
    h->edges = b->n / 2 - 1;
    memcpy(c, b->c + b->n / 2, (size_t)(b->n / 2) * sizeof *c);
    h->c = vf_load(c);
    for (int m = 0; m < h->edges; m++)
        h->edge[m] = vf_set1(0.5f * (c[m] + c[m + 1]));
}

static inline vf magnitude(vf v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* Index of the outer half nearest to t >= 0. */
static inline __m256i nearest7(const half_book *h, vf t)
{
    __m256i k = _mm256_castps_si256(_mm256_cmp_ps(t, h->edge[0], _CMP_GE_OQ));
#define NEAREST_STEP(m) k = _mm256_add_epi32(k, _mm256_castps_si256(_mm256_cmp_ps(t, h->edge[m], _CMP_GE_OQ)));
    NEAREST_STEP(1) NEAREST_STEP(2) NEAREST_STEP(3) NEAREST_STEP(4) NEAREST_STEP(5) NEAREST_STEP(6)
    return _mm256_sub_epi32(_mm256_setzero_si256(), k);
}

static inline __m256i nearest3(const half_book *h, vf t)
{
    __m256i k = _mm256_castps_si256(_mm256_cmp_ps(t, h->edge[0], _CMP_GE_OQ));
    NEAREST_STEP(1) NEAREST_STEP(2)
    return _mm256_sub_epi32(_mm256_setzero_si256(), k);
}

static inline vf nearest_integer(const half_book *h, vf t)
{
    t = _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_min_ps(_mm256_max_ps(t, h->lo), h->hi);
}

static fit assign(const half_book *h, const float *y, int count, float s)
{
    vf inv = vf_set1(1.0f / s), step = vf_set1(s), rr = vf_zero(), rv = vf_zero(), vv = vf_zero();
    for (int i = 0; i < count; i += 8) {
        vf a = vf_load(y + i), v;
        if (h->edges == 7) {
            a = magnitude(a);
            v = _mm256_permutevar8x32_ps(h->c, nearest7(h, vf_mul(a, inv)));
        } else if (h->edges == 3) {
            a = magnitude(a);
            v = _mm256_permutevar8x32_ps(h->c, nearest3(h, vf_mul(a, inv)));
        } else {
            v = nearest_integer(h, vf_mul(a, inv));
        }
        vf r = _mm256_fnmadd_ps(step, v, a);
        rr = vf_fma(r, r, rr);
        rv = vf_fma(r, v, rv);
        vv = vf_fma(v, v, vv);
    }
    float sums[4];
    _mm_storeu_ps(sums, vf_sum4(rr, rv, vv, vv));
    float more = sums[2] > 0.0f ? sums[1] / sums[2] : 0.0f;
    return (fit){ s + more, sums[0] - sums[1] * more };
}

/* Codes of all values at scale s. */
static void assign_codes(const half_book *h, const float *y, int count, float s, int *code)
{
    vf inv = vf_set1(1.0f / s);
    for (int i = 0; i < count; i += 8) {
        vf t = vf_mul(vf_load(y + i), inv);
        __m256i k;
        if (h->edges) {
            k = h->edges == 7 ? nearest7(h, magnitude(t)) : nearest3(h, magnitude(t));
            __m256i below = _mm256_castps_si256(_mm256_cmp_ps(t, vf_zero(), _CMP_NGE_UQ));
            k = _mm256_add_epi32(_mm256_xor_si256(k, below), _mm256_set1_epi32(h->edges + 1));     /* ~k is -1 - k */
        } else {
            k = _mm256_cvtps_epi32(nearest_integer(h, t));
        }
        _mm256_storeu_si256((__m256i *)(void *)(code + i), k);
    }
}

/* sum (y - s*value)^2 in double */
static double code_error(const search_book *b, const half_book *h, const float *y, int count, const int *code, float s)
{
    __m256d sum = _mm256_setzero_pd(), scale = _mm256_set1_pd(s);
    for (int i = 0; i < count; i += 8) {
        __m256i k = _mm256_loadu_si256((const __m256i *)(const void *)(code + i));
        vf v = _mm256_cvtepi32_ps(k), a = vf_load(y + i);
        if (h->edges == 7) {
            vf lo = _mm256_permutevar8x32_ps(vf_load(b->c), k), hi = _mm256_permutevar8x32_ps(h->c, k);
            v = _mm256_blendv_ps(lo, hi, _mm256_castsi256_ps(_mm256_slli_epi32(k, 28)));
        } else if (h->edges == 3) {
            v = _mm256_permutevar8x32_ps(vf_load(b->c), k);
        }
        __m256d e = _mm256_fnmadd_pd(scale, _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                                     _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
        __m256d f = _mm256_fnmadd_pd(scale, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)),
                                     _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
        sum = _mm256_fmadd_pd(e, e, _mm256_fmadd_pd(f, f, sum));
    }
    double t[4];
    _mm256_storeu_pd(t, sum);
    return (t[0] + t[1]) + (t[2] + t[3]);
}

static float half_value(uint16_t h)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

void search_scale_avx2(const search_book *book, const float *y, int count, float guess, int *code, uint16_t *scale)
{
    static const float factors[] = { 0.78f, 0.84f, 0.9f, 0.96f, 1.02f, 1.09f, 1.17f };   /* as search.c */
    half_book h;
    int found[SEARCH_MAX];
    fit best = { 0.0f, INFINITY };

    if (book->offset || (book->c && (guess < 0.0f || (book->n != 16 && book->n != 8)))) {
        search_scale(book, y, count, guess, code, scale);
        return;
    }
    if (!(fabsf(guess) > 0.0f && fabsf(guess) <= 1e30f))
        return;
    book_open(book, &h);
    for (unsigned i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        fit f = assign(&h, y, count, guess * factors[i]);
        if (f.error < best.error)
            best = f;
    }
    best = assign(&h, y, count, half_value(search_storable(best.scale)));
    uint16_t stored = search_storable(best.scale);
    assign_codes(&h, y, count, half_value(stored), found);
    double before = code_error(book, &h, y, count, code, half_value(*scale));
    double after = code_error(book, &h, y, count, found, half_value(stored));
    if (after < before || (!isfinite(before) && isfinite(after))) {
        *scale = stored;
        memcpy(code, found, (size_t)count * sizeof *code);
    }
}
