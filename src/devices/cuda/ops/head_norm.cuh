/* head_norm.cuh: a group of up to HEAD values held by a warp, value lane + 32 k in register k; its sum of squares runs
 * over k, then over the lanes by shuffles, the same bits in every launch that normalises heads. */
#ifndef KVANT_CUDA_HEAD_NORM_CUH
#define KVANT_CUDA_HEAD_NORM_CUH

#include "devices/cuda/core/cuda_dev.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, HEAD = 256, SLOTS = HEAD / 32 };

typedef struct head {
    float v[SLOTS];
} head;

static __device__ __forceinline__ head head_load(const float *x, int d)
{
    head h;
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        h.v[k] = (int)threadIdx.x % 32 + 32 * k < d ? x[threadIdx.x % 32 + 32 * k] : 0.0f;
    return h;
}

static __device__ __forceinline__ void head_store(float *y, const head &h, int d)
{
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        if ((int)threadIdx.x % 32 + 32 * k < d)
            y[threadIdx.x % 32 + 32 * k] = h.v[k];
}

static __device__ __forceinline__ float head_squares(const head &h)
{
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        s = fmaf(h.v[k], h.v[k], s);
    return warp_sum(s);
}

static __device__ __forceinline__ void head_rms(head *h, const float *w, int d, float eps)
{
    const float scale = 1.0f / sqrtf(head_squares(*h) / (float)d + eps);
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        if ((int)threadIdx.x % 32 + 32 * k < d)
            h->v[k] = h->v[k] * scale * w[threadIdx.x % 32 + 32 * k];
}

/* Group of this warp: row and head; false past the end. */
static __device__ __forceinline__ bool group_at(int n, int h, int64_t *i, int *j)
{
    const int64_t g = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32;
    *i = g / h;
    *j = (int)(g % h);
    return g < n * (int64_t)h;
}

#endif
