/* search_simd.h: the scale search of search.c, eight values at a time, over simd_encode_<isa>.h.
 *
 * All centroid tables are symmetric, so a code is found on |y|: half the thresholds, and a table that one permutation
 * reads.  (A value exactly on a negative threshold takes the outer code where the reference takes the inner one: both
 * are equally far.)  Books with an offset, or searches around a negative scale, are left to the reference. */
#include <math.h>

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

/* Index of the outer half nearest to t >= 0. */
static inline vi nearest7(const half_book *h, vf t)
{
    vi k = count_ge(vi_zero(), t, h->edge[0]);
#define NEAREST_STEP(m) k = count_ge(k, t, h->edge[m]);
    NEAREST_STEP(1) NEAREST_STEP(2) NEAREST_STEP(3) NEAREST_STEP(4) NEAREST_STEP(5) NEAREST_STEP(6)
    return k;
}

static inline vi nearest3(const half_book *h, vf t)
{
    vi k = count_ge(vi_zero(), t, h->edge[0]);
    NEAREST_STEP(1) NEAREST_STEP(2)
    return k;
}

static inline vf nearest_integer(const half_book *h, vf t)
{
    return vf_min(vf_max(vf_round(t), h->lo), h->hi);
}

static fit assign(const half_book *h, const float *y, int count, float s)
{
    vf inv = vf_set1(1.0f / s), step = vf_set1(s), rr = vf_zero(), rv = vf_zero(), vv = vf_zero();
    for (int i = 0; i < count; i += 8) {
        vf a = vf_load(y + i), v;
        if (h->edges == 7) {
            a = vf_abs(a);
            v = vf_lookup8(h->c, nearest7(h, vf_mul(a, inv)));
        } else if (h->edges == 3) {
            a = vf_abs(a);
            v = vf_lookup8(h->c, nearest3(h, vf_mul(a, inv)));
        } else {
            v = nearest_integer(h, vf_mul(a, inv));
        }
        vf r = vf_fnma(step, v, a);
        rr = vf_fma(r, r, rr);
        rv = vf_fma(r, v, rv);
        vv = vf_fma(v, v, vv);
    }
    float sums[4];
    vf_put4(sums, rr, rv, vv, vv);
    float more = sums[2] > 0.0f ? sums[1] / sums[2] : 0.0f;
    return (fit){ s + more, sums[0] - sums[1] * more };
}

/* Codes of all values at scale s. */
static void assign_codes(const half_book *h, const float *y, int count, float s, int *code)
{
    vf inv = vf_set1(1.0f / s);
    for (int i = 0; i < count; i += 8) {
        vf t = vf_mul(vf_load(y + i), inv);
        vi k;
        if (h->edges)
            k = vi_add(mirror(h->edges == 7 ? nearest7(h, vf_abs(t)) : nearest3(h, vf_abs(t)), t), h->edges + 1);
        else
            k = vf_to_int(nearest_integer(h, t));
        vi_store(code + i, k);
    }
}

static inline vf code_values(const search_book *b, const half_book *h, vi k)
{
    if (h->edges == 7)
        return vf_lookup16(vf_load(b->c), h->c, k);
    return h->edges == 3 ? vf_lookup8(vf_load(b->c), k) : vi_to_float(k);
}

/* sum (y - s*value)^2 in double */
static double code_error(const search_book *b, const half_book *h, const float *y, int count, const int *code, float s)
{
    vd sum = vd_zero();
    for (int i = 0; i < count; i += 8)
        sum = vd_add_error(sum, s, code_values(b, h, vi_load(code + i)), vf_load(y + i));
    return vd_sum(sum);
}

/* sum y*y and sum y*value */
static void code_products(const search_book *b, const half_book *h, const float *y, int count, const int *code, vf *yy,
                          vf *yv)
{
    *yy = *yv = vf_zero();
    for (int i = 0; i < count; i += 8) {
        vf a = vf_load(y + i), v = code_values(b, h, vi_load(code + i));
        *yy = vf_fma(a, a, *yy);
        *yv = vf_fma(a, v, *yv);
    }
}

static float half_value(uint16_t h)
{
    return f16_scalar((const uint8_t *)&h);
}

void SEARCH_SCALE(const search_book *book, const float *y, int count, float guess, int *code, uint16_t *scale)
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

uint16_t SEARCH_UNBIASED(const search_book *book, const float *y, int count, const int *code, uint16_t scale)
{
    half_book h;
    vf yy, yv;
    float sums[4];

    if (book->offset)
        return search_unbiased(book, y, count, code, scale);
    book_open(book, &h);
    code_products(book, &h, y, count, code, &yy, &yv);
    vf_put4(sums, yy, yv, yy, yv);
    return search_unbiased_scale((double)sums[0], (double)sums[1], scale);
}
