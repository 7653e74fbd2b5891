/* sketch.cuh: what the encoders of qjl1_256 for many rows share: halves and their rounding errors, norms; the
 * projection as sketch_wgmma.cu wants it. */
#ifndef KVANT_CUDA_SKETCH_CUH
#define KVANT_CUDA_SKETCH_CUH

#include "devices/cuda/encode/encode_job.cuh"

enum { SKETCH_COLUMNS = 256, SKETCH_BYTES = 34, SKETCH_VALUES = GROUP_MAX * SKETCH_COLUMNS };

/* Made once on the host, from the projection.  The lengths are rounded up. */
typedef struct sketch_image {
    uint16_t halves[SKETCH_VALUES];    /* columns, of one length: an operand of wgmma */
    float columns[SKETCH_COLUMNS][GROUP_MAX];       /* as they are, by columns */
    float off, length;              /* greatest length of a half column's errors, of a half column */
    float doubt;                    /* sums in f32 of a row of length 1 nearer to zero: again, in order */
} sketch_image;

/* Makes it in memory of the device, from a projection f32[128][256] on the host. */
int cuda_sketch_image(cuda_device *d, const float *pi, sketch_image *to, kvant_diag *diag);

/* Two values as halves; *off: plus the squares of their rounding errors. */
static __device__ __forceinline__ uint32_t sketch_halves(float a, float b, float *off)
{
    const __half2 h = __floats2half2_rn(a, b);
    const float2 f = __half22float2(h);
    const float x = a - f.x, y = b - f.y;
    *off = fmaf(x, x, fmaf(y, y, *off));
    return *(const uint32_t *)&h;
}

/* The norm of a row whose four lanes have squares' sum `square` in f32: as f64 would round it to bf16.  A row that is
 * not there asks for no doubles. */
static __device__ __forceinline__ float sketch_norm(float square, const float *v, bool there)
{
    const float norm = sqrtf(square);
    const bool unsure = !(square > 1e-30f && square < 1e30f) || (__float_as_uint(norm) - 0x7f80u & 0xffffu) < 0x100u;
    if (!__any_sync(0xffffffffu, unsure && there))
        return norm;
    double all = 0.0;
#pragma unroll
    for (int k = 0; k < 32; k++)
        all += (double)v[k] * v[k];
    all += __shfl_xor_sync(0xffffffffu, all, 1);
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    return (float)sqrt(all);
}

/* Returns <x, column> > 0 as the reference, which adds one after another; at(i): bytes from x to values i .. i + 3. */
template <typename F> static __device__ __forceinline__ bool sketch_in_order(const void *x, const float *column, F at)
{
    float s = 0.0f;
#pragma unroll 8
    for (int i = 0; i < GROUP_MAX; i += 4) {
        const float4 u = *(const float4 *)((const uint8_t *)x + at(i)), w = *(const float4 *)(column + i);
        s += u.x * w.x;
        s += u.y * w.y;
        s += u.z * w.z;
        s += u.w * w.w;
    }
    return s > 0.0f;
}

#endif
