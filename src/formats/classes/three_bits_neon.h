/* three_bits_neon.h: codes of 3 bits and 8 levels, in a stream or in planes, values by byte planes. */
#include "formats/simd/simd_card.h"

static const uint8_t card_planes[4][16] = { CARD_PLANES }, card_centred7[16] = { CARD_CENTRED7 };

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    lookup16(card_planes, CARD_OF(codes3)(card_codes(row, b)), vf_splat_f16(card_scale(row, b)), v);
}

static inline vb card_signed(const uint8_t *row, int b)
{
    return vb_lookup(card_centred7, CARD_OF(codes3)(card_codes(row, b)));
}
