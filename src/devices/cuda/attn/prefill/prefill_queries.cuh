/* prefill_queries.cuh: queries of a prompt to halves, before attn_prefill.cu's kernel reads them: as they are, and as
 * encoded keys want them, rotated (sketches: prefill_sketch.cuh). */
#ifndef KVANT_CUDA_PREFILL_QUERIES_CUH
#define KVANT_CUDA_PREFILL_QUERIES_CUH

#include "devices/cuda/attn/prefill/attn_prefill.cuh"
#include "devices/cuda/attn/prep.cuh"

enum { QUERY_VALUES = 16, QUERY_THREADS = 128 }; /* of a lane */

/* Halves of 16 values times `by`. */
static __device__ __forceinline__ void query_store(uint16_t *to, const float *x, float by)
{
    uint32_t w[QUERY_VALUES / 2];
#pragma unroll
    for (int i = 0; i < QUERY_VALUES / 2; i++)
        w[i] = query_pair(x[2 * i] * by, x[2 * i + 1] * by);
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
