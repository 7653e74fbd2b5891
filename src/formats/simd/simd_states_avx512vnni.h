/* simd_states_avx512vnni.h: 64 states of nine bits to bytes: the codebook in 8 bits (CARD_BYTES8) is eight registers:
 * vpermb reads 64 entries, the three upper bits of a state choose among them.  64 states cost 16 instructions; gathers
 * take three times as long. */
static const uint8_t card_bytes8[CARD_N] = { CARD_BYTES8 };

/* low: bits 0-7 of 64 states, bit8: the others.  vpermb reads 64 entries by bits 0-5; bit 6 masks the second of a
 * pair. */
static inline __m512i states_lookup(__m512i low, __mmask64 bit8)
{
    const __mmask64 bit6 = _mm512_movepi8_mask(_mm512_add_epi8(low, low)), bit7 = _mm512_movepi8_mask(low);
#define STATES_TABLE(i) load512(card_bytes8 + 64 * (i))
#define STATES_QUARTER(i)                                                                                      \
    _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(low, STATES_TABLE(2 * (i))), bit6, low,               \
                                 STATES_TABLE(2 * (i) + 1))
    __m512i a = _mm512_mask_blend_epi8(bit7, STATES_QUARTER(0), STATES_QUARTER(1));
    __m512i b = _mm512_mask_blend_epi8(bit7, STATES_QUARTER(2), STATES_QUARTER(3));
    return _mm512_mask_blend_epi8(bit8, a, b);
}
