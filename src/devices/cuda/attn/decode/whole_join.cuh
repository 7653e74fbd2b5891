/* whole_join.cuh: the sums of attn_whole.cu's warps to results.
 *
 * Every warp leaves a piece (decode_merge.cuh) in its slot.  A warp for each head joins those of its block; in a
 * cluster it leaves both parts, in acc space and of exact keys, in the block's first two slots, and a warp of one of
 * the blocks joins these.  The order is that of the warps and blocks. */
#ifndef KVANT_CUDA_WHOLE_JOIN_CUH
#define KVANT_CUDA_WHOLE_JOIN_CUH

#include "devices/cuda/attn/decode/decode_warp.cuh"

/* Blocks of a unit, at most. */
enum { WHOLE_BLOCKS = 8 };

#if ARCH_GROUPS

/* A head's sums in a warp: lane l has values V*l .. V*l + V - 1 of both parts, as V = D/32. */
template <int D> struct head_sum {
    float m, l, coded[D / 32], exact[D / 32];
};

/* V floats, 4*V bytes aligned. */
template <int V> static __device__ __forceinline__ void load_floats(float *to, const float *from)
{
    if constexpr (V == 2) {
        const float2 x = *(const float2 *)from;
        to[0] = x.x, to[1] = x.y;
    } else {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            const float4 x = *(const float4 *)(from + i);
            to[i] = x.x, to[i + 1] = x.y, to[i + 2] = x.z, to[i + 3] = x.w;
        }
    }
}

/* Returns the weight of a lane's piece among the lanes' pieces: m and l of a head, NOTHING and 0 for none. */
template <int D> static __device__ __forceinline__ float join_weight(head_sum<D> &o, float2 ml)
{
    o.m = warp_max(ml.x);
    const float w = exp2_fast(ml.x - o.m);
    o.l = warp_sum(w * ml.y);
    return w;
}

/* Adds a piece's values: to += by * x, where it has any. */
template <int V> static __device__ __forceinline__ void join_add(float *to, float by, const float *x, bool some)
{
#pragma unroll
    for (int e = 0; e < V; e++)
        to[e] = fmaf(by, some ? x[e] : 0.0f, to[e]);
}

/* Piece of the block's warp g. */
static __device__ __forceinline__ float *piece_of(const decode_job &p, uint8_t *smem, uint32_t base, int g)
{
    return (float *)(smem + slot_at(p, base, g));
}

/* Head i of the block's warps, the first `coded` of which have encoded pages.  All values are asked for at once: the
 * last warp's again where there are fewer than the kernel may have. */
template <int D>
static __device__ __forceinline__ head_sum<D> join_warps(const decode_job &p, uint8_t *smem, uint32_t base, int i,
                                                         int coded, int lane)
{
    constexpr int V = D / 32;
    const int n = p.warps, from = 2 * DECODE_HEADS + i * D + lane * V;
    const float2 ml = lane < n ? ((const float2 *)piece_of(p, smem, base, lane))[i] : make_float2(NOTHING, 0.0f);
    head_sum<D> o = {};
    const float w = join_weight(o, ml);
#pragma unroll
    for (int at = 0; at < most_warps(D); at += 4) {
        float x[4][V];
#pragma unroll
        for (int g = 0; g < 4; g++)
            load_floats<V>(x[g], piece_of(p, smem, base, min(at + g, n - 1)) + from);
#pragma unroll
        for (int g = 0; g < 4; g++) {
            const float by = __shfl_sync(0xffffffffu, w, at + g);
            join_add<V>(o.coded, by, x[g], at + g < min(coded, n));
            join_add<V>(o.exact, by, x[g], at + g >= coded && at + g < n);
        }
    }
    return o;
}

/* Leaves head i for the cluster in the places that its warp has read: m, l and the coded values in the first piece, the
 * exact ones in the second. */
template <int D>
static __device__ __forceinline__ void leave_head(const decode_job &p, uint8_t *smem, uint32_t base, int i,
                                                  const head_sum<D> &a, int lane)
{
    constexpr int V = D / 32;
    float *first = piece_of(p, smem, base, 0), *second = piece_of(p, smem, base, 1);
    __syncwarp();
    if (lane == 0)
        ((float2 *)first)[i] = make_float2(a.m, a.l);
#pragma unroll
    for (int e = 0; e < V; e++) {
        first[2 * DECODE_HEADS + i * D + lane * V + e] = a.coded[e];
        second[2 * DECODE_HEADS + i * D + lane * V + e] = a.exact[e];
    }
}

/* Head i of the cluster's blocks, after all have left theirs. */
template <int D>
static __device__ __forceinline__ head_sum<D> join_blocks(const decode_job &p, uint8_t *smem, uint32_t base, int i,
                                                          int n, int lane)
{
    constexpr int V = D / 32;
    const float *first = piece_of(p, smem, base, 0), *second = piece_of(p, smem, base, 1);
    const int from = 2 * DECODE_HEADS + i * D + lane * V;
    const float2 ml = lane < n ? ((const float2 *)of_block(first, (uint32_t)lane))[i] : make_float2(NOTHING, 0.0f);
    head_sum<D> o = {};
    const float w = join_weight(o, ml);
#pragma unroll
    for (int at = 0; at < WHOLE_BLOCKS; at += 4) {
        float x[4][V], y[4][V];
#pragma unroll
        for (int g = 0; g < 4; g++) {
            const uint32_t block = (uint32_t)min(at + g, n - 1);
            load_floats<V>(x[g], of_block(first + from, block));
            load_floats<V>(y[g], of_block(second + from, block));
        }
#pragma unroll
        for (int g = 0; g < 4; g++) {
            const float by = __shfl_sync(0xffffffffu, w, at + g);
            join_add<V>(o.coded, by, x[g], at + g < n);
            join_add<V>(o.exact, by, y[g], at + g < n);
        }
    }
    return o;
}

/* coded: some of the unit's keys are in encoded pages; sink: the head's. */
template <int D>
static __device__ __forceinline__ void write_head(const decode_job &p, head_sum<D> &a, bool coded, float sink,
                                                  float *out, int lane)
{
    constexpr int V = D / 32;
    const float inv = __fdividef(1.0f, a.l + sink_weight(sink, a.m));
    if (coded) {
        const float by = inv * side_scale(p.v.s);
#pragma unroll
        for (int e = 0; e < V; e++)
            a.coded[e] *= by;
        warp_rotate_back<V>(p.v.s.space, a.coded, lane);
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        out[lane * V + e] = fmaf(a.exact[e], inv, a.coded[e]);
}

/* All threads of the unit's blocks, of which this is number `rank`: its heads, `first` and those behind it, from the
 * pieces in the warps' slots; out: of its first. */
template <int D>
static __device__ __forceinline__ void whole_join(const decode_job &p, uint8_t *smem, uint32_t base, int first,
                                                  int live, int coded, float *out, int blocks, int rank, int warp,
                                                  int lane)
{
    __syncthreads();
#pragma unroll 1
    for (int i = warp; i < live; i += p.warps) {
        head_sum<D> a = join_warps<D>(p, smem, base, i, coded - rank * p.warps, lane);
        if (blocks == 1)
            write_head<D>(p, a, coded > 0, attn_sink(p, first + i), out + i * D, lane);
        else
            leave_head<D>(p, smem, base, i, a, lane);
    }
    if (blocks == 1)
        return;
    cluster_meet();
    const int i = rank + warp * blocks; /* a block has four warps or more, a unit eight heads at most */
    head_sum<D> a;
    if (i < live)
        a = join_blocks<D>(p, smem, base, i, blocks, lane);
    cluster_arrive(); /* this block's pieces stay until all have read */
    if (i < live)
        write_head<D>(p, a, coded > 0, attn_sink(p, first + i), out + i * D, lane);
    cluster_wait();
}

#endif
#endif
