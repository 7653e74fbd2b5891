/* query.cuh: rotations of heads in registers, in the order of operations of space.cuh, hence with the same bits: the
 * queries of up to 8 heads to B operands of mma.m16n8k16 by one warp, and sums back to real space.
 *
 * Lane 4g + t holds of head g the values 32c + 8t + e, c = 0 .. D/32 - 1, e = 0 .. 7; or (mixed, the order of the
 * trellis' operands) 128b + 32t + 8c + e of group b, c = 0 .. 3.  A lane's values are in ascending order. */
#ifndef KVANT_CUDA_QUERY_CUH
#define KVANT_CUDA_QUERY_CUH

#include "devices/cuda/hopper.cuh"
#include "devices/cuda/prep.cuh"

/* Bit i of word i/32: sign i is negative. */
typedef struct sign_words {
    uint32_t w[4];
} sign_words;

template <int N> __host__ __device__ constexpr sign_words words_of(const float (&signs)[N])
{
    sign_words o = { { 0, 0, 0, 0 } };
    for (int i = 0; i < 128; i++)
        o.w[i / 32] |= (uint32_t)(signs[i % N] < 0.0f) << (i % 32);
    return o;
}

/* Values e of 8 in place c (values 32c + 8t + e) get their signs. */
static __device__ __forceinline__ void sign_values(float *x, uint32_t word, int t)
{
#pragma unroll
    for (int e = 0; e < 8; e++)
        x[e] = __uint_as_float(__float_as_uint(x[e]) ^ ((word >> (8 * t + e)) << 31));
}

template <int N> static __device__ __forceinline__ void sign_lane(float *x, const sign_words &s, bool mixed, int t)
{
    const uint32_t mine = t == 0 ? s.w[0] : t == 1 ? s.w[1] : t == 2 ? s.w[2] : s.w[3];
#pragma unroll
    for (int c = 0; c < N / 8; c++)
        sign_values(x + 8 * c, mixed ? mine : s.w[c % 4], mixed ? c % 4 : t);
}

/* One butterfly stage between values `apart` places apart in a lane; between lanes whose numbers differ in `mask`. */
template <int N> static __device__ __forceinline__ void stage_places(float *x, int apart)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (!(i & apart)) {
            const float a = x[i], b = x[i + apart];
            x[i] = a + b;
            x[i + apart] = a - b;
        }
}

template <int N> static __device__ __forceinline__ void stage_lanes(float *x, int mask, int lane)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float other = __shfl_xor_sync(0xffffffffu, x[i], mask);
        x[i] = lane & mask ? other - x[i] : x[i] + other;
    }
}

template <int N> static __device__ __forceinline__ void stage_blocks(float *x)
{
    stage_places<N>(x, N < 32 ? 1 : 8);
    stage_places<N>(x, N < 32 ? 1 : 16);
}

/* prep_q of a space on D values of each of 8 heads. */
template <int D> static __device__ __forceinline__ void rotate_heads(float *x, int space, bool mixed, int lane)
{
    constexpr int N = D / 4;
    constexpr float signs1[128] = { ROTATE_SIGNS1 }, signs2[128] = { ROTATE_SIGNS2 }, signs32[32] = { ROTATE_SIGNS32 };
    constexpr sign_words s1 = words_of(signs1), s2 = words_of(signs2), s32 = words_of(signs32);
    const float k = port_bits(space == SPACE_P32 ? 0x3e3504f3u : space == SPACE_R128 ? 0x3db504f3u : 0x3c000000u);
    if (space == SPACE_REAL)
        return;
    if (space == SPACE_P32)
        sign_lane<N>(x, s32, mixed, lane % 4);
    else if (space == SPACE_R128)
        sign_lane<N>(x, s1, mixed, lane % 4);
#pragma unroll
    for (int apart = 1; apart < 8; apart *= 2)
        stage_places<N>(x, apart);
    if (N >= 32 && mixed)
        stage_blocks<N>(x);
    stage_lanes<N>(x, 1, lane);
    stage_lanes<N>(x, 2, lane);
    if (N >= 32 && !mixed && space != SPACE_P32)
        stage_blocks<N>(x);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] *= k;
    if (space == SPACE_R128)
        sign_lane<N>(x, s2, mixed, lane % 4);
}

/* The operand of a head at `from` (lanes of heads that are not there: NULL) times `by`, rotated to `space`. */
template <int D>
static __device__ __forceinline__ void query_operand(const float *from, int space, bool mixed, float by, uint32_t *q,
                                                     int lane)
{
    const int t = lane % 4;
    float x[D / 4];
#pragma unroll
    for (int c = 0; c < D / 32; c++)
#pragma unroll
        for (int e = 0; e < 8; e++)
            x[8 * c + e] = from ? from[(mixed ? c / 4 * 128 + 32 * t + 8 * (c % 4) : 32 * c + 8 * t) + e] : 0.0f;
    if (D >= 128 || space == SPACE_P32)
        rotate_heads<D>(x, space, mixed, lane);
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        q[i] = query_half(x[2 * i] * by) | (uint32_t)query_half(x[2 * i + 1] * by) << 16;
}

/* finish_out of a head by one warp: lane l holds values V*l .. V*l + V - 1. */
template <int V> static __device__ __forceinline__ void warp_rotate_back(int space, float *x, int lane)
{
    const int size = space == SPACE_P32 ? 32 : 128;
    const float k = port_bits(space == SPACE_P32 ? 0x3e3504f3u : space == SPACE_R128 ? 0x3db504f3u : 0x3c000000u);
    if (space == SPACE_REAL)
        return;
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] *= space == SPACE_R128 ? space_signs2[(lane * V + i) % size] : 1.0f;
    warp_butterfly<V>(x, size, lane);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = (lane * V + i) % size;
        x[i] = x[i] * k * (space == SPACE_P32 ? space_signs32[j] : space == SPACE_R128 ? space_signs1[j] : 1.0f);
    }
}

#endif
