/* qjl1_256_neon.c: 34 bytes per 128 values: [signs u8 x 32][norm bf16], 256 sketch values (see qjl1_256.c).
 * A sketch value is +-(scale * norm): the sign of a constant, from a test of one bit per lane. */
#include "base/half.h"
#include "formats/simd_neon.h"

/* +scale where the bit is set, -scale elsewhere */
static inline vf qjl_eight(uint32_t bits, float32x4_t scale, float32x4_t minus)
{
    const uint32x4_t low = { 1, 2, 4, 8 }, high = { 16, 32, 64, 128 };
    uint32x4_t x = vdupq_n_u32(bits);
    return (vf){ vbslq_f32(vtstq_u32(x, low), scale, minus), vbslq_f32(vtstq_u32(x, high), scale, minus) };
}

static inline void qjl_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 8) * 34, *signs = group + b % 8 * 4;
    uint16_t norm;
    memcpy(&norm, group + 32, sizeof norm);
    float32x4_t scale = vdupq_n_f32(bits_f32(0x3ba06c99u) * bf16_to_f32(norm)), minus = vnegq_f32(scale);

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

#include "formats/qjl/qjl1_256_simd.h"

const kvant_format_kernels kvant_qjl1_256_kernels_neon = {
    .encode = qjl_encode, .prep_q = qjl_prep_q, .decode_acc = qjl_decode_acc, .score = qjl_score, .axpy = qjl_axpy,
};
