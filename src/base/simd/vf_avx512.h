/* base/simd/vf_avx512.h: the vocabulary of the AVX-512 kernels (F, BW, DQ, VL): 16 lanes.  See vf_avx2.h for its use.
 * Only *_avx512.c and *_avx512vnni.c include it.
 *
 * The bit rule of this ISA: lane l of a dot holds values l, l + 16, l + 32, ... in one FMA chain, ascending; lanes l
 * and l + 8 are added first, then the eight as on AVX2. */
#ifndef KVANT_BASE_VF_H
#define KVANT_BASE_VF_H

#include "base/simd/lanes_x86.h"

#define VF_ISA avx512
#define VF_LANES 16

typedef __m512 vf;
typedef __m512i vb;                        /* 64 bytes */

static inline __m512i load512(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vf vf_set1(float x)
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

/* a*b + c, one rounding */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* c - a*b, one rounding */
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
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

static inline vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a < b ? x : y, lane by lane; an unordered pair gives y. */
static inline vf vf_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

static inline float vf_reduce_add(vf x)
{
    return reduce_add8(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}

static inline float vf_reduce_max(vf x)
{
    return reduce_max8(_mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}

/* Lane sums of four vectors. */
static inline __m128 vf_sum4(vf a, vf b, vf c, vf d)
{
#define VF_FOLD(x) _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1))
    __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(VF_FOLD(a), VF_FOLD(b)), _mm256_hadd_ps(VF_FOLD(c), VF_FOLD(d)));

    return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}

/* Both halves of a and of b added: what VF_FOLD gives, side by side. */
static inline vf vf_fold2(vf a, vf b)
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}

/* Neighbours added, in each 128-bit lane: those of a, then those of b. */
static inline vf vf_pairs(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* Lane sums of a tile of 4 x 4, v[4j + k] to s[j*lds + k]: the sums of vf_sum4, 45 instructions for 16. */
static inline void vf_put44(float *s, size_t lds, const vf *v)
{
    vf a = vf_pairs(vf_pairs(vf_fold2(v[0], v[4]), vf_fold2(v[1], v[5])),
                    vf_pairs(vf_fold2(v[2], v[6]), vf_fold2(v[3], v[7])));
    vf b = vf_pairs(vf_pairs(vf_fold2(v[8], v[12]), vf_fold2(v[9], v[13])),
                    vf_pairs(vf_fold2(v[10], v[14]), vf_fold2(v[11], v[15])));
    vf t = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));

    _mm_storeu_ps(s, _mm512_castps512_ps128(t));
    _mm_storeu_ps(s + lds, _mm512_extractf32x4_ps(t, 1));
    _mm_storeu_ps(s + 2 * lds, _mm512_extractf32x4_ps(t, 2));
    _mm_storeu_ps(s + 3 * lds, _mm512_extractf32x4_ps(t, 3));
}

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

/* VF_LANES values at p, of any alignment, as f32; f16 is rounded to nearest even. */
static inline vf vf_load_f32(const void *p)
{
    return _mm512_loadu_ps(p);
}

static inline vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(load256(p));
}

static inline vf vf_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(p)), 16));
}

static inline void vf_store_f16(void *p, vf v)
{
    store256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* f16 at p in every lane */
static inline vf vf_splat_f16(const void *p)
{
    uint16_t h;

    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

/* 4 bytes at p, again and again */
static inline vb vb_splat4(const void *p)
{
    return _mm512_set1_epi32(load_dword(p));
}

/* 2^n for integral n in [-126, 127]. */
static inline vf vf_pow2(vf n)
{
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));

    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
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

#include "base/simd/vf_x86.h"
#include "base/simd/vf_math.h"

#endif
