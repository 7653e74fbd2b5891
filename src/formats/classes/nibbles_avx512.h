/* nibbles_avx512.h: codes of 4 bits: the 16 levels times the scale are one register, a code is the index of one
 * permutation. */
#include "formats/simd/simd_card.h"

static const float card_levels[16] = { CARD_LEVELS };

#ifdef CARD_RESIDUAL_AT
static const float card_residual[128] = { CARD_RESIDUAL_SIGNS };

/* (level +- size * sign) * scale */
static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const float *s = card_residual + b % 4 * 32;
    const int up = card_record(row, b)[CARD_RESIDUAL_AT] & 1;
    const vf residual = vf_set1(bits_f32(up ? CARD_RESIDUAL_BITS : CARD_RESIDUAL_BITS | 0x80000000u));
    const vf scale = vf_splat_f16(card_scale(row, b)), table = vf_load(card_levels);
    __m512i lo, hi;
    CARD_OF(codes4)(card_codes(row, b), &lo, &hi);
    v[0] = vf_mul(_mm512_add_ps(_mm512_permutexvar_ps(lo, table), vf_mul(residual, vf_load(s))), scale);
    v[1] = vf_mul(_mm512_add_ps(_mm512_permutexvar_ps(hi, table), vf_mul(residual, vf_load(s + 16))), scale);
}
#else
static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const vf table = vf_mul(vf_splat_f16(card_scale(row, b)), vf_load(card_levels));
    __m512i lo, hi;
    CARD_OF(codes4)(card_codes(row, b), &lo, &hi);
    v[0] = _mm512_permutexvar_ps(lo, table);
    v[1] = _mm512_permutexvar_ps(hi, table);
}
#endif
