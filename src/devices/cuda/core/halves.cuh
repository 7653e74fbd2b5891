/* halves.cuh: pairs of 16-bit numbers in a word: what decoders and tensor cores hand each other. */
#ifndef KVANT_CUDA_HALVES_CUH
#define KVANT_CUDA_HALVES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "devices/cuda/core/arch.cuh"

/* Two values as bf16. */
static __device__ __forceinline__ uint32_t pair_bf16(float a, float b)
{
    const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
    return *(const uint32_t *)&v;
}

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ uint32_t permute(uint32_t a, uint32_t b, uint32_t how)
{
    return __byte_perm(a, b, how);
}

/* By a selector that is data: nibbles 0 .. 7. */
static __device__ __forceinline__ uint32_t choose_bytes(uint32_t a, uint32_t b, uint32_t how)
{
    uint32_t v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(how));
    return v;
}

/* Eight codes as four pairs of halves: magnitudes chosen by the nibbles of `how` from mirror (upper bytes of magnitudes
 * 0 .. 3 and 4 .. 7, then lower bytes), signs in the bytes' top bits. */
static __device__ __forceinline__ void mirror_pairs(uint32_t *a, uint32_t how, uint32_t signs0, uint32_t signs1,
                                                    const uint4 &mirror)
{
    const uint32_t next = how >> 16;
    const uint32_t h0 = choose_bytes(mirror.x, mirror.y, how) ^ (signs0 & 0x80808080u);
    const uint32_t h1 = choose_bytes(mirror.x, mirror.y, next) ^ (signs1 & 0x80808080u);
    const uint32_t l0 = choose_bytes(mirror.z, mirror.w, how), l1 = choose_bytes(mirror.z, mirror.w, next);
    a[0] = permute(l0, h0, 0x5140);
    a[1] = permute(l0, h0, 0x7362);
    a[2] = permute(l1, h1, 0x5140);
    a[3] = permute(l1, h1, 0x7362);
}

/* The fourth word of a quad (pack.cuh): of four words, or in the upper bits of three. */
static __device__ __forceinline__ void mirror_word4(uint32_t *a, const uint32_t *w, const uint4 &mirror)
{
    mirror_pairs(a, w[3] & 0x77777777u, w[3], w[3] << 4, mirror);
}

static __device__ __forceinline__ void mirror_word3(uint32_t *a, const uint32_t *w, const uint4 &mirror)
{
    mirror_pairs(a, (w[0] >> 6 & 0x03030303u) | (w[1] >> 2 & 0x30303030u), w[2], w[2] << 1, mirror);
}

/* x as two bf16, 16 bits together: its upper half, cut off, and what is left, whose upper half is taken too.  That has
 * x's sign and, as a 2^23rd of x is added, is never 0: so infinite factors do with both what they do with x. */
static __device__ __forceinline__ float split_rest(float x)
{
    return fmaf(x, 1.0f + 0x1p-23f, -__uint_as_float(__float_as_uint(x) & 0xffff0000u));
}

/* The upper halves of two floats, as bf16. */
static __device__ __forceinline__ uint32_t pack_tops(float lo, float hi)
{
    return permute(__float_as_uint(lo), __float_as_uint(hi), 0x7632);
}

static __device__ __forceinline__ uint32_t pack_halves(float lo, float hi)
{
    const __half2 v = __floats2half2_rn(lo, hi);
    return *(const uint32_t *)&v;
}

static __device__ __forceinline__ uint32_t times2(uint32_t a, uint32_t b)
{
    const __half2 v = __hmul2(*(const __half2 *)&a, *(const __half2 *)&b);
    return *(const uint32_t *)&v;
}

/* Two numbers of e4m3, the lower (pair 0) or upper half of a word. */
static __device__ __forceinline__ uint32_t e4m3_halves(uint32_t word, int pair)
{
#if ARCH_E4M3
    uint32_t v;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.rn.f16x2.e4m3x2 %0, l;\n}" : "=r"(v) : "r"(pair ? word >> 16 : word));
    return v;
#else
    const uint32_t x = permute(word, 0, pair ? 0x3424 : 0x1404), size = x & 0x7f007f00u;
    const uint32_t none = (size + 0x01000100u) & 0x80008000u; /* NaN: all bits of the size are set */
    return times2(size >> 1 | (x & 0x80008000u), 0x5c005c00u) | (none - (none >> 6));
#endif
}

static __device__ __forceinline__ float low_half(uint32_t x)
{
    return __low2float(*(const __half2 *)&x);
}

static __device__ __forceinline__ float high_half(uint32_t x)
{
    return __high2float(*(const __half2 *)&x);
}

#endif
