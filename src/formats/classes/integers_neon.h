/* integers_neon.h: codes that are integers, in natural order: bytes themselves, nibbles, or a stream of 5 to 7 bits. */
#include "formats/simd/simd_card.h"

#if CARD_BITS == 8
static inline vb card_signed(const uint8_t *row, int b)
{
    const uint8_t *q = card_codes(row, b);
    return (vb){ vld1q_u8(q), vld1q_u8(q + 16) };
}
#elif CARD_BITS == 4
static inline vb card_signed(const uint8_t *row, int b)
{
    const vb x = CARD_OF(codes4)(card_codes(row, b));
    return (vb){ vsubq_u8(x.lo, vdupq_n_u8(CARD_OFFSET7)), vsubq_u8(x.hi, vdupq_n_u8(CARD_OFFSET7)) };
}
#else
#include "formats/classes/stream_windows.h"

static inline uint8x16_t stream_sixteen(const uint8_t *p, const uint8_t window[32])
{
    static const int16_t down[16] = { STREAM_LIST16(STREAM_BIT, -1) };
    const uint8x16_t x = vld1q_u8(p);
    uint16x8_t a = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(x, vld1q_u8(window))), vld1q_s16(down));
    uint16x8_t c = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(x, vld1q_u8(window + 16))), vld1q_s16(down + 8));
    return vandq_u8(vcombine_u8(vmovn_u16(a), vmovn_u16(c)), vdupq_n_u8((1 << CARD_BITS) - 1));
}

static inline vb card_signed(const uint8_t *row, int b)
{
    const uint8_t *qs = card_codes(row, b);
    const uint8x16_t zero = vdupq_n_u8(CARD_OFFSET7);
    return (vb){ vsubq_u8(stream_sixteen(qs, stream_window[0]), zero),
                 vsubq_u8(stream_sixteen(qs + STREAM_HALF - STREAM_LATE, stream_window[1]), zero) };
}
#endif

static inline void ints_sixteen(int8x16_t q, vf scale, vf *v)
{
    int16x8_t lo = vmovl_s8(vget_low_s8(q)), hi = vmovl_high_s8(q);
    vf a = { vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_high_s16(lo)) };
    vf b = { vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_high_s16(hi)) };
    v[0] = vf_mul(scale, a);
    v[1] = vf_mul(scale, b);
}

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const vb c = card_signed(row, b);
    const vf scale = vf_splat_f16(card_scale(row, b));
    ints_sixteen(vreinterpretq_s8_u8(c.lo), scale, v);
    ints_sixteen(vreinterpretq_s8_u8(c.hi), scale, v + 2);
}
