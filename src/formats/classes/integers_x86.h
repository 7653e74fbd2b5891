/* integers_x86.h: codes that are integers, as 32 bytes in natural order: bytes themselves, nibbles, or a stream of 5
 * to 7 bits. */
#include "formats/simd/simd_card.h"

#if CARD_BITS == 8
static inline __m256i card_signed(const uint8_t *row, int b)
{
    return load256(card_codes(row, b));
}

static inline __m256i card_bytes(const uint8_t *row, int b)
{
    return _mm256_xor_si256(card_signed(row, b), _mm256_set1_epi8(-128));
}
#else
#if CARD_BITS == 4
static inline __m256i card_bytes(const uint8_t *row, int b)
{
    return CARD_OF(natural4)(card_codes(row, b));
}
#else
#include "formats/classes/stream_windows.h"

/* 16 codes: a multiplication moves a code to the top of its 16 bits, a shift down again. */
static inline __m256i stream_sixteen(const uint8_t *p, const uint8_t window[32])
{
    static const int16_t up[16] = { STREAM_LIST16(STREAM_UP, 16) };
    __m256i x = load128_twice(p);
    x = _mm256_shuffle_epi8(x, load256(window));
    x = _mm256_mullo_epi16(x, load256(up));
    return _mm256_srli_epi16(x, 16 - CARD_BITS);
}

static inline __m256i card_bytes(const uint8_t *row, int b)
{
    const uint8_t *qs = card_codes(row, b);
    __m256i lo = stream_sixteen(qs, stream_window[0]);
    __m256i hi = stream_sixteen(qs + STREAM_HALF - STREAM_LATE, stream_window[1]);
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(lo, hi), 0xd8);
}
#endif

static inline __m256i card_signed(const uint8_t *row, int b)
{
    return _mm256_sub_epi8(card_bytes(row, b), _mm256_set1_epi8(CARD_OFFSET7));
}
#endif
