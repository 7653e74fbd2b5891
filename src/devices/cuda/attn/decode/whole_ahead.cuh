/* whole_ahead.cuh: norm and rotation of a head by a warp, where attention's launch does them (qk.cuh), or one before it
 * (attn_front.cu): the bits of norm.cu's and elementwise.cu's launches.  Lane l has values V*l .. V*l + V - 1. */
#ifndef KVANT_CUDA_WHOLE_AHEAD_CUH
#define KVANT_CUDA_WHOLE_AHEAD_CUH

#include "devices/cuda/attn/prep.cuh"
#include "devices/cuda/encode/encode_math.cuh"
#include "devices/cuda/ops/qk.cuh"

/* Lanes of which the rotation's halves are made, where it takes value j with value j + n_rot/2. */
template <int V> static __host__ __device__ __forceinline__ int turn_lanes(const head_ahead &a)
{
    return a.n_rot / 2 / V;
}

/* Whether a warp can: pairs lie in one lane, or in two whose numbers differ in one bit. */
static inline bool ahead_fits(const head_ahead &a, int d)
{
    const int v = d / 32, lanes = a.n_rot / 2 / v;
    return a.n_rot <= d && a.n_rot % (2 * v) == 0 && (!a.neox || (lanes & (lanes - 1)) == 0);
}

/* The cosine and sine for each of a lane's values; by: of its part that comes from the other value of the pair. */
template <int V> struct turn {
    float c[V], s[V];
};

/* Both values of a pair have one angle: each of two lanes makes half of theirs, or a lane those of its pairs. */
template <int V> static __device__ __forceinline__ turn<V> turn_at(const head_ahead &a, int token, int lane)
{
    turn<V> t;
    constexpr int N = V / 2;
    float c[2][N], s[2][N]; /* this lane's, the other one's */
    const int lanes = turn_lanes<V>(a), upper = (lane & lanes) != 0;
    const int first = a.neox ? lane % lanes * V + upper * N : lane * N;
    const float pos = (float)a.pos[token];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float angle = pos * (lane < 2 * lanes ? a.inv_freq[first + i] : 0.0f);
        c[0][i] = cosf(angle) * a.mscale;
        s[0][i] = sinf(angle) * a.mscale;
        c[1][i] = __shfl_xor_sync(0xffffffffu, c[0][i], lanes);
        s[1][i] = __shfl_xor_sync(0xffffffffu, s[0][i], lanes);
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        const bool mine = i / N == upper;
        t.c[i] = !a.neox ? c[0][i / 2] : mine ? c[0][i % N] : c[1][i % N];
        t.s[i] = !a.neox ? s[0][i / 2] : mine ? s[0][i % N] : s[1][i % N];
    }
    return t;
}

/* x * c - y * s of a pair's first value, y * s + x * c of its second one. */
static __device__ __forceinline__ float turn_one(float x, float other, float c, float s, bool first)
{
    return first ? x * c - other * s : other * s + x * c;
}

template <int V>
static __device__ __forceinline__ void head_turn(const head_ahead &a, const turn<V> &t, float *x, int lane)
{
    const int lanes = turn_lanes<V>(a);
    float other[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        other[i] = a.neox ? __shfl_xor_sync(0xffffffffu, x[i], lanes) : x[i ^ 1];
    if (lane >= 2 * lanes)
        return;
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] = turn_one(x[i], other[i], t.c[i], t.s[i], a.neox ? lane < lanes : i % 2 == 0);
}

/* A lane's values of the head at `from` after norm (NULL: not) and rotation; ahead: what
 * warp_ask has of it. */
template <int V>
static __device__ __forceinline__ void head_ready(const head_ahead &a, const turn<V> &t, const float *norm, float eps,
                                                  const float *from, const float *ahead, float *x, int lane)
{
    head_load<V>(from, x, lane);
    if (norm) {
        const float scale = 1.0f / sqrtf(warp_squares_of<V>(ahead) / (float)(32 * V) + eps);
#pragma unroll
        for (int i = 0; i < V; i++)
            x[i] = x[i] * scale * norm[lane * V + i];
    }
    head_turn<V>(a, t, x, lane);
}

template <int V>
static __device__ __forceinline__ void head_ready(const head_ahead &a, const turn<V> &t, const float *norm, float eps,
                                                  const float *from, float *x, int lane)
{
    float ahead[V] = {};
    if (norm)
        warp_ask<V>(from, ahead, lane);
    head_ready<V>(a, t, norm, eps, from, ahead, x, lane);
}

/* A lane's values of a row, as the exact tail has them. */
template <int V> static __device__ __forceinline__ void store_row(uint16_t *to, const float *x)
{
    uint32_t w[V / 2];
#pragma unroll
    for (int i = 0; i < V; i += 2)
        w[i / 2] = enc_half(x[i]) | (uint32_t)enc_half(x[i + 1]) << 16;
    if constexpr (V == 2) {
        *(uint32_t *)to = w[0];
    } else {
#pragma unroll
        for (int i = 0; i < V / 2; i += 2)
            *(uint2 *)(to + 2 * i) = make_uint2(w[i], w[i + 1]);
    }
}

#endif
