/* base/simd/vf_avx2.h: the vocabulary of the AVX2 kernels: vf, 8 lanes of f32, and vb, 32 bytes.  vf_avx512.h (16
 * lanes) and vf_neon.h (8 lanes as two registers) offer the same names, so that kernels of ops (*_body.h) and of
 * formats (formats/classes, formats/simd) are written once.  Only *_avx2.c include it.
 *
 * The bit rule of this ISA: lane l of a dot holds values l, l + 8, l + 16, ... in one FMA chain, ascending.  A kernel
 * then sums its lanes by one of two trees: vf_sum4 (formats) takes ((0+1)+(2+3)) + ((4+5)+(6+7)), vf_reduce_add (ops)
 * halves first.  Nothing else about a tile shows in its result. */
#ifndef KVANT_BASE_VF_H
#define KVANT_BASE_VF_H

#include "base/simd/lanes_x86.h"

#define VF_ISA avx2
#define VF_LANES 8

typedef __m256 vf;
typedef __m256i vi;                        /* 8 int32 */
typedef __m256i vb;                        /* 32 bytes */

static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vf vf_set1(float x)
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

/* a*b + c, one rounding */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* c - a*b, one rounding */
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
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

/* Nearest integer, as float. */
static inline vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a < b ? x : y, lane by lane; an unordered pair gives y. */
static inline vf vf_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

static inline float vf_reduce_add(vf x)
{
    return reduce_add8(x);
}

static inline float vf_reduce_max(vf x)
{
    return reduce_max8(x);
}

/* Computes the result of vhaddps; two shuffles and an add run twice as fast on Zen 3 (measured). */
static inline vf vf_hadd(vf a, vf b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/* Lane sums of four vectors. */
static inline __m128 vf_sum4(vf a, vf b, vf c, vf d)
{
    vf t = vf_hadd(vf_hadd(a, b), vf_hadd(c, d));

    return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}

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

/* VF_LANES values at p, of any alignment, as f32; f16 is rounded to nearest even. */
static inline vf vf_load_f32(const void *p)
{
    return _mm256_loadu_ps((const float *)p);
}

static inline vf vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(load128(p));
}

static inline vf vf_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

static inline void vf_store_f16(void *p, vf v)
{
    store128(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Round to nearest even; a NaN keeps its upper bits and becomes quiet: as f32_to_bf16. */
static inline void vf_store_bf16(void *p, vf v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));

    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    r = _mm256_srli_epi32(r, 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    store128(p, _mm256_castsi256_si128(r));
}

/* f16 at p in every lane */
static inline vf vf_splat_f16(const void *p)
{
    uint16_t h;

    memcpy(&h, p, sizeof h);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

/* 4 bytes at p, again and again */
static inline vb vb_splat4(const void *p)
{
    return _mm256_set1_epi32(load_dword(p));
}

/* 2^n for integral n in [-126, 127]. */
static inline vf vf_pow2(vf n)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));

    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
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

#include "base/simd/vf_x86.h"
#include "base/simd/vf_math.h"

#endif
