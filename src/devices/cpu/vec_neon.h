/* vec_neon.h: the 8-lane vectors of the kernel bodies on NEON, a pair of registers each; the names of vec_avx2.h.
 * Included only by *_neon.c, *_dotprod.c and *_i8mm.c. */
#ifndef KVANT_CPU_VEC_H
#define KVANT_CPU_VEC_H

#include <math.h>
#include <string.h>
#include "base/vf_neon.h"

#define VEC_ISA NEON_ISA
enum { VF_LANES = 8 };

static inline vf vf_set(float x)
{
    return vf_set1(x);
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

/* Sum of the lanes, by the tree of vec_avx2.h. */
static inline float vf_sum(vf x)
{
    float32x4_t s = vaddq_f32(x.lo, x.hi);

    s = vaddq_f32(s, vextq_f32(s, s, 2));
    return vgetq_lane_f32(vaddq_f32(s, vextq_f32(s, s, 1)), 0);
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

#include "devices/cpu/vec_math.h"

#endif
