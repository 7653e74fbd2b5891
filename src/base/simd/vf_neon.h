/* base/simd/vf_neon.h: the vocabulary of the NEON kernels: 8 lanes of f32 as two registers; the names and the bit rule
 * of vf_avx2.h.  32 registers of 4 lanes hold what 16 of 8 lanes do on AVX2, so a body with tiles made for AVX2 fits
 * here unchanged, and sums in the same lanes in the same order: the same bits.  Only *_neon.c, *_dotprod.c and
 * *_i8mm.c include it. */
#ifndef KVANT_BASE_VF_H
#define KVANT_BASE_VF_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VF_LANES 8

typedef struct vf {
    float32x4_t lo, hi;
} vf;

/* 8 int32; 32 bytes */
typedef struct vi {
    int32x4_t lo, hi;
} vi;
typedef struct vb {
    uint8x16_t lo, hi;
} vb;

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define VF_ISA i8mm
#elif defined(__ARM_FEATURE_DOTPROD)
#define VF_ISA dotprod
#else
#define VF_ISA neon
#endif

#define VF_EACH1(f, a) ((vf){ f((a).lo), f((a).hi) })
#define VF_EACH2(f, a, b) ((vf){ f((a).lo, (b).lo), f((a).hi, (b).hi) })

static inline vf vf_zero(void)
{
    return (vf){ vdupq_n_f32(0.0f), vdupq_n_f32(0.0f) };
}

static inline vf vf_set1(float x)
{
    return (vf){ vdupq_n_f32(x), vdupq_n_f32(x) };
}

static inline vf vf_load(const float *p)
{
    return (vf){ vld1q_f32(p), vld1q_f32(p + 4) };
}

static inline void vf_store(float *p, vf v)
{
    vst1q_f32(p, v.lo);
    vst1q_f32(p + 4, v.hi);
}

static inline vf vf_add(vf a, vf b)
{
    return VF_EACH2(vaddq_f32, a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return VF_EACH2(vsubq_f32, a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return VF_EACH2(vmulq_f32, a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return VF_EACH2(vdivq_f32, a, b);
}

/* a*b + c, one rounding */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return (vf){ vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi) };
}

/* c - a*b */
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return (vf){ vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi) };
}

static inline vf vf_abs(vf a)
{
    return VF_EACH1(vabsq_f32, a);
}

/* Nearest integer, as float. */
static inline vf vf_round(vf a)
{
    return VF_EACH1(vrndnq_f32, a);
}

/* The result is b if an operand is NaN, as on x86: fmax would give NaN. */
static inline float32x4_t neon_max(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline float32x4_t neon_min(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

static inline vf vf_max(vf a, vf b)
{
    return VF_EACH2(neon_max, a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return VF_EACH2(neon_min, a, b);
}

/* Sum and largest of the lanes, by the tree of vf_avx2.h: halves first. */
static inline float vf_reduce_add(vf x)
{
    float32x4_t s = vaddq_f32(x.lo, x.hi);

    s = vaddq_f32(s, vextq_f32(s, s, 2));
    return vgetq_lane_f32(vaddq_f32(s, vextq_f32(s, s, 1)), 0);
}

static inline float vf_reduce_max(vf x)
{
    float32x4_t s = neon_max(x.lo, x.hi);

    s = neon_max(s, vextq_f32(s, s, 2));
    return vgetq_lane_f32(neon_max(s, vextq_f32(s, s, 1)), 0);
}

/* a < b ? x : y, lane by lane; an unordered pair gives y. */
static inline vf vf_select_lt(vf a, vf b, vf x, vf y)
{
    return (vf){ vbslq_f32(vcltq_f32(a.lo, b.lo), x.lo, y.lo), vbslq_f32(vcltq_f32(a.hi, b.hi), x.hi, y.hi) };
}

/* Lane sums of four vectors. */
static inline float32x4_t vf_sum4(vf a, vf b, vf c, vf d)
{
    float32x4_t lo = vpaddq_f32(vpaddq_f32(a.lo, b.lo), vpaddq_f32(c.lo, d.lo));
    return vaddq_f32(lo, vpaddq_f32(vpaddq_f32(a.hi, b.hi), vpaddq_f32(c.hi, d.hi)));
}

static inline void vf_put4(float *s, vf a, vf b, vf c, vf d)
{
    vst1q_f32(s, vf_sum4(a, b, c, d));
}

static inline void vf_put3(float *s, vf a, vf b, vf c)
{
    float32x4_t t = vf_sum4(a, b, c, c);
    vst1_f32(s, vget_low_f32(t));
    vst1q_lane_f32(s + 2, t, 2);
}

static inline void vf_put2(float *s, vf a, vf b)
{
    vst1_f32(s, vget_low_f32(vf_sum4(a, b, a, b)));
}

static inline void vf_put1(float *s, vf a)
{
    vst1q_lane_f32(s, vf_sum4(a, a, a, a), 0);
}

/* s0[0..1] = sums of a, b;  s1[0..1] = sums of c, d */
static inline void vf_put22(float *s0, float *s1, vf a, vf b, vf c, vf d)
{
    float32x4_t t = vf_sum4(a, b, c, d);
    vst1_f32(s0, vget_low_f32(t));
    vst1_f32(s1, vget_high_f32(t));
}

static inline void vf_prefetch(const uint8_t *p)
{
    __builtin_prefetch(p);
}

/* Lanes 0..n-1 from or to memory, 0 <= n <= 8; the others read as zero and stay unwritten.  There are no masked loads:
 * the last few values of a row go through a copy. */
static inline vf vf_load_n(const float *p, int n)
{
    float part[VF_LANES] = { 0 };

    if (n == VF_LANES)
        return vf_load(p);
    memcpy(part, p, (size_t)n * sizeof *part);
    return vf_load(part);
}

static inline void vf_store_n(float *p, vf x, int n)
{
    float part[VF_LANES];

    if (n == VF_LANES) {
        vf_store(p, x);
        return;
    }
    vf_store(part, x);
    memcpy(p, part, (size_t)n * sizeof *part);
}

/* VF_LANES values at p, of any alignment, as f32; f16 is rounded to nearest even. */
static inline vf vf_load_f32(const void *p)
{
    return (vf){ vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p + 16)) };
}

static inline vf vf_load_f16(const void *p)
{
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));

    return (vf){ vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h))), vcvt_high_f32_f16(vreinterpretq_f16_u16(h)) };
}

static inline vf vf_load_bf16(const void *p)
{
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));
    return (vf){ vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                 vreinterpretq_f32_u32(vshll_high_n_u16(h, 16)) };
}

static inline void vf_store_f16(void *p, vf v)
{
    vst1q_u8(p, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.lo), v.hi)));
}

/* Round to nearest even; a NaN keeps its upper bits and becomes quiet: as f32_to_bf16. */
static inline uint32x4_t neon_bf16(float32x4_t v)
{
    uint32x4_t u = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t r = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
    return vbslq_u32(vceqq_f32(v, v), r, vorrq_u32(u, vdupq_n_u32(0x400000)));
}

static inline void vf_store_bf16(void *p, vf v)
{
    vst1q_u8(p, vreinterpretq_u8_u16(vshrn_high_n_u32(vshrn_n_u32(neon_bf16(v.lo), 16), neon_bf16(v.hi), 16)));
}

/* f16 at p in every lane */
static inline float32x4_t neon_splat_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
}

static inline vf vf_splat_f16(const void *p)
{
    float32x4_t v = neon_splat_f16(p);
    return (vf){ v, v };
}

/* 2^n for integral n in [-126, 127]. */
static inline float32x4_t neon_pow2(float32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}

static inline vf vf_pow2(vf n)
{
    return VF_EACH1(neon_pow2, n);
}

/* Lanes 2i and 2i+1 exchanged. */
static inline vf vf_swap_pairs(vf x)
{
    return VF_EACH1(vrev64q_f32, x);
}

static inline float32x4_t neon_if_bit(float32x4_t q, int32_t bit, float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vtstq_s32(vcvtnq_s32_f32(q), vdupq_n_s32(bit)), x, y);
}

/* Odd integral q ? x : y. */
static inline vf vf_quadrant_swap(vf q, vf x, vf y)
{
    return (vf){ neon_if_bit(q.lo, 1, x.lo, y.lo), neon_if_bit(q.hi, 1, x.hi, y.hi) };
}

/* x with its sign flipped where bit 1 of the integral q is set. */
static inline vf vf_quadrant_sign(vf q, vf x)
{
    return (vf){ neon_if_bit(q.lo, 2, vnegq_f32(x.lo), x.lo), neon_if_bit(q.hi, 2, vnegq_f32(x.hi), x.hi) };
}

#include "base/simd/vf_math.h"

#endif
