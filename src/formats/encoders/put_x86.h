/* put_x86.h: the codes of a block of 32 values, as bytes in natural order, to their places; for AVX2 and the rungs
 * above. */
#ifndef KVANT_FORMATS_PUT_X86_H
#define KVANT_FORMATS_PUT_X86_H

#include "base/simd/lanes_x86.h"
#include "formats/encoders/put_stream.h"

/* 4 bits: code j and j + 16 in byte j */
static inline void put_halves(uint8_t *qs, __m256i code)
{
    __m128i lo = _mm256_castsi256_si128(code), hi = _mm256_extracti128_si256(code, 1);
    store128(qs, _mm_or_si128(lo, _mm_slli_epi16(hi, 4)));
}

/* 4 bits: code 2i and 2i + 1 in byte i */
static inline void put_pairs(uint8_t *qs, __m256i code)
{
    __m256i x = _mm256_maddubs_epi16(code, _mm256_set1_epi16(0x1001));
    x = _mm256_permute4x64_epi64(_mm256_packus_epi16(x, x), 0x08);
    store128(qs, _mm256_castsi256_si128(x));
}

/* 3 bits: code j at bits 3j..3j+2 */
static inline void put_stream3(uint8_t *qs, __m256i code)
{
    const __m128i take = _mm_setr_epi8(0, 1, 2, 8, 9, 10, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i x = _mm256_maddubs_epi16(code, _mm256_set1_epi16(0x0801));      /* pairs: 6 bits */
    x = _mm256_madd_epi16(x, _mm256_set1_epi32(0x00400001));                /* fours: 12 bits */
    x = _mm256_or_si256(x, _mm256_srli_epi64(x, 20));                       /* eights: 24 bits */
    x = _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(take));
    uint64_t lo = (uint64_t)_mm256_extract_epi64(x, 0), hi = (uint64_t)_mm256_extract_epi64(x, 2);
    memcpy(qs, &lo, 6);
    memcpy(qs + 6, &hi, 6);
}

/* 3 bits: the low two, four to a byte; behind them the high ones, eight to a byte */
static inline void put_planes(uint8_t *qs, __m256i code)
{
    int32_t high = _mm256_movemask_epi8(_mm256_slli_epi16(code, 5));
    __m256i x = _mm256_and_si256(code, _mm256_set1_epi8(3));
    x = _mm256_maddubs_epi16(x, _mm256_set1_epi16(0x0401));
    x = _mm256_madd_epi16(x, _mm256_set1_epi32(0x00100001));
    x = _mm256_shuffle_epi8(x, _mm256_set1_epi32(0x0c080400));
    int32_t lo = _mm256_extract_epi32(x, 0), hi = _mm256_extract_epi32(x, 4);
    memcpy(qs, &lo, sizeof lo);
    memcpy(qs + 4, &hi, sizeof hi);
    memcpy(qs + 8, &high, sizeof high);
}

static inline void put_bytes(uint8_t *qs, __m256i code)
{
    store256(qs, code);
}

#if CARD_BITS >= 5 && CARD_BITS <= 7
static inline void put_stream(uint8_t *qs, __m256i code)
{
    uint8_t bytes[32];
    put_bytes(bytes, code);
    put_stream_bytes(qs, bytes, CARD_BITS);
}
#endif

#endif
