/* encode_book.cuh: what the encoders of the cache formats share: codebooks, roundings, sums over lanes, rotations, the
 * nearest code. */
#ifndef KVANT_CUDA_ENCODE_BOOK_CUH
#define KVANT_CUDA_ENCODE_BOOK_CUH

#define static static __device__
#include "base/half.h"
#undef static
#include "devices/cuda/core/space.cuh"
#include "cards/tables.inc"

/* ---- what a format is made of ---- */

enum enc_kind { ENC_PLAIN, ENC_INT, ENC_RMS32, ENC_NORM128, ENC_POLAR };

template <int F> struct enc_format {
    static constexpr int kind = F == FMT_q8_0 || F == FMT_q4_0                          ? ENC_INT
                                : F == FMT_tbq4_0 || F == FMT_tbq3_0 || F == FMT_turbo4 ? ENC_RMS32
                                : F == FMT_turbo3 || F == FMT_turbo4_66                 ? ENC_NORM128
                                : F == FMT_q4_polar || F == FMT_q4_polar_r              ? ENC_POLAR
                                                                                        : ENC_PLAIN;
    static constexpr int levels = F == FMT_tbq3_0 || F == FMT_turbo3          ? 8
                                  : kind == ENC_PLAIN || kind == ENC_INT ? 1
                                                                         : 16;
};

static __device__ const float enc_tbq4[16] = { TBQ4_CENTROIDS }, enc_tbq3[8] = { TBQ3_CENTROIDS };
static __device__ const float enc_turbo4[16] = { TURBO4_CENTROIDS }, enc_turbo4_mid[15] = { TURBO4_MIDPOINTS };
static __device__ const float enc_turbo3[8] = { TURBO3_CENTROIDS }, enc_turbo3_mid[7] = { TURBO3_MIDPOINTS };
static __device__ const float enc_turbo66[16] = { TURBO4_66_CENTROIDS }, enc_turbo66_mid[15] = { TURBO4_66_MIDPOINTS };
static __device__ const float enc_polar[16] = { POLAR_CENTROIDS }, enc_polar_mid[15] = { POLAR_BOUNDARIES };

/* Centroid k; first[m], between m and m + 1: the format's own boundary, else the midpoint that the search uses. */
template <int F> static __device__ __forceinline__ float enc_centroid(int k)
{
    return F == FMT_tbq4_0       ? enc_tbq4[k]
           : F == FMT_tbq3_0     ? enc_tbq3[k]
           : F == FMT_turbo4     ? enc_turbo4[k]
           : F == FMT_turbo3     ? enc_turbo3[k]
           : F == FMT_turbo4_66  ? enc_turbo66[k]
                                 : enc_polar[k];
}

template <int F> static __device__ __forceinline__ float enc_boundary(int m)
{
    if (F == FMT_turbo4)
        return enc_turbo4_mid[m];
    if (F == FMT_turbo3)
        return enc_turbo3_mid[m];
    if (F == FMT_turbo4_66)
        return enc_turbo66_mid[m];
    if (F == FMT_q4_polar || F == FMT_q4_polar_r)
        return enc_polar_mid[m];
    return 0.5f * (enc_centroid<F>(m) + enc_centroid<F>(m + 1));
}

/* Bins of the code search: bin k holds values v with rint(v * enc_bins) = k - 16, and at most one boundary, which lies
 * 0.14 of a bin or more from the bin's ends: the rounding of the product never leads past it. */
template <int F> static __device__ __forceinline__ constexpr float enc_bins()
{
    return F == FMT_tbq3_0      ? 5.78f
           : F == FMT_turbo3    ? 44.7f
           : F == FMT_turbo4_66 ? 72.09f
           : F == FMT_q4_polar || F == FMT_q4_polar_r ? 6.25f
                                                      : 6.374f;
}

/* What lane k of a warp keeps for all: bin k's boundary, the code below it and the levels on both sides of it (halves:
 * enough to choose among scales), and centroid k. */
typedef struct enc_book {
    float mid, level;
    int base;
    uint32_t sides;
} enc_book;

template <int F> static __device__ __forceinline__ enc_book enc_book_make(void)
{
    constexpr int n = enc_format<F>::levels;
    const int lane = threadIdx.x % 32;
    enc_book b = { -INFINITY, 0.0f, -1, 0 };
    if constexpr (n > 1) {
        const float low = (float)lane - 16.5f;
#pragma unroll
        for (int m = 0; m < n - 1; m++) {
            const float mid = enc_boundary<F>(m), at = mid * enc_bins<F>();
            b.base += at < low;
            b.mid = at >= low && at < low + 1.0f ? mid : b.mid;
        }
        b.base += b.mid > -INFINITY;    /* a boundary inside: the code below it; none: code base + 1 for all */
#pragma unroll
        for (int k = 0; k < n; k++) {
            const uint32_t h = __half_as_ushort(__float2half_rn(enc_centroid<F>(k)));
            b.level = lane == k ? enc_centroid<F>(k) : b.level;
            b.sides |= k == b.base ? h : k == b.base + 1 ? h << 16 : 0;
        }
    }
    return b;
}

/* ---- small pieces ---- */

static __device__ __forceinline__ uint16_t enc_half(float v)
{
    const uint32_t u = __float_as_uint(v);
    const uint16_t nan = (uint16_t)((u >> 16 & 0x8000u) | 0x7e00u | (u >> 13 & 0x1ffu));
    return v == v ? __half_as_ushort(__float2half_rn(v)) : nan;
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
#if __CUDA_ARCH__ >= 890
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

/* A scale as it will be stored: never zero and never infinite. */
static __device__ __forceinline__ uint16_t enc_storable(float s)
{
    const uint32_t h = __half_as_ushort(__float2half_rn(fminf(fabsf(s), 65504.0f)));    /* NaN: the largest too */
    return (uint16_t)((__float_as_uint(s) >> 16 & 0x8000u) | max(h, 1u));
}

static __device__ __forceinline__ float enc_value(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
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

/* Sum over the N lanes of a unit. */
template <int N, typename T> static __device__ __forceinline__ T enc_sum(T v)
{
#pragma unroll
    for (int m = 1; m < N; m *= 2)
        v += __shfl_xor_sync(0xffffffffu, v, m);
    return v;
}

/* The norm of a unit whose squares sum to m, and its inverse, 0 for a norm of nearly nothing.  No branches: codes of
 * such a norm do not matter, but for NaN's. */
static __device__ __forceinline__ float enc_unit_root(float m, float *inverse)
{
    const float by = rsqrtf(m), norm = m == 0.0f || m == INFINITY ? m : m * by;
    *inverse = norm > 1e-10f ? by : 0.0f;
    return norm;
}

/* The norm that upstream stores: of the row over that of its levels; square: theirs, in 2^-28, never 0. */
static __device__ __forceinline__ uint16_t enc_corrected(float norm, int square)
{
    return enc_half(norm * rsqrtf((float)square * 0x1p-28f));
}

/* Unnormalised Hadamard over 32 values: four neighbouring ones in each of 8 lanes. */
static __device__ __forceinline__ void enc_butterfly32(float *v)
{
    const float a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
    v[0] = a + c, v[2] = a - c, v[1] = b + d, v[3] = b - d;
#pragma unroll
    for (int m = 1; m < 8; m *= 2) {
        const float sign = threadIdx.x & m ? -1.0f : 1.0f;
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = fmaf(v[k], sign, __shfl_xor_sync(0xffffffffu, v[k], m)); /* one rounding: the sum or difference */
    }
}

/* The same over 128: value 32 j + 4 l + k in v[4 j + k] of lane l. */
static __device__ __forceinline__ void enc_butterfly128(float *v)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        enc_butterfly32(v + 4 * j);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float a = v[k] + v[4 + k], b = v[k] - v[4 + k], c = v[8 + k] + v[12 + k], d = v[8 + k] - v[12 + k];
        v[k] = a + c, v[8 + k] = a - c, v[4 + k] = b + d, v[12 + k] = b - d;
    }
}

/* ---- nearest codes ---- */

#define ENC_MAGIC 12582912.0f              /* 1.5 * 2^23: adding it rounds |t| < 2^22 to an integer */

/* Bin 1 .. 31 in the low bits, which is what a shuffle looks at; beyond: the last ones, NaN: 31.  All lanes of the warp
 * take part in the functions that read the book. */
static __device__ __forceinline__ int enc_bin(float v, float bins)
{
    const float from_top = __saturatef(fmaf(v, -bins / 30.0f, 0.5f));
    return __float_as_int(fmaf(from_top, -30.0f, ENC_MAGIC + 31.0f));
}

/* Number of boundaries <= v (NaN: all). */
static __device__ __forceinline__ int enc_code(const enc_book &b, float v, float bins)
{
    const int bin = enc_bin(v, bins), base = __shfl_sync(0xffffffffu, b.base, bin);
    return v < __shfl_sync(0xffffffffu, b.mid, bin) ? base : base + 1;
}

/* The nearest integer that has a code. */
template <int F> static __device__ __forceinline__ float enc_clamped(float t)
{
    constexpr float lo = F == FMT_q8_0 ? -127.0f : -8.0f, hi = F == FMT_q8_0 ? 127.0f : 7.0f;
    float r = t + ENC_MAGIC;
    r -= ENC_MAGIC;
    r = r > lo ? r : lo;               /* NaN too */
    return r > hi ? hi : r;
}

#endif
