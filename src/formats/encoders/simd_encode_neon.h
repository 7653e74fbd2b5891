/* simd_encode_neon.h: the NEON half of what the encoders need; simd_encode.h is the shared one. */
#ifndef KVANT_FORMATS_SIMD_ENCODE_NEON_H
#define KVANT_FORMATS_SIMD_ENCODE_NEON_H

#include "formats/encoders/put_stream.h"
#include "formats/simd/simd_neon.h"

#define SEARCH_SCALE search_scale_neon
#define SEARCH_UNBIASED search_unbiased_neon

static inline vi vi_zero(void)
{
    return (vi){ vdupq_n_s32(0), vdupq_n_s32(0) };
}

static inline vi vi_load(const int *p)
{
    return (vi){ vld1q_s32(p), vld1q_s32(p + 4) };
}

static inline void vi_store(int *p, vi v)
{
    vst1q_s32(p, v.lo);
    vst1q_s32(p + 4, v.hi);
}

static inline vi vi_add(vi a, int b)
{
    return (vi){ vaddq_s32(a.lo, vdupq_n_s32(b)), vaddq_s32(a.hi, vdupq_n_s32(b)) };
}

static inline vf vi_to_float(vi v)
{
    return (vf){ vcvtq_f32_s32(v.lo), vcvtq_f32_s32(v.hi) };
}

/* Nearest integers, halves to even. */
static inline vi vf_to_int(vf v)
{
    return (vi){ vcvtnq_s32_f32(v.lo), vcvtnq_s32_f32(v.hi) };
}

static inline vf vf_of_bits(int bits)
{
    float32x4_t v = vreinterpretq_f32_s32(vdupq_n_s32(bits));
    return (vf){ v, v };
}

static inline vi vf_to_bits(vf v)
{
    return (vi){ vreinterpretq_s32_f32(v.lo), vreinterpretq_s32_f32(v.hi) };
}

/* A comparison gives -1 in lanes where it holds; count_*: code + 1 there. */
static inline int32x4_t neon_minus(int32x4_t code, uint32x4_t holds)
{
    return vsubq_s32(code, vreinterpretq_s32_u32(holds));
}

/* v >= t */
static inline vi count_ge(vi code, vf v, vf t)
{
    return (vi){ neon_minus(code.lo, vcgeq_f32(v.lo, t.lo)), neon_minus(code.hi, vcgeq_f32(v.hi, t.hi)) };
}

/* !(v <= t) */
static inline vi count_not_le(vi code, vf v, vf t)
{
    return (vi){ neon_minus(code.lo, vmvnq_u32(vcleq_f32(v.lo, t.lo))),
                 neon_minus(code.hi, vmvnq_u32(vcleq_f32(v.hi, t.hi))) };
}

/* !(v < t) */
static inline vi count_not_lt(vi code, vf v, vf t)
{
    return (vi){ neon_minus(code.lo, vmvnq_u32(vcltq_f32(v.lo, t.lo))),
                 neon_minus(code.hi, vmvnq_u32(vcltq_f32(v.hi, t.hi))) };
}

/* t >= 0 ? k : -1 - k */
static inline vi mirror(vi k, vf t)
{
    uint32x4_t lo = vcgezq_f32(t.lo), hi = vcgezq_f32(t.hi);
    return (vi){ vbslq_s32(lo, k.lo, vmvnq_s32(k.lo)), vbslq_s32(hi, k.hi, vmvnq_s32(k.hi)) };
}

/* Bytes 4k .. 4k+3 of a table of f32. */
static inline uint8x16_t neon_index(int32x4_t k)
{
    return vreinterpretq_u8_s32(vmlaq_s32(vdupq_n_s32(0x03020100), k, vdupq_n_s32(0x04040404)));
}

/* table[k], k < 8 */
static inline vf vf_lookup8(vf table, vi k)
{
    uint8x16x2_t t = { { vreinterpretq_u8_f32(table.lo), vreinterpretq_u8_f32(table.hi) } };
    return (vf){ vreinterpretq_f32_u8(vqtbl2q_u8(t, neon_index(k.lo))),
                 vreinterpretq_f32_u8(vqtbl2q_u8(t, neon_index(k.hi))) };
}

/* k < 8 ? lo[k] : hi[k - 8] */
static inline vf vf_lookup16(vf lo, vf hi, vi k)
{
    uint8x16x4_t t = { { vreinterpretq_u8_f32(lo.lo), vreinterpretq_u8_f32(lo.hi), vreinterpretq_u8_f32(hi.lo),
                         vreinterpretq_u8_f32(hi.hi) } };
    return (vf){ vreinterpretq_f32_u8(vqtbl4q_u8(t, neon_index(k.lo))),
                 vreinterpretq_f32_u8(vqtbl4q_u8(t, neon_index(k.hi))) };
}

/* Four sums in double. */
typedef struct vd {
    float64x2_t lo, hi;
} vd;

static inline vd vd_zero(void)
{
    return (vd){ vdupq_n_f64(0.0), vdupq_n_f64(0.0) };
}

/* sum + (a - scale*v)^2 */
static inline vd vd_add_error(vd sum, double scale, vf v, vf a)
{
    float64x2_t s = vdupq_n_f64(scale);
    float64x2_t e0 = vfmsq_f64(vcvt_f64_f32(vget_low_f32(a.lo)), s, vcvt_f64_f32(vget_low_f32(v.lo)));
    float64x2_t e1 = vfmsq_f64(vcvt_high_f64_f32(a.lo), s, vcvt_high_f64_f32(v.lo));
    float64x2_t f0 = vfmsq_f64(vcvt_f64_f32(vget_low_f32(a.hi)), s, vcvt_f64_f32(vget_low_f32(v.hi)));
    float64x2_t f1 = vfmsq_f64(vcvt_high_f64_f32(a.hi), s, vcvt_high_f64_f32(v.hi));
    return (vd){ vfmaq_f64(vfmaq_f64(sum.lo, f0, f0), e0, e0), vfmaq_f64(vfmaq_f64(sum.hi, f1, f1), e1, e1) };
}

static inline double vd_sum(vd v)
{
    return vaddvq_f64(v.lo) + vaddvq_f64(v.hi);
}

/* Butterfly steps h = 1, 2, 4 inside a vector: (a, b) -> (a + b, a - b) = partner + (+-self). */
static inline float32x4_t neon_butterfly4(float32x4_t v)
{
    const uint32x4_t odd1 = { 0, 0x80000000u, 0, 0x80000000u }, odd2 = { 0, 0, 0x80000000u, 0x80000000u };
    v = vaddq_f32(vrev64q_f32(v), vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(v), odd1)));
    return vaddq_f32(vextq_f32(v, v, 2), vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(v), odd2)));
}

static inline vf butterfly8(vf v)
{
    float32x4_t a = neon_butterfly4(v.lo), b = neon_butterfly4(v.hi);
    return (vf){ vaddq_f32(b, a), vsubq_f32(a, b) };
}

/* v[k] lane j = x[8*j + k]: rows of 8 to columns */
static inline void transpose8(const float *x, vf *v)
{
#define TRANSPOSE4(p, half, side)                                                                         \
    {                                                                                                     \
        float32x4_t a = vld1q_f32(p), b = vld1q_f32((p) + 8), c = vld1q_f32((p) + 16), d = vld1q_f32((p) + 24); \
        float32x4_t ac = vzip1q_f32(a, c), ca = vzip2q_f32(a, c), bd = vzip1q_f32(b, d), db = vzip2q_f32(b, d); \
        v[half].side = vzip1q_f32(ac, bd), v[(half) + 1].side = vzip2q_f32(ac, bd);                       \
        v[(half) + 2].side = vzip1q_f32(ca, db), v[(half) + 3].side = vzip2q_f32(ca, db);                 \
    }
    TRANSPOSE4(x, 0, lo)
    TRANSPOSE4(x + 4, 4, lo)
    TRANSPOSE4(x + 32, 0, hi)
    TRANSPOSE4(x + 36, 4, hi)
}

/* 32 codes as bytes, natural order */
static inline vb vb_pack(const vi *code)
{
    uint16x8_t a = vreinterpretq_u16_s16(vcombine_s16(vmovn_s32(code[0].lo), vmovn_s32(code[0].hi)));
    uint16x8_t b = vreinterpretq_u16_s16(vcombine_s16(vmovn_s32(code[1].lo), vmovn_s32(code[1].hi)));
    uint16x8_t c = vreinterpretq_u16_s16(vcombine_s16(vmovn_s32(code[2].lo), vmovn_s32(code[2].hi)));
    uint16x8_t d = vreinterpretq_u16_s16(vcombine_s16(vmovn_s32(code[3].lo), vmovn_s32(code[3].hi)));
    return (vb){ vcombine_u8(vmovn_u16(a), vmovn_u16(b)), vcombine_u8(vmovn_u16(c), vmovn_u16(d)) };
}

/* 32 codes of 4 bits -> 16 bytes, code j and j + 16 in byte j */
static inline void put_halves(uint8_t *qs, vb x)
{
    vst1q_u8(qs, vorrq_u8(x.lo, vshlq_n_u8(x.hi, 4)));
}

/* Code 2i and, `up` bits higher, code 2i + 1 */
#define NEON_PAIRS(x, up) vorrq_u8(vuzp1q_u8((x).lo, (x).hi), vshlq_n_u8(vuzp2q_u8((x).lo, (x).hi), up))

/* 32 codes of 4 bits -> 16 bytes, code 2i and 2i + 1 in byte i */
static inline void put_pairs(uint8_t *qs, vb x)
{
    vst1q_u8(qs, NEON_PAIRS(x, 4));
}

/* 32 codes of 3 bits -> 12 bytes, code j at bits 3j..3j+2 */
static inline void put_stream3(uint8_t *qs, vb x)
{
    static const uint8_t take[16] = { 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 255, 255, 255, 255 };
    uint16x8_t two = vreinterpretq_u16_u8(NEON_PAIRS(x, 3));                /* pairs: 6 bits in each byte */
    two = vorrq_u16(vandq_u16(two, vdupq_n_u16(63)), vshlq_n_u16(vshrq_n_u16(two, 8), 6));
    uint32x4_t four = vreinterpretq_u32_u16(two);                           /* fours: 12 bits in each half */
    four = vorrq_u32(vandq_u32(four, vdupq_n_u32(4095)), vshlq_n_u32(vshrq_n_u32(four, 16), 12));
    uint8x16_t bytes = vqtbl1q_u8(vreinterpretq_u8_u32(four), vld1q_u8(take));
    vst1_u8(qs, vget_low_u8(bytes));
    uint32_t last = vgetq_lane_u32(vreinterpretq_u32_u8(bytes), 2);
    memcpy(qs + 8, &last, sizeof last);
}

/* 32 codes of 3 bits -> low two bits, four to a byte; behind them high bits, eight to a byte */
static inline void put_planes(uint8_t *qs, vb x)
{
    const uint8x16_t three = vdupq_n_u8(3);
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    vb low = { vandq_u8(x.lo, three), vandq_u8(x.hi, three) };
    uint16x8_t two = vreinterpretq_u16_u8(NEON_PAIRS(low, 2));
    vst1_u8(qs, vmovn_u16(vorrq_u16(two, vshrq_n_u16(two, 4))));
    const uint8x16_t four = vdupq_n_u8(4);
    uint8x16_t a = vandq_u8(vtstq_u8(x.lo, four), bit), b = vandq_u8(vtstq_u8(x.hi, four), bit);
    a = vpaddq_u8(a, b);
    a = vpaddq_u8(a, a);
    a = vpaddq_u8(a, a);
    uint32_t high = vgetq_lane_u32(vreinterpretq_u32_u8(a), 0);
    memcpy(qs + 8, &high, sizeof high);
}

static inline void put_bytes(uint8_t *qs, vb x)
{
    vst1q_u8(qs, x.lo);
    vst1q_u8(qs + 16, x.hi);
}

#if CARD_BITS >= 5 && CARD_BITS <= 7
static inline void put_stream(uint8_t *qs, vb x)
{
    uint8_t bytes[32];
    put_bytes(bytes, x);
    put_stream_bytes(qs, bytes, CARD_BITS);
}
#endif

/* Integers nearest to v, halves away from zero, within +-limit; NaN gives 0. */
static inline vi round_away(vf v, float limit)
{
    const int32x4_t top = vdupq_n_s32((int)limit), low = vnegq_s32(top);
    return (vi){ vminq_s32(vmaxq_s32(vcvtaq_s32_f32(v.lo), low), top),
                 vminq_s32(vmaxq_s32(vcvtaq_s32_f32(v.hi), low), top) };
}

/* trunc(v + centre + 0.5) within 0 .. top, less centre; NaN gives 0. */
static inline int32x4_t neon_round_centred(float32x4_t v, int centre, int top)
{
    int32x4_t t = vcvtq_s32_f32(vaddq_f32(v, vdupq_n_f32((float)centre + 0.5f)));
    t = vsubq_s32(vminq_s32(vmaxq_s32(t, vdupq_n_s32(0)), vdupq_n_s32(top)), vdupq_n_s32(centre));
    return vandq_s32(t, vreinterpretq_s32_u32(vceqq_f32(v, v)));
}

static inline vi round_centred(vf v, int centre, int top)
{
    return (vi){ neon_round_centred(v.lo, centre, top), neon_round_centred(v.hi, centre, top) };
}

/* The first of 32 values (v: the same in vectors) of magnitude amax > 0. */
static inline float first_of(const float *x, const vf *v, float amax)
{
    int j = 0;
    (void)v;
    while (x[j] != amax && x[j] != -amax)
        j++;
    return x[j];
}

#include "formats/encoders/simd_encode.h"

#endif
