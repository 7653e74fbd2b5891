/* row_norm.cuh: the root mean square of a row held by a block of ROW_THREADS threads, the same bits in every launch
 * that normalises rows: thread t has values 8 t .. 8 t + 7 of every 8 * ROW_THREADS. */
#ifndef KVANT_CUDA_ROW_NORM_CUH
#define KVANT_CUDA_ROW_NORM_CUH

#include <cuda_bf16.h>
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

static __device__ __forceinline__ void row_load(const uint16_t *x, float *v)
{
    bf16_eight(*(const uint4 *)x, v);
}

static __device__ __forceinline__ void row_store(float *x, const float *v)
{
    ((float4 *)x)[0] = make_float4(v[0], v[1], v[2], v[3]);
    ((float4 *)x)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

/* As bf16. */
static __device__ __forceinline__ uint4 row_bf16(const float *v)
{
    union {
        __nv_bfloat162 pair[4];
        uint4 word;
    } o;
#pragma unroll
    for (int i = 0; i < 4; i++)
        o.pair[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
    return o.word;
}

/* A row of d values in f32 times x by a warp, summed as gemv.cu does; UNROLL: chunks of a lane on their way. */
template <int UNROLL> static __device__ __forceinline__ float row_dot(const float *w, const float *x, int d)
{
    float acc = 0.0f;
#pragma unroll UNROLL
    for (int c = threadIdx.x % 32; c < d / 8; c += 32) {
        float a[8], b[8];
        row_load(w + 8 * c, a);
        row_load(x + 8 * c, b);
#pragma unroll
        for (int i = 0; i < 8; i++)
            acc = fmaf(a[i], b[i], acc);
    }
    return warp_sum(acc);
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

/* y = the row v times 1 / rms and the weights w: what norms end with; halves: the same as bf16.  Each may be NULL. */
template <int P>
static __device__ __forceinline__ void row_finish(float (*v)[8], int d, float eps, float *part, const float *w,
                                                  float *y, uint16_t *halves)
{
    const float r = row_scale<P>(v, d, eps, part);
#pragma unroll
    for (int i = 0; i < P; i++) {
        const int at = 8 * (threadIdx.x + i * ROW_THREADS);
        if (at >= d)
            continue;
        row_times(v[i], r, w + at);
        if (y)
            row_store(y + at, v[i]);
        if (halves)
            *(uint4 *)(halves + at) = row_bf16(v[i]);
    }
}

/* Rows that fit, 16-byte aligned. */
static inline bool row_fits(const void *x, const void *y, const void *w, int64_t ldx, int64_t ldy, int d)
{
    return d % 8 == 0 && d <= ROW_PARTS * 8 * ROW_THREADS &&
           (((uintptr_t)x | (uintptr_t)y | (uintptr_t)w | (uintptr_t)(4 * (ldx | ldy))) & 15) == 0;
}

/* norm_rms or norm_add_rms of whole rows that fit. */
typedef struct row_norm {
    float *x;                      /* changed where something is added */
    const float *add, *w;          /* add: NULL for nothing, else dense rows as x's */
    const uint16_t *halves;        /* what is added, as bf16, in place of add; or NULL */
    float *y;
    int64_t ldx, ldy;
    int n, d;
    float eps;
} row_norm;
bool cuda_row_norm(const kvant_norm_rms_args *a, row_norm *o);
bool cuda_row_norm_add(const kvant_norm_add_rms_args *a, row_norm *o);

/* o.y may be NULL; rows[n][d]: y as bf16, or NULL. */
void cuda_row_norm_run(const cuda_device *d, const row_norm &o, uint16_t *rows);

#endif
