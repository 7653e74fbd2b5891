/* integers_avx2.h: codes that are integers: converted, eight at a time, and multiplied by the scale. */
#include "formats/classes/integers_x86.h"

static inline vf ints_eight(__m128i q, vf scale)
{
    return _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
}

#if CARD_BITS == 4 && !defined CARD_PAIRS && CARD_OFFSET7 == 8
/* d*(n - 8), not fma(d, n, -8d), which would make NaN of every code where d is infinite.  A code xor 8 is n - 8 in 4
 * signed bits; at the top of a 32-bit lane it counts 2^28, which d*2^-28 takes back exactly. */
static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    /* byte j of lane 0 / 4 + j of lane 1 -> top byte of 32-bit lanes */
    const __m256i first = _mm256_setr_epi8(-1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1, 4,
                                           -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7);
    const __m256i second = _mm256_setr_epi8(-1, -1, -1, 8, -1, -1, -1, 9, -1, -1, -1, 10, -1, -1, -1, 11, -1, -1, -1,
                                            12, -1, -1, -1, 13, -1, -1, -1, 14, -1, -1, -1, 15);
    const __m256i high = _mm256_set1_epi32((int)0xf0000000u);
    vf d = _mm256_mul_ps(vf_splat_f16(card_scale(row, b)), _mm256_set1_ps(0x1p-28f));
    __m256i x = _mm256_xor_si256(load128_twice(card_codes(row, b)), _mm256_set1_epi8((char)0x88));
    __m256i a = _mm256_shuffle_epi8(x, first), c = _mm256_shuffle_epi8(x, second);

    v[0] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_slli_epi32(a, 4)));
    v[1] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_slli_epi32(c, 4)));
    v[2] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_and_si256(a, high)));
    v[3] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_and_si256(c, high)));
}
#else
static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const vf scale = vf_splat_f16(card_scale(row, b));
#if CARD_BITS == 8
    const uint8_t *q = card_codes(row, b);
#define INTS_CHUNK(c) v[c] = ints_eight(_mm_loadl_epi64((const __m128i *)(const void *)(q + 8 * (c))), scale);
    VF_BLOCK(INTS_CHUNK)
#else
    const __m256i q = card_signed(row, b);
    const __m128i lo = _mm256_castsi256_si128(q), hi = _mm256_extracti128_si256(q, 1);
    v[0] = ints_eight(lo, scale);
    v[1] = ints_eight(_mm_srli_si128(lo, 8), scale);
    v[2] = ints_eight(hi, scale);
    v[3] = ints_eight(_mm_srli_si128(hi, 8), scale);
#endif
}
#endif
