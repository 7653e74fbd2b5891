/* integers_avx512.h: codes that are integers: converted, sixteen at a time, and multiplied by the scale. */
#include "formats/classes/integers_x86.h"

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const vf scale = vf_splat_f16(card_scale(row, b));
#if CARD_BITS == 8
    const __m128i lo = load128(card_codes(row, b)), hi = load128(card_codes(row, b) + 16);
#else
    const __m256i q = card_signed(row, b);
    const __m128i lo = _mm256_castsi256_si128(q), hi = _mm256_extracti128_si256(q, 1);
#endif
    v[0] = vf_mul(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(lo)));
    v[1] = vf_mul(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(hi)));
}

#if CARD_BITS != 4 && CARD_BITS != 8
#define card_encode NULL                   /* that of AVX2 */
#endif
