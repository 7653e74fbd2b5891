/* trellis_avx2.h: codes that are the nine bits of a stream at every third bit: 8 states lie in one 32-bit word at
 * byte 3t/8 (bits 0 to 29). */
#include "formats/simd/simd_trellis.h"

/* 8 values from the 3 bytes (and a bit) at p */
static inline vf trellis_chunk(const uint8_t *p, vf norm)
{
    int32_t w;
    memcpy(&w, p, sizeof w);
    __m256i state = _mm256_srlv_epi32(_mm256_set1_epi32(w), _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21));
    return vf_mul(_mm256_i32gather_ps(card_levels, _mm256_and_si256(state, _mm256_set1_epi32(511)), 4), norm);
}

/* The integer path looks up two values at once: 12 bits of the stream, a table of 8 KiB.  (AVX2 gathers are five
 * times slower.)  Bits 6p .. 6p+11 from p hold pair p. */
static const uint16_t pairs[4096] = { CARD_PAIRS7 };

static inline __m128i trellis_bytes16(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    __m128i x = _mm_cvtsi32_si128(pairs[w & 4095]);
#define TRELLIS_INSERT(k) x = _mm_insert_epi16(x, pairs[w >> (6 * (k)) & 4095], k);
    TRELLIS_INSERT(1) TRELLIS_INSERT(2) TRELLIS_INSERT(3) TRELLIS_INSERT(4) TRELLIS_INSERT(5) TRELLIS_INSERT(6)
    TRELLIS_INSERT(7)
    return x;
}

static inline __m256i card_bytes(const uint8_t *row, int b)
{
    const uint8_t *qs = card_codes(row, b);
    return _mm256_set_m128i(trellis_bytes16(qs + 6), trellis_bytes16(qs));
}

static inline __m256i card_signed(const uint8_t *row, int b)
{
    return _mm256_sub_epi8(card_bytes(row, b), _mm256_set1_epi8(CARD_OFFSET7));
}
