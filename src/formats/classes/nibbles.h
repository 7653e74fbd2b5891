/* nibbles.h: codes of 4 bits over simd_<isa>.h of 8 lanes (AVX2, NEON), which knows the two orders of nibbles.  A
 * code becomes its f32 level by four byte-plane lookups, then one multiplication by the scale: the reference's
 * value. */
#include "formats/simd/simd_card.h"

static const uint8_t card_planes[4][16] = { CARD_PLANES };

#ifdef CARD_RESIDUAL_AT
static const float card_residual[128] = { CARD_RESIDUAL_SIGNS };

/* (level +- size * sign) * scale */
static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const float *s = card_residual + b % 4 * 32;
    const int up = card_record(row, b)[CARD_RESIDUAL_AT] & 1;
    const vf residual = vf_set1(bits_f32(up ? CARD_RESIDUAL_BITS : CARD_RESIDUAL_BITS | 0x80000000u));
    const vf scale = vf_splat_f16(card_scale(row, b));

    lookup16_plain(card_planes, CARD_OF(codes4)(card_codes(row, b)), v);
    v[0] = vf_mul(vf_add(v[0], vf_mul(residual, vf_load(s))), scale);
    v[1] = vf_mul(vf_add(v[1], vf_mul(residual, vf_load(s + 8))), scale);
    v[2] = vf_mul(vf_add(v[2], vf_mul(residual, vf_load(s + 16))), scale);
    v[3] = vf_mul(vf_add(v[3], vf_mul(residual, vf_load(s + 24))), scale);
}
#else
static const uint8_t card_bytes7[16] = { CARD_BYTES7 }, card_centred7[16] = { CARD_CENTRED7 };

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    lookup16(card_planes, CARD_OF(codes4)(card_codes(row, b)), vf_splat_f16(card_scale(row, b)), v);
}

/* Levels as bytes, natural order. */
static inline vb card_bytes(const uint8_t *row, int b)
{
    return vb_lookup(card_bytes7, CARD_OF(natural4)(card_codes(row, b)));
}

static inline vb card_signed(const uint8_t *row, int b)
{
    return vb_lookup(card_centred7, CARD_OF(natural4)(card_codes(row, b)));
}

#endif
