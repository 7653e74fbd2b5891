/* integers_avx512vnni.h: signed bytes in the integer path: a code plus 128 is its byte with the top bit flipped. */
#include "formats/simd/simd_card.h"

static inline void ints_quad(const uint8_t *p, size_t stride, __m512i *x)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    x[0] = _mm512_xor_si512(keys_quad(p, stride), flip);
    x[1] = _mm512_xor_si512(keys_quad(p + 16, stride), flip);
}

#define INT_KEYS(row, stride, b, x) keys_bytes16(card_codes(row, b), stride, _mm512_set1_epi8((char)0x80), x)
#define INT_QUAD(row, stride, b, x) ints_quad(card_codes(row, b), stride, x)
#define INT_VALUE(j) (j)
