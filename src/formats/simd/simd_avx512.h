/* simd_avx512.h: codes of the formats in AVX-512 registers, beside the vocabulary of base/simd/vf_avx512.h.  See
 * simd_avx2.h for its use.  Encoders and the integer path are those of AVX2. */
#ifndef KVANT_FORMATS_SIMD_AVX512_H
#define KVANT_FORMATS_SIMD_AVX512_H

#include "base/simd/vf_avx512.h"

#define VF_B 2                             /* vectors per block of 32 values */
#define VF_BLOCK(M) M(0) M(1)
#define VF_TILE44                          /* 32 registers: tiles of 16 accumulators, and vf_put44 */

/* Codes of 4 bits for vpermps, which reads the low four bits of an index: code j < 16 the low nibble of byte j, code
 * j + 16 the high one. */
static inline void codes4_halves(const uint8_t *qs, __m512i *lo, __m512i *hi)
{
    *lo = _mm512_cvtepu8_epi32(load128(qs));
    *hi = _mm512_srli_epi32(*lo, 4);
}

/* Code 2i the low nibble of byte i, 2i + 1 the high one. */
static inline __m512i pairs_sixteen(const uint8_t *qs)
{
    __m512i x = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(const void *)qs));
    return _mm512_or_si512(x, _mm512_slli_epi64(x, 28));
}

static inline void codes4_pairs(const uint8_t *qs, __m512i *lo, __m512i *hi)
{
    *lo = pairs_sixteen(qs);
    *hi = pairs_sixteen(qs + 8);
}

/* 8 lanes of the word at p, 8 lanes of the word at q */
static inline __m512i words(const uint8_t *p, const uint8_t *q)
{
    return _mm512_mask_set1_epi32(vb_splat4(p), 0xff00, load_dword(q));
}

/* 16 bytes S.EEEE.MMM (see simd_avx2.h). */
static inline vf vf_load_e4m3(const uint8_t *p)
{
    __m512i x = _mm512_cvtepu8_epi32(load128(p)), low = _mm512_and_si512(x, _mm512_set1_epi32(0x7f));
    __m512i normal = _mm512_add_epi32(_mm512_slli_epi32(low, 20), _mm512_set1_epi32(120 << 23));
    vf small = vf_mul(_mm512_cvtepi32_ps(low), vf_set1(0x1p-9f));
    vf v = _mm512_mask_mov_ps(_mm512_castsi512_ps(normal), _mm512_cmplt_epi32_mask(low, _mm512_set1_epi32(8)), small);
    v = _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(v),
                                                   _mm512_cmpeq_epi32_mask(low, _mm512_set1_epi32(0x7f)), 0x7fc00000));
    return _mm512_or_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(x, low), 24)));
}

/* 32 bytes S.EEEE.MMM, times 2^-8 (see simd_avx2.h). */
static inline void block_e4m3(const uint8_t *p, vf *v)
{
    const __m256i x = load256(p), low = _mm256_set1_epi8(0x7f);
    if (_mm256_cmpeq_epi8_mask(_mm256_and_si256(x, low), low)) {
#define E4M3_NAN(c) v[c] = vf_mul(vf_load_e4m3(p + VF_LANES * (c)), vf_set1(0x1p-8f));
        VF_BLOCK(E4M3_NAN)
        return;
    }
    __m512i a = _mm512_slli_epi16(_mm512_cvtepi8_epi16(x), 7);
    a = _mm512_and_si512(a, _mm512_set1_epi16((short)0xbf80));
    v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(a));
    v[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1));
}
#define VF_E4M3_BLOCK

#endif
