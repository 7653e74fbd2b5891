/* row_norm.cuh: the root mean square of a row held by a block of ROW_THREADS threads, the same bits in every launch
 * that normalises rows: thread t has values 8 t .. 8 t + 7 of every 8 * ROW_THREADS. */
#ifndef KVANT_CUDA_ROW_NORM_CUH
#define KVANT_CUDA_ROW_NORM_CUH

#include "devices/cuda/core/cuda_dev.cuh"

enum { ROW_THREADS = 512, ROW_WARPS = ROW_THREADS / 32, ROW_PARTS = 2 };   /* rows of up to 8192 values */

/* 1 / rms of d values; those past the end are zeros.  part: shared memory that nobody uses meanwhile. */
template <int P> static __device__ __forceinline__ float row_scale(const float (*x)[8], int d, float eps, float *part)
{
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < P; i++)
#pragma unroll
        for (int e = 0; e < 8; e++)
            s = fmaf(x[i][e], x[i][e], s);
    s = warp_sum(s);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = s;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROW_WARPS; i++)
        sum += part[i];
    return 1.0f / sqrtf(sum / (float)d + eps);
}

static __device__ __forceinline__ void row_load(const float *x, float *v)
{
    const float4 a = ((const float4 *)x)[0], b = ((const float4 *)x)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

static __device__ __forceinline__ void row_store(float *x, const float *v)
{
    ((float4 *)x)[0] = make_float4(v[0], v[1], v[2], v[3]);
    ((float4 *)x)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

/* v = v * scale * w, the weights read now. */
static __device__ __forceinline__ void row_times(float *v, float scale, const float *w)
{
    float g[8];
    row_load(w, g);
#pragma unroll
    for (int e = 0; e < 8; e++)
        v[e] = v[e] * scale * g[e];
}

/* Rows that fit, 16-byte aligned. */
static inline bool row_fits(const void *x, const void *y, const void *w, int64_t ldx, int64_t ldy, int d)
{
    return d % 8 == 0 && d <= ROW_PARTS * 8 * ROW_THREADS &&
           (((uintptr_t)x | (uintptr_t)y | (uintptr_t)w | (uintptr_t)(4 * (ldx | ldy))) & 15) == 0;
}

#endif
