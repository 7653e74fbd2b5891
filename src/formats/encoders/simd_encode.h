/* simd_encode.h: what the encoders share over eight lanes of vf_<isa>.h: rotations, thresholds, the search of `best`.
 * simd_encode_<isa>.h includes it after its own half: vi, count_*, butterfly8, put_* and SEARCH_SCALE.
 * Rotations do the reference's operations in the reference's order, so they equal it bit for bit. */
#include <math.h>
#include "base/half.h"
#include "formats/encoders/search.h"

/* As search_scale.  Sums are taken in another order, so a near tie of two scales may be decided otherwise. */
void SEARCH_SCALE(const search_book *book, const float *y, int count, float guess, int *code, uint16_t *scale);

/* As search_unbiased, summed in f32. */
uint16_t SEARCH_UNBIASED(const search_book *book, const float *y, int count, const int *code, uint16_t scale);

/* Butterfly of 32 values. */
static inline void butterfly32(vf *v)
{
    vf a = butterfly8(v[0]), b = butterfly8(v[1]), c = butterfly8(v[2]), d = butterfly8(v[3]);
    vf ab = vf_add(a, b), ba = vf_sub(a, b), cd = vf_add(c, d), dc = vf_sub(c, d);
    v[0] = vf_add(ab, cd);
    v[1] = vf_add(ba, dc);
    v[2] = vf_sub(ab, cd);
    v[3] = vf_sub(ba, dc);
}

/* Butterfly of 128 values in memory. */
static inline void butterfly128(float *x)
{
    for (int c = 0; c < 128; c += 32) {
        vf v[4] = { vf_load(x + c), vf_load(x + c + 8), vf_load(x + c + 16), vf_load(x + c + 24) };
        butterfly32(v);
        for (int k = 0; k < 4; k++)
            vf_store(x + c + 8 * k, v[k]);
    }
    for (int c = 0; c < 32; c += 8) {      /* steps 32 and 64 */
        vf a = vf_load(x + c), b = vf_load(x + c + 32), d = vf_load(x + c + 64), e = vf_load(x + c + 96);
        vf ab = vf_add(a, b), ba = vf_sub(a, b), de = vf_add(d, e), ed = vf_sub(d, e);
        vf_store(x + c, vf_add(ab, de));
        vf_store(x + c + 32, vf_add(ba, ed));
        vf_store(x + c + 64, vf_sub(ab, de));
        vf_store(x + c + 96, vf_sub(ba, ed));
    }
}

static inline void load32(const float *x, vf *v)
{
    for (int c = 0; c < 4; c++)
        v[c] = vf_load(x + 8 * c);
}

static inline void store32(float *x, const vf *v)
{
    for (int c = 0; c < 4; c++)
        vf_store(x + 8 * c, v[c]);
}

/* v[c] *= table[8c..] */
static inline void mul32(vf *v, const float *table)
{
    for (int c = 0; c < 4; c++)
        v[c] = vf_mul(v[c], vf_load(table + 8 * c));
}

static inline void scale32(vf *v, float k)
{
    for (int c = 0; c < 4; c++)
        v[c] = vf_mul(v[c], vf_set1(k));
}

/* max |v|; a NaN is passed over */
static inline float largest32(const vf *v)
{
    vf m = vf_zero();
    for (int c = 0; c < 4; c++)
        m = vf_max(vf_abs(v[c]), m);
    return vf_reduce_max(m);
}

/* s + x[0] + x[1] + ... in this order, as the references sum */
static inline float sum_ascending(const float *x, int n, float s)
{
    for (int j = 0; j < n; j++)
        s += x[j];
    return s;
}

/* Number of limits k with !(v <= limit[k]); NaN counts all. */
static inline vi count_above(vf v, const float *limit, int n)
{
    vi code = vi_zero();
#pragma GCC unroll 16
    for (int k = 0; k < n; k++)
        code = count_not_le(code, v, vf_set1(limit[k]));
    return code;
}

/* Number of midpoints k with !(v < mid[k]); NaN counts all. */
static inline vi count_from(vf v, const float *mid, int n)
{
    vi code = vi_zero();
#pragma GCC unroll 16
    for (int k = 0; k < n; k++)
        code = count_not_lt(code, v, vf_set1(mid[k]));
    return code;
}

/* search_best around `guess`, and around -guess if `signs` is 2, on codes held in vectors (8 per vector);
 * y f32[8*vectors]. */
static inline void refine(const search_book *book, const float *y, int vectors, float guess, int signs, vi *code,
                          uint16_t *scale)
{
    int k[SEARCH_MAX];
    for (int c = 0; c < vectors; c++)
        vi_store(k + 8 * c, code[c]);
    SEARCH_SCALE(book, y, 8 * vectors, guess, k, scale);
    if (signs == 2)
        SEARCH_SCALE(book, y, 8 * vectors, -guess, k, scale);
    *scale = SEARCH_UNBIASED(book, y, 8 * vectors, k, *scale);
    for (int c = 0; c < vectors; c++)
        code[c] = vi_load(k + 8 * c);
}
