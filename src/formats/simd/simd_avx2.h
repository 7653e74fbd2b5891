/* simd_avx2.h: codes of the formats in AVX2 registers: nibbles, tables of 16, f16 and e4m3, beside the vocabulary of
 * base/simd/vf_avx2.h.  simd_avx512.h and simd_neon.h offer the names that simd_wide.h (f32, f16, bf16) and
 * simd_blocks.h (formats with blocks of 32 values) are written over. */
#ifndef KVANT_FORMATS_SIMD_AVX2_H
#define KVANT_FORMATS_SIMD_AVX2_H

#include "base/simd/vf_avx2.h"

#define VF_B 4                             /* vectors per block of 32 values */
#define VF_BLOCK(M) M(0) M(1) M(2) M(3)

static inline float f16_scalar(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

/* 32 codes, one per byte, in the order that vunpack* turns into natural order:
 * lane 0: 0-3, 8-11, 16-19, 24-27;  lane 1: 4-7, 12-15, 20-23, 28-31.
 * low_high: code j < 16 is the low nibble of byte j, code j + 16 the high one. */
static inline __m256i codes4_halves(const uint8_t *qs)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14,
                                            15, 4, 5, 6, 7, 12, 13, 14, 15);
    __m256i x = load128_twice(qs);
    x = _mm256_srlv_epi64(_mm256_shuffle_epi8(x, spread), _mm256_setr_epi64x(0, 4, 0, 4));
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

/* Puts these codes in natural order: low nibbles in lane 0, high ones in lane 1. */
static inline __m256i natural4_halves(const uint8_t *qs)
{
    return _mm256_and_si256(_mm256_srlv_epi64(load128_twice(qs), _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}

/* Code 2i is the low nibble of byte i, 2i + 1 the high one: in the order of vunpack*, ... */
static inline __m256i codes4_pairs(const uint8_t *qs)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1, 2, 3, 6, 7, 10,
                                            11, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i x = _mm256_shuffle_epi8(load128_twice(qs), spread);
    return _mm256_and_si256(_mm256_unpacklo_epi8(x, _mm256_srli_epi16(x, 4)), _mm256_set1_epi8(15));
}

/* ... and in natural order. */
static inline __m256i natural4_pairs(const uint8_t *qs)
{
    __m256i x = _mm256_cvtepu8_epi16(load128(qs));
    return _mm256_and_si256(_mm256_or_si256(x, _mm256_slli_epi16(x, 4)), _mm256_set1_epi8(15));
}

/* 32 f32 of a table of 16, looked up byte plane by byte plane: exact, and three times cheaper than vpermps on Zen 3.
 * codes: as from codes4_halves or codes4_pairs. */
static inline void lookup16_plain(const uint8_t plane[4][16], __m256i codes, vf *v)
{
    __m256i p0 = _mm256_shuffle_epi8(load128_twice(plane[0]), codes);
    __m256i p1 = _mm256_shuffle_epi8(load128_twice(plane[1]), codes);
    __m256i p2 = _mm256_shuffle_epi8(load128_twice(plane[2]), codes);
    __m256i p3 = _mm256_shuffle_epi8(load128_twice(plane[3]), codes);
    __m256i lo01 = _mm256_unpacklo_epi8(p0, p1), hi01 = _mm256_unpackhi_epi8(p0, p1);
    __m256i lo23 = _mm256_unpacklo_epi8(p2, p3), hi23 = _mm256_unpackhi_epi8(p2, p3);
    v[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(lo01, lo23));
    v[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(lo01, lo23));
    v[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(hi01, hi23));
    v[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(hi01, hi23));
}

/* As lookup16_plain, each value times scale. */
static inline void lookup16(const uint8_t plane[4][16], __m256i codes, vf scale, vf *v)
{
    lookup16_plain(plane, codes, v);
    v[0] = _mm256_mul_ps(scale, v[0]);
    v[1] = _mm256_mul_ps(scale, v[1]);
    v[2] = _mm256_mul_ps(scale, v[2]);
    v[3] = _mm256_mul_ps(scale, v[3]);
}

/* table[code], code < 16 */
static inline vb vb_lookup(const uint8_t table[16], vb codes)
{
    return _mm256_shuffle_epi8(load128_twice(table), codes);
}

/* fp16 bits of x, round to nearest even */
static inline uint16_t f16_bits(float x)
{
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT));
}

/* 8 bytes S.EEEE.MMM.  Normal codes get their exponent rebased by an addition; the eight subnormal magnitudes are
 * the integers times 2^-9 (a product of f32 denormals would do for both, at a hundred cycles each). */
static inline vf vf_load_e4m3(const uint8_t *p)
{
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)),
            low = _mm256_and_si256(x, _mm256_set1_epi32(0x7f));
    __m256i sign = _mm256_slli_epi32(_mm256_sub_epi32(x, low), 24);
    vf normal = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(low, 20), _mm256_set1_epi32(120 << 23)));
    vf small = vf_mul(_mm256_cvtepi32_ps(low), vf_set1(0x1p-9f));
    vf v = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), low)));
    vf nan = _mm256_castsi256_ps(_mm256_cmpeq_epi32(low, _mm256_set1_epi32(0x7f)));
    return _mm256_or_ps(_mm256_or_ps(v, nan), _mm256_castsi256_ps(sign));
}

/* 32 bytes S.EEEE.MMM, times 2^-8: moved to the exponent and mantissa of an f16 a code is that, subnormals included.
 * A block with a NaN code goes the longer way. */
static inline void block_e4m3(const uint8_t *p, vf *v)
{
    const __m256i x = load256(p), low = _mm256_set1_epi8(0x7f);
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(x, low), low))) {
#define E4M3_NAN(c) v[c] = vf_mul(vf_load_e4m3(p + VF_LANES * (c)), vf_set1(0x1p-8f));
        VF_BLOCK(E4M3_NAN)
        return;
    }
    const __m256i keep = _mm256_set1_epi16((short)0xbf80);
    __m256i a = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(x)), 7);
    __m256i b = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1)), 7);
    a = _mm256_and_si256(a, keep);
    b = _mm256_and_si256(b, keep);
    v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(a));
    v[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
    v[2] = _mm256_cvtph_ps(_mm256_castsi256_si128(b));
    v[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(b, 1));
}
#define VF_E4M3_BLOCK

#endif
