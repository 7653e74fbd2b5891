/* int8_acts.cuh: activations in 8 bits: eight values of a thread, four threads a group of 32. */
#ifndef KVANT_CUDA_INT8_ACTS_CUH
#define KVANT_CUDA_INT8_ACTS_CUH

#include "devices/cuda/matmul/int8/int8.cuh"

static __device__ __forceinline__ uint32_t pack4(const int *q)
{
    return (q[0] & 255) | (q[1] & 255) << 8 | (q[2] & 255) << 16 | (uint32_t)q[3] << 24;
}

/* As matmul_drive.h has it on the CPU: a group with a NaN or Inf has the scale NaN and no integers.  The integers of
 * values v[8] of chunk c go to `to` + 32 (c / 4), in the order in which lanes want them: those of
 * values 4 k .. 4 k + 3 and of 16 + 4 k .. side by side.  All lanes take part; the last of four threads returns the
 * group's numbers to be stored. */
static __device__ __forceinline__ int8_group int8_chunk(const float *v, int c, bool live, int8_t *to)
{
    uint32_t bits = 0; /* of the largest magnitude: those of NaN and Inf are above all others */
    int q[8], sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        bits = max(bits, __float_as_uint(fabsf(v[i])));
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, 1));
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, 2));
    const bool finite = bits < 0x7f800000u;
    const float top = __uint_as_float(bits);
    const float up = finite && top > 1e-30f ? 127.0f / top : 0.0f; /* below, 127 / top could overflow */
#pragma unroll
    for (int i = 0; i < 8; i++) {
        q[i] = __float2int_rn(v[i] * up);
        sum += q[i];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    const int other = __shfl_xor_sync(0xffffffffu, sum, 2);
    if (live) {
        const int t = c % 4;
        uint32_t *at = (uint32_t *)(to + c / 4 * 32 + 16 * (t & 1) + 4 * (t >> 1));
        at[0] = pack4(q);
        at[2] = pack4(q + 4);
    }
    const float scale = finite ? top / 127.0f : __uint_as_float(0x7fc00000u);
    return make_float4(scale, (float)other, (float)sum, (float)(sum + other));
}

#endif
