/* three_bits_avx512.h: codes of 3 bits and 8 levels (three_bits_avx2.h has the two orders). */
#include "formats/simd/simd_card.h"

/* twice, so that the fourth bit of an index does not matter */
static const float card_levels[16] = { CARD_LEVELS, CARD_LEVELS };

static inline void decode_stream3(const uint8_t *qs, vf scale, vf *v)
{
    const __m512i shift = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 0, 3, 6, 9, 12, 15, 18, 21);
    /* bytes 9 to 11 are the last: their word starts one byte early */
    const __m512i shift8 = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 8, 11, 14, 17, 20, 23, 26, 29);
    const vf table = vf_mul(scale, vf_load(card_levels));
    v[0] = _mm512_permutexvar_ps(_mm512_srlv_epi32(words(qs, qs + 3), shift), table);
    v[1] = _mm512_permutexvar_ps(_mm512_srlv_epi32(words(qs + 6, qs + 8), shift8), table);
}

/* Two tables of four levels, repeated over a register; the high bits are the mask between them. */
static inline void decode_planes(const uint8_t *qs, vf scale, vf *v)
{
    const __m512i twos = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vf low = vf_mul(scale, _mm512_broadcast_f32x4(_mm_loadu_ps(card_levels)));
    const vf high = vf_mul(scale, _mm512_broadcast_f32x4(_mm_loadu_ps(card_levels + 4)));
    uint32_t signs;
    memcpy(&signs, qs + 8, sizeof signs);
    __m512i a = _mm512_srlv_epi32(words(qs, qs), twos), c = _mm512_srlv_epi32(words(qs + 4, qs + 4), twos);
    v[0] = _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(a, low), (__mmask16)signs, a, high);
    v[1] = _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(c, low), (__mmask16)(signs >> 16), c, high);
}

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    CARD_OF(decode)(card_codes(row, b), vf_splat_f16(card_scale(row, b)), v);
}
