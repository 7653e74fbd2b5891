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

/* Returns true if a warp can: pairs lie in one lane, or in two whose numbers differ in one bit. */
static inline bool ahead_fits(const head_ahead &a, int d)
{
    const int v = d / 32, lanes = a.n_rot / 2 / v;
    return a.n_rot <= d && a.n_rot % (2 * v) == 0 && (!a.neox || (lanes & (lanes - 1)) == 0);
}

/* The cosine and sine for each of a lane's values; s: of its part that comes from the other value of the pair, with
 * the sign that this part has. */
template <int V> struct turn {
    float c[V], s[V];
    int lanes; /* turn_lanes */
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
        const bool mine = i / N == upper, second = a.neox ? lane >= lanes : i % 2;
        t.c[i] = !a.neox ? c[0][i / 2] : mine ? c[0][i % N] : c[1][i % N];
        t.s[i] = !a.neox ? s[0][i / 2] : mine ? s[0][i % N] : s[1][i % N];
        t.s[i] = second ? t.s[i] : -t.s[i];
    }
    t.lanes = lanes;
    return t;
}

/* x * c - y * s of a pair's first value, x * c + y * s of its second one. */
template <int V>
static __device__ __forceinline__ void head_turn(const head_ahead &a, const turn<V> &t, float *x, int lane)
{
    float other[V];
    if (a.neox)
#pragma unroll
        for (int i = 0; i < V; i++)
            other[i] = __shfl_xor_sync(0xffffffffu, x[i], t.lanes);
    else
#pragma unroll
        for (int i = 0; i < V; i++)
            other[i] = x[i ^ 1];
    if (lane >= 2 * t.lanes)
        return;
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] = x[i] * t.c[i] + other[i] * t.s[i];
}

/* A norm's weights for a lane's values; there may be no norm. */
template <int V> struct lane_norm {
    bool some;
    float eps, gain[V];
};

template <int V> static __device__ __forceinline__ lane_norm<V> lane_norm_of(const float *weights, float eps, int lane)
{
    lane_norm<V> o = { weights != NULL, eps };
    if (o.some)
        head_load<V>(weights, o.gain, lane);
    return o;
}

/* A lane's values x of a head after norm and rotation; asked: what warp_ask has of the head, of a norm. */
template <int V>
static __device__ __forceinline__ void head_ready(const head_ahead &a, const turn<V> &t, const lane_norm<V> &norm,
                                                  const float *asked, float *x, int lane)
{
    if (norm.some) {
        const float scale = 1.0f / sqrtf(warp_squares_of<V>(asked) / (float)(32 * V) + norm.eps);
#pragma unroll
        for (int i = 0; i < V; i++)
            x[i] = x[i] * scale * norm.gain[i];
    }
    head_turn<V>(a, t, x, lane);
}

/* As above, for the head at `from`. */
template <int V>
static __device__ __forceinline__ void head_ready(const head_ahead &a, const turn<V> &t, const float *norm, float eps,
                                                  const float *from, float *x, int lane)
{
    float asked[V] = {};
    head_load<V>(from, x, lane);
    if (norm)
        warp_ask<V>(from, asked, lane);
    head_ready<V>(a, t, lane_norm_of<V>(norm, eps, lane), asked, x, lane);
}

/* A value of a row of 16 bits: of pages of bf16, else of the exact tail or of pages of f16. */
static __device__ __forceinline__ uint32_t row_value(float x, bool bf16)
{
    return bf16 ? f32_to_bf16(x) : enc_half(x);
}

/* A lane's values of a row. */
template <int V> static __device__ __forceinline__ void store_row(uint16_t *to, const float *x, bool bf16)
{
    uint32_t w[V / 2];
#pragma unroll
    for (int i = 0; i < V; i += 2)
        w[i / 2] = row_value(x[i], bf16) | row_value(x[i + 1], bf16) << 16;
    if constexpr (V == 2) {
        *(uint32_t *)to = w[0];
    } else {
#pragma unroll
        for (int i = 0; i < V / 2; i += 2)
            *(uint2 *)(to + 2 * i) = make_uint2(w[i], w[i + 1]);
    }
}

#endif
