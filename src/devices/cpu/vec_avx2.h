/* vec_avx2.h: the 8-lane vectors that the kernel bodies (*_body.h) are written in.  vec_avx512.h has the same names
 * with 16 lanes, so a body is written once.  Included only by *_avx2.c. */
#ifndef KVANT_CPU_VEC_H
#define KVANT_CPU_VEC_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define VEC_ISA avx2
enum { VF_LANES = 8 };
typedef __m256 vf;

static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
/* The result is b if an operand is NaN. */
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
} /* a*b + c */
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
} /* c - a*b */

/* Lanes 0..n-1 from or to memory, 0 <= n <= 8; the others read as zero and stay unwritten.  Whole vectors take the
 * plain path: a masked store costs tens of cycles on Zen. */
static inline __m256i vf_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_load_n(const float *p, int n)
{
    return n == VF_LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vf_mask(n));
}

static inline void vf_store_n(float *p, vf x, int n)
{
    if (n == VF_LANES)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, vf_mask(n), x);
}

/* Sum of the lanes, always by the same tree. */
static inline float vf_sum(vf x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vf_hmax(vf x)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Nearest integer, as float. */
static inline vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for integral n in [-126, 127]. */
static inline vf vf_pow2(vf n)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));

    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}

/* a < b ? x : y, lane by lane; an unordered pair gives y. */
static inline vf vf_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

/* VF_LANES values from and to f16, round to nearest even. */
static inline vf vf_load_half(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void vf_store_half(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Lanes 2i and 2i+1 exchanged. */
static inline vf vf_swap_pairs(vf x)
{
    return _mm256_permute_ps(x, 0xb1);
}

/* Odd integral q ? x : y. */
static inline vf vf_quadrant_swap(vf q, vf x, vf y)
{
    __m256i odd = _mm256_slli_epi32(_mm256_cvtps_epi32(q), 31);

    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(odd));
}

/* x with its sign flipped where bit 1 of the integral q is set. */
static inline vf vf_quadrant_sign(vf q, vf x)
{
    __m256i sign = _mm256_and_si256(_mm256_slli_epi32(_mm256_cvtps_epi32(q), 30), _mm256_set1_epi32((int)0x80000000u));

    return _mm256_xor_ps(x, _mm256_castsi256_ps(sign));
}

#include "devices/cpu/vec_math.h"

#endif
