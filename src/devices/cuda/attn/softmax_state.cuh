/* softmax_state.cuh: what a lane carries of a running softmax: maxima, weights and TILES tiles of weighted sums; and
 * what the kernels on tensor cores do with capped scores and sinks.  Scores are in log2 units. */
#ifndef KVANT_CUDA_SOFTMAX_STATE_CUH
#define KVANT_CUDA_SOFTMAX_STATE_CUH

#include "devices/cuda/attn/prep.cuh"

#define NOTHING (-3e38f) /* the maximum before any score */

template <int TILES> struct softmax_state {
    float m[2], l[2], o[TILES][4];
};

template <int TILES> static __device__ __forceinline__ void state_clear(softmax_state<TILES> &a)
{
    a.m[0] = a.m[1] = NOTHING;
    a.l[0] = a.l[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < TILES; i++)
        a.o[i][0] = a.o[i][1] = a.o[i][2] = a.o[i][3] = 0.0f;
}

/* cap * tanh(s / cap), where tanh(x) is 1 - 2 / (1 + exp(2 x)): the error is near 2^-22 of the cap. */
static __device__ __forceinline__ float score_capped(const attn_call &c, float s)
{
    const float top = c.cap * PREP_LOG2E;
    return top - __fdividef(2.0f * top, 1.0f + exp2_fast(s * c.cap_rate));
}

/* Returns the weight that a sink adds to a sum of weights relative to the maximum m. */
static __device__ __forceinline__ float sink_weight(float sink, float m)
{
    return exp2_fast(sink * PREP_LOG2E - m);
}

#endif
