/* matmul_f32_neon.h: the f32 tiles of matmul for every NEON rung.  Included once by each. */
#include "base/simd/vf_neon.h"

/* BF16 pairs: lane i holds W[k] in the low and W[k+1] in the high half of output i. */
typedef struct vpair {
    uint32x4_t lo, hi;
} vpair;

static inline vpair vpair_load(const uint8_t *p)
{
    return (vpair){ vreinterpretq_u32_u8(vld1q_u8(p)), vreinterpretq_u32_u8(vld1q_u8(p + 16)) };
}

static inline vf vpair_lo(vpair v)
{
    return (vf){ vreinterpretq_f32_u32(vshlq_n_u32(v.lo, 16)), vreinterpretq_f32_u32(vshlq_n_u32(v.hi, 16)) };
}

static inline vf vpair_hi(vpair v)
{
    const uint32x4_t top = vdupq_n_u32(0xffff0000u);

    return (vf){ vreinterpretq_f32_u32(vandq_u32(v.lo, top)), vreinterpretq_f32_u32(vandq_u32(v.hi, top)) };
}

#include "devices/cpu/matmul/matmul_tiles8.h"
