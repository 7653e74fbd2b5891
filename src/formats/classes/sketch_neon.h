/* sketch_neon.h: signs of a sketch (qjl1_256.c): a sketch value is +-(scale * norm): the sign of a constant, from a
 * test of one bit per lane. */
#include <math.h>
#include "formats/simd/simd_card.h"
#include "kvant/qjl.h"

/* +scale where the bit is set, -scale elsewhere */
static inline vf qjl_eight(uint32_t bits, float32x4_t scale, float32x4_t minus)
{
    const uint32x4_t low = { 1, 2, 4, 8 }, high = { 16, 32, 64, 128 };
    uint32x4_t x = vdupq_n_u32(bits);
    return (vf){ vbslq_f32(vtstq_u32(x, low), scale, minus), vbslq_f32(vtstq_u32(x, high), scale, minus) };
}

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *signs = card_codes(row, b);
    uint16_t norm;
    memcpy(&norm, card_scale(row, b), sizeof norm);
    float32x4_t scale = vdupq_n_f32(bits_f32(CARD_SCALE_TIMES) * bf16_to_f32(norm)), minus = vnegq_f32(scale);

    v[0] = qjl_eight(signs[0], scale, minus);
    v[1] = qjl_eight(signs[1], scale, minus);
    v[2] = qjl_eight(signs[2], scale, minus);
    v[3] = qjl_eight(signs[3], scale, minus);
}

static inline uint8_t positive_bits(vf v)
{
    const uint32x4_t low = { 1, 2, 4, 8 }, high = { 16, 32, 64, 128 };
    uint32x4_t set = vorrq_u32(vandq_u32(vcgtzq_f32(v.lo), low), vandq_u32(vcgtzq_f32(v.hi), high));
    return (uint8_t)vaddvq_u32(set);
}

#include "formats/classes/sketch_eight.h"
