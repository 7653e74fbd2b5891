/* norm.cu: norm_rms, norm_add_rms, norm_l2, norm_gated: one block per group of d values.  Sums of squares in f32 over a
 * fixed tree (thread-strided, then shuffles, then warps in order). */
#include "devices/cuda/cuda_dev.cuh"

enum { THREADS = 128, WARPS = THREADS / 32 };

static __device__ float block_sum(float v)
{
    __shared__ float part[WARPS];
    v = warp_sum(v);
    __syncthreads();                   /* part may still be read from the sum before */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < WARPS; i++)
        sum += part[i];
    return sum;
}

static __device__ float square_sum(const float *x, int d)
{
    float s = 0.0f;
    for (int e = threadIdx.x; e < d; e += THREADS)
        s = fmaf(x[e], x[e], s);
    return block_sum(s);
}

static __global__ void norm_rms_kernel(kvant_norm_rms_args a)
{
    const int64_t i = blockIdx.x / a.h, j = blockIdx.x % a.h;
    const float *x = a.x + i * a.ldx + j * a.gx;
    float *y = a.y + i * a.ldy + j * a.gy;
    const float scale = 1.0f / sqrtf(square_sum(x, a.d) / (float)a.d + a.eps);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        y[e] = x[e] * scale * a.w[e];
}

static int norm_rms_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_rms_args *a = (const kvant_norm_rms_args *)args;
    (void)diag;
    if (a->n > 0)
        norm_rms_kernel<<<(unsigned)(a->n * (int64_t)a->h), THREADS, 0, d->stream>>>(*a);
    return KVANT_OK;
}

static __global__ void norm_add_rms_kernel(kvant_norm_add_rms_args a)
{
    float *x = a.x + (int64_t)blockIdx.x * a.d, *y = a.y + (int64_t)blockIdx.x * a.d, s = 0.0f;
    const float *add = a.add + (int64_t)blockIdx.x * a.d;
    for (int e = threadIdx.x; e < a.d; e += THREADS) {
        const float v = x[e] + add[e];
        x[e] = v;
        s = fmaf(v, v, s);
    }
    const float scale = 1.0f / sqrtf(block_sum(s) / (float)a.d + a.eps);
    for (int e = threadIdx.x; e < a.d; e += THREADS)       /* each thread reads what it wrote */
        y[e] = x[e] * scale * a.w[e];
}

static int norm_add_rms_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_add_rms_args *a = (const kvant_norm_add_rms_args *)args;
    (void)diag;
    if (a->n > 0)
        norm_add_rms_kernel<<<(unsigned)a->n, THREADS, 0, d->stream>>>(*a);
    return KVANT_OK;
}

static __global__ void norm_l2_kernel(kvant_norm_l2_args a)
{
    float *x = a.x + (int64_t)(blockIdx.x / a.h) * a.ldx + (int64_t)(blockIdx.x % a.h) * a.gx;
    const float length = sqrtf(square_sum(x, a.d));
    const float scale = 1.0f / (length < a.eps ? a.eps : length);      /* a NaN length stays NaN */
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        x[e] *= scale;
}

static int norm_l2_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_l2_args *a = (const kvant_norm_l2_args *)args;
    (void)diag;
    if (a->n > 0)
        norm_l2_kernel<<<(unsigned)(a->n * (int64_t)a->h), THREADS, 0, d->stream>>>(*a);
    return KVANT_OK;
}

static __global__ void norm_gated_kernel(kvant_norm_gated_args a)
{
    const int64_t i = blockIdx.x / a.h, j = blockIdx.x % a.h;
    const float *o = a.o + (i * a.h + j) * a.dv, *z = a.z + i * a.ldz + j * a.dv;
    float *y = a.y + (i * a.h + j) * a.dv;
    const float scale = 1.0f / sqrtf(square_sum(o, a.dv) / (float)a.dv + a.eps);
    for (int e = threadIdx.x; e < a.dv; e += THREADS)
        y[e] = o[e] * scale * a.w[e] * (z[e] / (1.0f + expf(-z[e])));
}

static int norm_gated_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_gated_args *a = (const kvant_norm_gated_args *)args;
    (void)diag;
    if (a->n > 0)
        norm_gated_kernel<<<(unsigned)(a->n * (int64_t)a->h), THREADS, 0, d->stream>>>(*a);
    return KVANT_OK;
}

const cuda_op cuda_op_norm_rms = { NULL, NULL, norm_rms_run };
const cuda_op cuda_op_norm_add_rms = { NULL, NULL, norm_add_rms_run };
const cuda_op cuda_op_norm_l2 = { NULL, NULL, norm_l2_run };
const cuda_op cuda_op_norm_gated = { NULL, NULL, norm_gated_run };
