/* simd_neon.h: codes of the formats in NEON registers, beside the vocabulary of base/simd/vf_neon.h.  See simd_avx2.h
 * for its use.  A table lookup (tbl) reads 16 bytes anywhere, so codes, 32 bytes, stay in natural order throughout. */
#ifndef KVANT_FORMATS_SIMD_NEON_H
#define KVANT_FORMATS_SIMD_NEON_H

#include "base/simd/vf_neon.h"

#define VF_B 4                             /* vectors per block of 32 values */
#define VF_BLOCK(M) M(0) M(1) M(2) M(3)

static inline float f16_scalar(const uint8_t *p)
{
    return vgetq_lane_f32(neon_splat_f16(p), 0);
}

/* fp16 bits of x, round to nearest even */
static inline uint16_t f16_bits(float x)
{
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}

/* Code j < 16 is the low nibble of byte j, code j + 16 the high one. */
static inline vb codes4_halves(const uint8_t *qs)
{
    uint8x16_t x = vld1q_u8(qs);
    return (vb){ vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8(x, 4) };
}

/* Code 2i is the low nibble of byte i, 2i + 1 the high one. */
static inline vb codes4_pairs(const uint8_t *qs)
{
    vb x = codes4_halves(qs);
    return (vb){ vzip1q_u8(x.lo, x.hi), vzip2q_u8(x.lo, x.hi) };
}

/* Codes already lie in natural order (AVX2 has another one for lookup16). */
#define natural4_halves codes4_halves
#define natural4_pairs codes4_pairs

/* 32 codes of 3 bits from 12 bytes, code j at bits 3j..3j+2.  A 16-bit lane takes the two bytes that hold codes 2i
 * and 2i + 1 (6 bits at bit 6i), shifts them down, and spreads them to its bytes. */
static inline vb codes3_stream3(const uint8_t *qs)
{
    static const uint8_t window[32] = { 0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6,
                                        6, 7, 6, 7, 7, 8, 8, 9, 9, 10, 9, 10, 10, 11, 10, 11 };
    /* bit of the pair in its window: 0 6 4 2 ...; 10 for the last, whose window starts a byte early */
    static const int16_t shift[16] = { 0, -6, -4, -2, 0, -6, -4, -2, 0, -6, -4, -2, 0, -6, -4, -10 };
    uint32_t last;
    memcpy(&last, qs + 8, sizeof last);
    uint8x16_t x = vcombine_u8(vld1_u8(qs), vreinterpret_u8_u32(vdup_n_u32(last)));
    uint16x8_t a = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(x, vld1q_u8(window))), vld1q_s16(shift));
    uint16x8_t b = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(x, vld1q_u8(window + 16))), vld1q_s16(shift + 8));
    const uint16x8_t low = vdupq_n_u16(7), high = vdupq_n_u16(0x0700);
    return (vb){ vreinterpretq_u8_u16(vorrq_u16(vandq_u16(a, low), vandq_u16(vshlq_n_u16(a, 5), high))),
                 vreinterpretq_u8_u16(vorrq_u16(vandq_u16(b, low), vandq_u16(vshlq_n_u16(b, 5), high))) };
}

/* 32 codes of 3 bits: the low two bits from 8 bytes, four to a byte, the high ones from the 4 bytes behind. */
static inline vb codes3_planes(const uint8_t *qs)
{
    static const uint8_t quarter[32] = { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                         4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7 };
    static const uint8_t eighth[32] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                        2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3 };
    const int8x16_t down = vreinterpretq_s8_u32(vdupq_n_u32(0xfafcfe00u));      /* 0, -2, -4, -6 */
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u)), four = vdupq_n_u8(4);
    uint32_t s;
    memcpy(&s, qs + 8, sizeof s);
    uint8x16_t q = vcombine_u8(vld1_u8(qs), vdup_n_u8(0)), h = vreinterpretq_u8_u32(vdupq_n_u32(s));
    uint8x16_t a = vandq_u8(vshlq_u8(vqtbl1q_u8(q, vld1q_u8(quarter)), down), vdupq_n_u8(3));
    uint8x16_t b = vandq_u8(vshlq_u8(vqtbl1q_u8(q, vld1q_u8(quarter + 16)), down), vdupq_n_u8(3));
    return (vb){ vorrq_u8(a, vandq_u8(vtstq_u8(vqtbl1q_u8(h, vld1q_u8(eighth)), bit), four)),
                 vorrq_u8(b, vandq_u8(vtstq_u8(vqtbl1q_u8(h, vld1q_u8(eighth + 16)), bit), four)) };
}

/* table[code], code < 16 */
static inline vb vb_lookup(const uint8_t table[16], vb codes)
{
    uint8x16_t t = vld1q_u8(table);
    return (vb){ vqtbl1q_u8(t, codes.lo), vqtbl1q_u8(t, codes.hi) };
}

/* 16 f32 of a table of 16, byte plane by byte plane: 12 instructions for 16 values. */
static inline void neon_lookup(const uint8_t plane[4][16], uint8x16_t codes, vf *v)
{
    uint8x16_t p0 = vqtbl1q_u8(vld1q_u8(plane[0]), codes), p1 = vqtbl1q_u8(vld1q_u8(plane[1]), codes);
    uint8x16_t p2 = vqtbl1q_u8(vld1q_u8(plane[2]), codes), p3 = vqtbl1q_u8(vld1q_u8(plane[3]), codes);
    uint16x8_t lo01 = vreinterpretq_u16_u8(vzip1q_u8(p0, p1)), hi01 = vreinterpretq_u16_u8(vzip2q_u8(p0, p1));
    uint16x8_t lo23 = vreinterpretq_u16_u8(vzip1q_u8(p2, p3)), hi23 = vreinterpretq_u16_u8(vzip2q_u8(p2, p3));
    v[0] = (vf){ vreinterpretq_f32_u16(vzip1q_u16(lo01, lo23)), vreinterpretq_f32_u16(vzip2q_u16(lo01, lo23)) };
    v[1] = (vf){ vreinterpretq_f32_u16(vzip1q_u16(hi01, hi23)), vreinterpretq_f32_u16(vzip2q_u16(hi01, hi23)) };
}

/* The f32 of 32 codes; also for tables of 8, whose planes are half empty. */
static inline void lookup16_plain(const uint8_t plane[4][16], vb codes, vf *v)
{
    neon_lookup(plane, codes.lo, v);
    neon_lookup(plane, codes.hi, v + 2);
}

/* As lookup16_plain, each value times scale. */
static inline void lookup16(const uint8_t plane[4][16], vb codes, vf scale, vf *v)
{
    lookup16_plain(plane, codes, v);
    v[0] = vf_mul(scale, v[0]);
    v[1] = vf_mul(scale, v[1]);
    v[2] = vf_mul(scale, v[2]);
    v[3] = vf_mul(scale, v[3]);
}

/* 8 bytes S.EEEE.MMM.  A code moved to the exponent and mantissa of an f16 is the value times 2^-8, subnormals
 * included: one conversion and one exact product give it; only the NaN code needs care. */
static inline float32x4_t neon_e4m3(uint16x4_t half, uint16x4_t is_nan)
{
    float32x4_t v = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(half)), 256.0f);
    uint32x4_t nan = vreinterpretq_u32_s32(vmovl_s16(vreinterpret_s16_u16(is_nan)));
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(v), nan));
}

static inline vf vf_load_e4m3(const uint8_t *p)
{
    uint16x8_t x = vmovl_u8(vld1_u8(p)), low = vandq_u16(x, vdupq_n_u16(0x7f));
    uint16x8_t half = vorrq_u16(vshlq_n_u16(low, 7), vshlq_n_u16(vsubq_u16(x, low), 8));
    uint16x8_t nan = vceqq_u16(low, vdupq_n_u16(0x7f));
    return (vf){ neon_e4m3(vget_low_u16(half), vget_low_u16(nan)), neon_e4m3(vget_high_u16(half), vget_high_u16(nan)) };
}

#endif
