/* vec_avx512.h: the 16-lane vectors of the kernel bodies; the names of vec_avx2.h.  Included only by *_avx512.c. */
#ifndef KVANT_CPU_VEC_H
#define KVANT_CPU_VEC_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define VEC_ISA avx512
enum { VF_LANES = 16 };
typedef __m512 vf;

static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
/* The result is b if an operand is NaN. */
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
} /* a*b + c */
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
} /* c - a*b */

/* Lanes 0..n-1 from or to memory, 0 <= n <= 16; the others read as zero and stay unwritten. */
static inline __mmask16 vf_mask(int n)
{
    return (__mmask16)((1u << n) - 1u);
}
static inline vf vf_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(vf_mask(n), p);
}
static inline void vf_store_n(float *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, vf_mask(n), x);
}

/* Sum of the lanes, always by the same tree: halves first, then as vec_avx2.h. */
static inline float vf_sum(vf x)
{
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vf_hmax(vf x)
{
    __m256 y = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for integral n in [-126, 127]. */
static inline vf vf_pow2(vf n)
{
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));

    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}

/* a < b ? x : y, lane by lane; an unordered pair gives y. */
static inline vf vf_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

static inline vf vf_load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void vf_store_half(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Lanes 2i and 2i+1 exchanged. */
static inline vf vf_swap_pairs(vf x)
{
    return _mm512_permute_ps(x, 0xb1);
}

/* Odd integral q ? x : y. */
static inline vf vf_quadrant_swap(vf q, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(_mm512_cvtps_epi32(q), _mm512_set1_epi32(1)), y, x);
}

/* x with its sign flipped where bit 1 of the integral q is set. */
static inline vf vf_quadrant_sign(vf q, vf x)
{
    __m512i sign = _mm512_and_si512(_mm512_slli_epi32(_mm512_cvtps_epi32(q), 30), _mm512_set1_epi32((int)0x80000000u));

    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), sign));
}

#include "devices/cpu/vec_math.h"

#endif
