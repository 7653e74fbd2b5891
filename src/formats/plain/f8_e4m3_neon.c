/* f8_e4m3_neon.c: one byte per value, S.EEEE.MMM, times one f32 scale (see f8_e4m3.c).
 * A code moved to the exponent and mantissa of an f16 is the value times 2^-8, subnormals included: one conversion and
 * one exact product give it; only the NaN code needs care. */
#include "formats/simd_neon.h"

static inline float32x4_t f8_four(uint16x4_t half, uint16x4_t is_nan, float32x4_t scale)
{
    float32x4_t v = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(half)), 256.0f);
    uint32x4_t nan = vreinterpretq_u32_s32(vmovl_s16(vreinterpret_s16_u16(is_nan)));
    return vmulq_f32(vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(v), nan)), scale);
}

static inline vf f8_chunk(const uint8_t *p, vf scale)
{
    uint16x8_t x = vmovl_u8(vld1_u8(p)), low = vandq_u16(x, vdupq_n_u16(0x7f));
    uint16x8_t half = vorrq_u16(vshlq_n_u16(low, 7), vshlq_n_u16(vsubq_u16(x, low), 8));
    uint16x8_t nan = vceqq_u16(low, vdupq_n_u16(0x7f));
    return (vf){ f8_four(vget_low_u16(half), vget_low_u16(nan), scale.lo),
                 f8_four(vget_high_u16(half), vget_high_u16(nan), scale.hi) };
}

#include "formats/plain/f8_e4m3_simd.h"

const kvant_format_kernels kvant_f8_e4m3_kernels_neon = {
    .decode_acc = f8_decode_acc, .score = f8_score, .axpy = f8_axpy,
};
