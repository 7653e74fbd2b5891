/* prefill_queries.cuh: queries of a prompt to halves, before attn_prefill.cu's kernel reads them: as they are, and as
 * encoded keys want them, rotated or as sketches. */
#ifndef KVANT_CUDA_PREFILL_QUERIES_CUH
#define KVANT_CUDA_PREFILL_QUERIES_CUH

#include "devices/cuda/attn_prefill.cuh"
#include "devices/cuda/prep.cuh"

enum { SKETCH_HEADS = 16, SKETCH_DIM = 128, SKETCH_WIDTH = 256 };
enum { QUERY_VALUES = 16, QUERY_THREADS = 128 }; /* of a lane */

/* Sketches of SKETCH_HEADS (token, head)s by a block, a column of the projection to a thread; and the queries.  While
 * tiles are made, where they are. */
static __global__ void __launch_bounds__(SKETCH_WIDTH) prefill_sketch(prefill_job p)
{
    __shared__ __align__(16) float x[SKETCH_DIM][SKETCH_HEADS];
    const int first = (int)blockIdx.x * SKETCH_HEADS, n = min(SKETCH_HEADS, p.seqs.n_tokens * p.h - first);
    const float by = p.scale * PREP_LOG2E;
    const float by_k = by * (p.k.cls == PACK_SIGN ? port_bits(0x3ba06c99u) : side_scale(p.k.s));
    const float *column = p.k.s.param + threadIdx.x;
    float y[SKETCH_HEADS] = {};
    pdl_go();
    if (!p.tiles)
        pdl_wait();
    for (int i = threadIdx.x; i < SKETCH_HEADS * SKETCH_DIM; i += SKETCH_WIDTH) {
        const int k = i / SKETCH_DIM, j = i % SKETCH_DIM, head = first + k;
        const float v = k < n ? p.q[head / p.h * p.ldq + head % p.h * p.gq + j] : 0.0f;
        x[j][k] = v;
        if (k < n)
            p.qraw[(size_t)head * SKETCH_DIM + j] = query_half(v * by);
    }
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < SKETCH_DIM; i++) {
        const float c = column[i * SKETCH_WIDTH];
#pragma unroll
        for (int k = 0; k < SKETCH_HEADS; k += 4) {
            const float4 v = *(const float4 *)&x[i][k];
            y[k] = fmaf(v.x, c, y[k]);
            y[k + 1] = fmaf(v.y, c, y[k + 1]);
            y[k + 2] = fmaf(v.z, c, y[k + 2]);
            y[k + 3] = fmaf(v.w, c, y[k + 3]);
        }
    }
#pragma unroll
    for (int k = 0; k < SKETCH_HEADS; k++)
        if (k < n)
            p.qp[(size_t)(first + k) * SKETCH_WIDTH + threadIdx.x] = query_half(y[k] * by_k);
    if (p.tiles && blockIdx.x == gridDim.x - 1)
        pdl_wait();
}

/* Halves of 16 values times `by`: as query_half has them. */
static __device__ __forceinline__ void query_store(uint16_t *to, const float *x, float by)
{
    const __half2 most = __float2half2_rn(65504.0f);
    uint32_t w[QUERY_VALUES / 2];
#pragma unroll
    for (int i = 0; i < QUERY_VALUES / 2; i++) {
        const __half2 v = __floats2half2_rn(x[2 * i] * by, x[2 * i + 1] * by);
        const __half2 o = __hmax2_nan(__hmin2_nan(v, most), __hneg2(most));
        w[i] = *(const uint32_t *)&o;
    }
    ((uint4 *)to)[0] = make_uint4(w[0], w[1], w[2], w[3]);
    ((uint4 *)to)[1] = make_uint4(w[4], w[5], w[6], w[7]);
}

/* A lane to QUERY_VALUES values of a (token, head), D values each.  While tiles are made, where they are: then one
 * block waits for those. */
template <int D> static __global__ void __launch_bounds__(QUERY_THREADS) prefill_queries(prefill_job p)
{
    constexpr int each = D / QUERY_VALUES;
    const unsigned n = blockIdx.x * QUERY_THREADS + threadIdx.x, i = n / each, token = i / (unsigned)p.h;
    const int lane = (int)(n % each);
    const float by = p.scale * PREP_LOG2E, by_k = by * side_scale(p.k.s);
    const bool some = token < (unsigned)p.seqs.n_tokens;
    const float *q = p.q + (some ? token * p.ldq + (i - token * (unsigned)p.h) * p.gq : 0) + lane * QUERY_VALUES;
    const size_t at = (size_t)n * QUERY_VALUES;
    float x[QUERY_VALUES];
    pdl_go();
    if (!p.tiles)
        pdl_wait();
    if (((uintptr_t)q & 15) == 0) {
#pragma unroll
        for (int k = 0; k < QUERY_VALUES / 4; k++) {
            const float4 v = ((const float4 *)q)[k];
            x[4 * k] = v.x, x[4 * k + 1] = v.y, x[4 * k + 2] = v.z, x[4 * k + 3] = v.w;
        }
    } else {
#pragma unroll
        for (int k = 0; k < QUERY_VALUES; k++)
            x[k] = q[k];
    }
    if (some)
        query_store(p.qraw + at, x, by);
    warp_rotate<QUERY_VALUES>(p.k.s.space, x, lane);
    if (some)
        query_store(p.qp + at, x, by_k);
    if (p.tiles && blockIdx.x == gridDim.x - 1)
        pdl_wait();
}

#endif
