/* rope.cuh: the rotation of one pair, the same in every launch that rotates. */
#ifndef KVANT_CUDA_ROPE_CUH
#define KVANT_CUDA_ROPE_CUH

#include "devices/cuda/core/cuda_dev.cuh"

static __device__ __forceinline__ void rope_turn(float *x0, float *x1, float c, float s)
{
    const float v0 = *x0, v1 = *x1;
    *x0 = v0 * c - v1 * s;
    *x1 = v0 * s + v1 * c;
}

static __device__ __forceinline__ void rope_pair(float *x0, float *x1, float angle, float mscale)
{
    rope_turn(x0, x1, cosf(angle) * mscale, sinf(angle) * mscale);
}

#endif
