/* simd_encode_avx2.h: the AVX2 half of what the encoders need; simd_encode.h is the shared one. */
#ifndef KVANT_FORMATS_SIMD_ENCODE_AVX2_H
#define KVANT_FORMATS_SIMD_ENCODE_AVX2_H

#include "formats/encoders/put_x86.h"
#include "formats/simd/simd_avx2.h"

#define SEARCH_SCALE search_scale_avx2
#define SEARCH_UNBIASED search_unbiased_avx2

static inline vi vi_zero(void)
{
    return _mm256_setzero_si256();
}

static inline vi vi_load(const int *p)
{
    return load256(p);
}

static inline void vi_store(int *p, vi v)
{
    store256(p, v);
}

static inline vi vi_add(vi a, int b)
{
    return _mm256_add_epi32(a, _mm256_set1_epi32(b));
}

static inline vf vi_to_float(vi v)
{
    return _mm256_cvtepi32_ps(v);
}

/* Nearest integers, halves to even. */
static inline vi vf_to_int(vf v)
{
    return _mm256_cvtps_epi32(v);
}

static inline vf vf_of_bits(int bits)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32(bits));
}

static inline vi vf_to_bits(vf v)
{
    return _mm256_castps_si256(v);
}

/* A comparison gives -1 in lanes where it holds; count_*: code + 1 there. */
#define COUNT(code, v, t, how) _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(v, t, how)))

/* v >= t */
static inline vi count_ge(vi code, vf v, vf t)
{
    return COUNT(code, v, t, _CMP_GE_OQ);
}

/* !(v <= t) */
static inline vi count_not_le(vi code, vf v, vf t)
{
    return COUNT(code, v, t, _CMP_NLE_UQ);
}

/* !(v < t) */
static inline vi count_not_lt(vi code, vf v, vf t)
{
    return COUNT(code, v, t, _CMP_NLT_UQ);
}

/* t >= 0 ? k : -1 - k */
static inline vi mirror(vi k, vf t)
{
    return _mm256_xor_si256(k, _mm256_castps_si256(_mm256_cmp_ps(t, vf_zero(), _CMP_NGE_UQ)));
}

/* table[k], k < 8 */
static inline vf vf_lookup8(vf table, vi k)
{
    return _mm256_permutevar8x32_ps(table, k);
}

/* k < 8 ? lo[k] : hi[k - 8] */
static inline vf vf_lookup16(vf lo, vf hi, vi k)
{
    return _mm256_blendv_ps(vf_lookup8(lo, k), vf_lookup8(hi, k), _mm256_castsi256_ps(_mm256_slli_epi32(k, 28)));
}

/* Four sums in double. */
typedef __m256d vd;

static inline vd vd_zero(void)
{
    return _mm256_setzero_pd();
}

/* sum + (a - scale*v)^2 */
static inline vd vd_add_error(vd sum, double scale, vf v, vf a)
{
    vd s = _mm256_set1_pd(scale);
    vd e = _mm256_fnmadd_pd(s, _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                            _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
    vd f = _mm256_fnmadd_pd(s, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)),
                            _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
    return _mm256_fmadd_pd(e, e, _mm256_fmadd_pd(f, f, sum));
}

static inline double vd_sum(vd v)
{
    double t[4];
    _mm256_storeu_pd(t, v);
    return (t[0] + t[1]) + (t[2] + t[3]);
}

/* Butterfly steps h = 1, 2, 4 inside a vector: (a, b) -> (a + b, a - b) = partner + (+-self). */
static inline vf butterfly8(vf v)
{
    const vf odd1 = _mm256_setr_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f);
    const vf odd2 = _mm256_setr_ps(0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f);
    const vf odd4 = _mm256_setr_ps(0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f);
    v = _mm256_add_ps(_mm256_permute_ps(v, 0xb1), _mm256_xor_ps(v, odd1));
    v = _mm256_add_ps(_mm256_permute_ps(v, 0x4e), _mm256_xor_ps(v, odd2));
    return _mm256_add_ps(_mm256_permute2f128_ps(v, v, 1), _mm256_xor_ps(v, odd4));
}

/* v[k] lane j = x[8*j + k]: rows of 8 to columns; every even/odd pair, then every second pair, then halves */
static inline void transpose8(const float *x, vf *v)
{
#define TRANSPOSE_PAIR(i, j) vf e##i = _mm256_unpacklo_ps(vf_load(x + 8 * i), vf_load(x + 8 * j)), \
                                e##j = _mm256_unpackhi_ps(vf_load(x + 8 * i), vf_load(x + 8 * j));
    TRANSPOSE_PAIR(0, 1) TRANSPOSE_PAIR(2, 3) TRANSPOSE_PAIR(4, 5) TRANSPOSE_PAIR(6, 7)
    vf f0 = _mm256_shuffle_ps(e0, e2, 0x44), f1 = _mm256_shuffle_ps(e0, e2, 0xee);
    vf f2 = _mm256_shuffle_ps(e1, e3, 0x44), f3 = _mm256_shuffle_ps(e1, e3, 0xee);
    vf f4 = _mm256_shuffle_ps(e4, e6, 0x44), f5 = _mm256_shuffle_ps(e4, e6, 0xee);
    vf f6 = _mm256_shuffle_ps(e5, e7, 0x44), f7 = _mm256_shuffle_ps(e5, e7, 0xee);
    v[0] = _mm256_permute2f128_ps(f0, f4, 0x20);
    v[4] = _mm256_permute2f128_ps(f0, f4, 0x31);
    v[1] = _mm256_permute2f128_ps(f1, f5, 0x20);
    v[5] = _mm256_permute2f128_ps(f1, f5, 0x31);
    v[2] = _mm256_permute2f128_ps(f2, f6, 0x20);
    v[6] = _mm256_permute2f128_ps(f2, f6, 0x31);
    v[3] = _mm256_permute2f128_ps(f3, f7, 0x20);
    v[7] = _mm256_permute2f128_ps(f3, f7, 0x31);
}

/* 32 codes as bytes, natural order; of codes beyond a byte the lowest or highest one. */
static inline vb vb_pack(const vi *code)
{
    __m256i lo = _mm256_packs_epi32(code[0], code[1]), hi = _mm256_packs_epi32(code[2], code[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Integers nearest to v, halves away from zero, within +-limit; NaN gives 0. */
static inline vi round_away(vf v, float limit)
{
    const vf sign = _mm256_set1_ps(-0.0f);
    vf t = _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
       rest = _mm256_andnot_ps(sign, _mm256_sub_ps(v, t));
    vf one = _mm256_or_ps(_mm256_and_ps(v, sign), _mm256_set1_ps(1.0f));
    t = _mm256_add_ps(t, _mm256_and_ps(_mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ), one));
    t = _mm256_max_ps(_mm256_min_ps(t, _mm256_set1_ps(limit)), _mm256_set1_ps(-limit));
    return _mm256_cvttps_epi32(_mm256_and_ps(t, _mm256_cmp_ps(v, v, _CMP_ORD_Q)));
}

/* trunc(v + centre + 0.5) within 0 .. top, less centre; NaN gives 0. */
static inline vi round_centred(vf v, int centre, int top)
{
    vf t = _mm256_add_ps(v, _mm256_set1_ps((float)centre + 0.5f));
    t = _mm256_min_ps(_mm256_max_ps(t, _mm256_setzero_ps()), _mm256_set1_ps((float)top));
    t = _mm256_blendv_ps(t, _mm256_set1_ps((float)centre), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_sub_epi32(_mm256_cvttps_epi32(t), _mm256_set1_epi32(centre));
}

/* The first of 32 values (v: the same in vectors) of magnitude amax > 0. */
static inline float first_of(const float *x, const vf *v, float amax)
{
    unsigned mask = 0;
    for (int c = 0; c < 4; c++)
        mask |= (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(vf_abs(v[c]), vf_set1(amax), _CMP_EQ_OQ)) << (8 * c);
    int j = 0;
    while (!(mask >> j & 1))
        j++;
    return x[j];
}

#include "formats/encoders/simd_encode.h"

#endif
