/* encode_math.cuh: roundings, roots and sums that the encoders of the cache formats share. */
#ifndef KVANT_CUDA_ENCODE_MATH_CUH
#define KVANT_CUDA_ENCODE_MATH_CUH

#define static static __device__
#include "base/half.h"
#undef static
#include "devices/cuda/core/space.cuh"

enum { GROUP_MAX = 128 };

#define ENC_MAGIC 12582912.0f              /* 1.5 * 2^23: adding it rounds |t| < 2^22 to an integer */

/* ---- roundings ---- */

static __device__ __forceinline__ uint16_t enc_half(float v)
{
    const uint32_t u = __float_as_uint(v);
    const uint16_t nan = (uint16_t)((u >> 16 & 0x8000u) | 0x7e00u | (u >> 13 & 0x1ffu));
    return v == v ? __half_as_ushort(__float2half_rn(v)) : nan;
}

static __device__ __forceinline__ float enc_value(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

/* Rows and records of two-byte scales lie at even addresses. */
static __device__ __forceinline__ void enc_put(uint8_t *to, uint16_t v)
{
    *(uint16_t *)to = v;
}

/* e4m3 as f8_e4m3.c rounds it: to nearest even, saturated at 448, NaN kept. */
static __device__ __forceinline__ uint8_t f32_to_e4m3_dev(float v)
{
    const uint32_t u = __float_as_uint(v), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (a >= 0x43e00000u)
        return (uint8_t)(sign | 0x7eu);
    if (a < 0x3c800000u)
        return (uint8_t)(sign | (__float_as_uint(__uint_as_float(a) + 16384.0f) - 0x46800000u));
    return (uint8_t)(sign | (((a + 0x7ffffu + (a >> 20 & 1u)) >> 20) - (120u << 3)));
}

/* Four of them. */
static __device__ __forceinline__ uint32_t e4m3_four(const float *v)
{
#if ARCH_E4M3
    if (v[0] == v[0] && v[1] == v[1] && v[2] == v[2] && v[3] == v[3]) { /* the instruction drops a NaN's sign */
        uint16_t low, high;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(v[1]), "f"(v[0]));
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(v[3]), "f"(v[2]));
        return low | (uint32_t)high << 16;
    }
#endif
    return f32_to_e4m3_dev(v[0]) | (uint32_t)f32_to_e4m3_dev(v[1]) << 8 | (uint32_t)f32_to_e4m3_dev(v[2]) << 16 |
           (uint32_t)f32_to_e4m3_dev(v[3]) << 24;
}

/* ---- scales ---- */

/* A scale as it will be stored: never zero and never infinite. */
static __device__ __forceinline__ uint16_t enc_storable(float s)
{
    const uint32_t h = __half_as_ushort(__float2half_rn(fminf(fabsf(s), 65504.0f)));    /* NaN: the largest too */
    return (uint16_t)((__float_as_uint(s) >> 16 & 0x8000u) | max(h, 1u));
}

/* The unbiased scale s (search_unbiased of search.c), where a half can hold it; else `scale`. */
static __device__ __forceinline__ uint16_t enc_unbiased_scale(float s, uint16_t scale)
{
    const uint16_t h = __half_as_ushort(__float2half_rn(s));
    return (h & 0x7fffu) - 1u < 0x7bffu ? h : scale;    /* not 0, Inf or NaN */
}

/* sqrt(m) and its inverse, a few units in the last place: they move a code or a scale at a boundary only. */
static __device__ __forceinline__ void enc_root(float m, float *root, float *inverse)
{
    if (m > 1e-30f && m < 1e30f) {
        *inverse = rsqrtf(m);
        *root = m * *inverse;
    } else {
        *root = sqrtf(m);
        *inverse = *root != 0.0f ? 1.0f / *root : 0.0f;
    }
}

/* The norm of a unit whose squares sum to m, and its inverse, 0 for a norm of nearly nothing.  No branches: codes of
 * such a norm do not matter, but for NaN's. */
static __device__ __forceinline__ float enc_unit_root(float m, float *inverse)
{
    const float by = rsqrtf(m), norm = m == 0.0f || m == INFINITY ? m : m * by;
    *inverse = norm > 1e-10f ? by : 0.0f;
    return norm;
}

/* ---- sums ---- */

/* Sum over N neighbouring lanes. */
template <int N, typename T> static __device__ __forceinline__ T enc_sum(T v)
{
#pragma unroll
    for (int m = 1; m < N; m *= 2)
        v += __shfl_xor_sync(0xffffffffu, v, m);
    return v;
}

/* Squares of a lane's 32 values: of fours, then a tree. */
static __device__ __forceinline__ float enc_squares(const float *y)
{
    float p[8];
#pragma unroll
    for (int k = 0; k < 32; k++)
        p[k / 4] = fmaf(y[k], y[k], k % 4 ? p[k / 4] : 0.0f);
    return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
}

#endif
