/* q8_0_neon.c: 34 bytes per 32 values: [d fp16][q i8 x 32] (see q8_0.c). */
#include "formats/simd_encode_neon.h"
#include "formats/plain/q8_0_int_neon.h"

static inline void q8_16(int8x16_t q, vf d, vf *v)
{
    int16x8_t lo = vmovl_s8(vget_low_s8(q)), hi = vmovl_high_s8(q);
    vf a = { vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_high_s16(lo)) };
    vf b = { vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_high_s16(hi)) };
    v[0] = vf_mul(d, a);
    v[1] = vf_mul(d, b);
}

static inline void q8_decode32(const uint8_t *row, int b, vf *v)
{
    int_codes c = q8_signed(row, b);
    vf d = vf_splat_f16(row + (size_t)b * 34);
    q8_16(c.lo, d, v);
    q8_16(c.hi, d, v + 2);
}

#define BLOCK_DECODE q8_decode32
#include "formats/simd_blocks.h"

static inline int32x4_t q8_code4(float32x4_t v)
{
    return vminq_s32(vmaxq_s32(vcvtaq_s32_f32(v), vdupq_n_s32(-127)), vdupq_n_s32(127));
}

/* Round half away from zero, clamped to +-127, NaN to 0: as q8_code of the reference. */
static inline vi q8_codes(vf v)
{
    return (vi){ q8_code4(v.lo), q8_code4(v.hi) };
}

static inline void put_bytes(uint8_t *q, const vi *code)
{
    vb x = vb_pack(code);
    vst1q_u8(q, x.lo);
    vst1q_u8(q + 16, x.hi);
}

#include "formats/plain/q8_0_simd.h"

const kvant_format_kernels kvant_q8_0_kernels_neon = {
    .encode = q8_encode, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
