/* q4_0_neon.c: 18 bytes per 32 values: [d fp16][qs u8 x 16], low nibbles first (see q4_0.c).
 * d*(n - 8) has one rounding, as the reference. */
#include "formats/simd_encode_neon.h"
#include "formats/plain/q4_0_int_neon.h"

static inline void q4_16(int8x16_t q, vf d, vf *v)
{
    int16x8_t lo = vmovl_s8(vget_low_s8(q)), hi = vmovl_high_s8(q);
    vf a = { vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_high_s16(lo)) };
    vf b = { vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_high_s16(hi)) };
    v[0] = vf_mul(d, a);
    v[1] = vf_mul(d, b);
}

static inline void q4_decode32(const uint8_t *row, int b, vf *v)
{
    int_codes c = q4_signed(row, b);
    vf d = vf_splat_f16(row + (size_t)b * 18);
    q4_16(c.lo, d, v);
    q4_16(c.hi, d, v + 2);
}

#define BLOCK_DECODE q4_decode32
#include "formats/simd_blocks.h"

/* min(15, trunc(v + 8.5)) - 8, below: -8, NaN: 0 */
static inline int32x4_t q4_code4(float32x4_t v)
{
    int32x4_t t = vcvtq_s32_f32(vaddq_f32(v, vdupq_n_f32(8.5f)));
    t = vsubq_s32(vminq_s32(vmaxq_s32(t, vdupq_n_s32(0)), vdupq_n_s32(15)), vdupq_n_s32(8));
    return vandq_s32(t, vreinterpretq_s32_u32(vceqq_f32(v, v)));
}

static inline vi q4_codes(vf v)
{
    return (vi){ q4_code4(v.lo), q4_code4(v.hi) };
}

static float q4_top(const float *x, const vf *v, float amax)
{
    int j = 0;
    (void)v;
    if (!(amax > 0.0f))
        return 0.0f;
    while (x[j] != amax && x[j] != -amax)
        j++;
    return x[j];
}

#include "formats/plain/q4_0_simd.h"

const kvant_format_kernels kvant_q4_0_kernels_neon = {
    .encode = q4_encode, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
