/* base/vf_neon.h: eight f32 lanes as two NEON registers: what the vector layers of the formats (simd_neon.h) and of the
 * ops (vec_neon.h) share.  32 registers of 4 lanes hold what 16 of 8 lanes do on AVX2, so a body with tiles made for
 * AVX2 fits here unchanged, and sums in the same lanes in the same order: the same bits.  Only *_neon.c, *_dotprod.c
 * and *_i8mm.c include it. */
#ifndef KVANT_BASE_VF_NEON_H
#define KVANT_BASE_VF_NEON_H

#include <arm_neon.h>
#include <stdint.h>

typedef struct vf {
    float32x4_t lo, hi;
} vf;

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define NEON_ISA i8mm
#elif defined(__ARM_FEATURE_DOTPROD)
#define NEON_ISA dotprod
#else
#define NEON_ISA neon
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

/* Largest lane, by the tree of vec_avx2.h. */
static inline float vf_hmax(vf x)
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

/* Eight f16 from and to memory, round to nearest even. */
static inline vf vf_load_half(const void *p)
{
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));

    return (vf){ vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h))), vcvt_high_f32_f16(vreinterpretq_f16_u16(h)) };
}

static inline void vf_store_half(void *p, vf v)
{
    vst1q_u8(p, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.lo), v.hi)));
}

#endif
