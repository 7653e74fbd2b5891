/* decode_merge.cuh: the sums of attn_decode.cu's warps to results, in an order that is fixed by the plan.
 *
 * A piece is what a warp (or a block) has of one part of a unit: part 0 its encoded pages, in acc space, part 1 its
 * exact keys.  It is float4s: [32 lanes] (m, l of the lane's two heads), then [D/16 tiles][32 lanes] sums as
 * mma.m16n8k16 leaves them; lanes of heads that are not there are not stored.  A warp leaves the parts it has
 * finished in global memory at (its number + number of the part), which no two pieces share, and its last one in shared
 * memory.  Then teams of the block's threads take the block's units: they join the pieces and write the row's heads, or
 * leave the block's pieces and count its steps; who counts the last ones joins all blocks' pieces. */
#ifndef KVANT_CUDA_DECODE_MERGE_CUH
#define KVANT_CUDA_DECODE_MERGE_CUH

#include "devices/cuda/decode_plan.cuh"
#include "devices/cuda/prep.cuh"

enum { PIECES = 320, TEAM = 128 };

/* float4s of a piece. */
static __host__ __device__ inline int piece_size(int d)
{
    return (d / 16 + 1) * 32;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

template <int D>
static __device__ __forceinline__ void piece_store(const decode_job &p, state<D> &a, float4 *to, int lane)
{
#pragma unroll
    for (int m = 4; m <= 16; m *= 2) {
        a.l[0] += __shfl_xor_sync(0xffffffffu, a.l[0], m);
        a.l[1] += __shfl_xor_sync(0xffffffffu, a.l[1], m);
    }
    if (lane % 4 * 2 >= p.heads)
        return;
    to[lane] = make_float4(a.m[0], a.m[1], a.l[0], a.l[1]);
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        to[32 * i + 32 + lane] = make_float4(a.o[i][0], a.o[i][1], a.o[i][2], a.o[i][3]);
}

/* Threads that share a unit, and their room in shared memory. */
typedef struct team {
    int id, size, rank;
    float4 *sum[2];         /* [most positions or threads] */
    float *weight, *part_l; /* [PIECES][8]: maxima, then weights; their sums */
    float *top, *total;     /* [8], [2 parts][8] */
    float *acc[2];          /* [8][D] */
    int *flag;
} team;

static __device__ __forceinline__ void team_sync(const team &t)
{
    asm volatile("bar.sync %0, %1;" ::"r"(t.id + 1), "r"(t.size) : "memory");
}

/* Floats of a team's room. */
template <int D> static __device__ __forceinline__ int team_room(int size)
{
    return 8 * (size > 2 * D ? size : 2 * D) + PIECES * 16 + 16 * D + 32;
}

template <int D> static __device__ __forceinline__ team team_make(int size, float *room)
{
    team t;
    const int most = size > 2 * D ? size : 2 * D;
    t.id = threadIdx.x / size;
    t.size = size;
    t.rank = threadIdx.x % size;
    room += t.id * team_room<D>(size);
    t.sum[0] = (float4 *)room;
    t.sum[1] = t.sum[0] + most;
    t.acc[0] = (float *)(t.sum[1] + most);
    t.acc[1] = t.acc[0] + 8 * D;
    t.weight = t.acc[1] + 8 * D;
    t.part_l = t.weight + PIECES * 8;
    t.top = t.part_l + PIECES * 8;
    t.total = t.top + 8;
    t.flag = (int *)(t.total + 16);
    return t;
}

/* Pieces of a unit: part 0's from number first[0] on, then part 1's. */
typedef struct pieces {
    int first[2], count[2];
} pieces;

/* Joins pieces: t.top, t.total, and t.sum in `groups` groups of `positions`.  load(part, number, i): float4 i of a
 * piece. */
template <int D, typename F>
static __device__ void team_join(const decode_job &p, const team &t, const pieces &c, int *groups, int *positions,
                                 F load)
{
    const int n = c.count[0] + c.count[1], lanes = (p.heads + 1) / 2, live = D / 2 * lanes;
    for (int i = t.rank; i < n * 4; i += t.size) {
        const int k = i / 4, part = k >= c.count[0];
        if (i % 4 < lanes) {
            const float4 h = load(part, c.first[part] + k - (part ? c.count[0] : 0), i % 4);
            *(float2 *)(t.weight + k * 8 + i % 4 * 2) = make_float2(h.x, h.y);
            *(float2 *)(t.part_l + k * 8 + i % 4 * 2) = make_float2(h.z, h.w);
        }
    }
    team_sync(t);
    for (int head = t.rank / 32; head < p.heads; head += t.size / 32) {
        const int lane = threadIdx.x % 32;
        float top = NOTHING, total[2] = { 0.0f, 0.0f };
        for (int k = lane; k < n; k += 32)
            top = fmaxf(top, t.weight[k * 8 + head]);
        top = warp_max(top);
        for (int k = lane; k < n; k += 32) {
            const int part = k >= c.count[0];
            const float w = exp2_fast(t.weight[k * 8 + head] - top);
            t.weight[k * 8 + head] = w;
            total[part] = fmaf(w, t.part_l[k * 8 + head], total[part]);
        }
        total[0] = warp_sum(total[0]);
        total[1] = warp_sum(total[1]);
        if (lane == 0) {
            t.top[head] = top;
            t.total[head] = total[0];
            t.total[8 + head] = total[1];
        }
    }
    team_sync(t);
    *positions = live;
    *groups = t.size >= live ? t.size / live : 1;
    for (int i = t.rank; i < *groups * live; i += t.size) {
        const int at = i % live, r = at % (8 * lanes), lane = r / lanes * 4 + r % lanes, g = i / live;
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const float *weight = t.weight + (part ? c.count[0] * 8 : 0) + lane % 4 * 2;
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
            for (int k = g; k < c.count[part]; k += *groups) {
                const float4 o = load(part, c.first[part] + k, at / (8 * lanes) * 32 + 32 + lane);
                const float w0 = weight[k * 8], w1 = weight[k * 8 + 1];
                v.x = fmaf(w0, o.x, v.x);
                v.y = fmaf(w1, o.y, v.y);
                v.z = fmaf(w0, o.z, v.z);
                v.w = fmaf(w1, o.w, v.w);
            }
            t.sum[part][i] = v;
        }
    }
    team_sync(t);
}

static __device__ __forceinline__ float4 group_sum(const float4 *sum, int at, int groups, int positions)
{
    float4 v = sum[at];
    for (int g = 1; g < groups; g++) {
        const float4 o = sum[g * positions + at];
        v = make_float4(v.x + o.x, v.y + o.y, v.z + o.z, v.w + o.w);
    }
    return v;
}

/* Leaves what was joined as a piece. */
template <int D>
static __device__ void team_leave(const decode_job &p, const team &t, int part, int groups, int positions, float4 *to)
{
    const int lanes = (p.heads + 1) / 2;
    for (int at = t.rank; at < positions; at += t.size) {
        const int r = at % (8 * lanes), lane = r / lanes * 4 + r % lanes;
        to[at / (8 * lanes) * 32 + 32 + lane] = group_sum(t.sum[part], at, groups, positions);
    }
    if (t.rank < lanes)
        to[t.rank] = make_float4(t.top[2 * t.rank], t.top[2 * t.rank + 1], t.total[8 * part + 2 * t.rank],
                                 t.total[8 * part + 2 * t.rank + 1]);
}

/* Joined sums to the output rows of the unit's heads. */
template <int D>
static __device__ void team_finish(const decode_job &p, const team &t, const row_span &row, int in, int groups,
                                   int positions)
{
    constexpr int V = D / 32;
    const int lanes = (p.heads + 1) / 2, lane = threadIdx.x % 32, tile = in % p.head_tiles;
    for (int i = t.rank; i < 2 * positions; i += t.size) {
        const int part = i >= positions, at = i - part * positions, r = at % (8 * lanes), g = r / lanes;
        const int m = at / (8 * lanes), c = m / 2, head = r % lanes * 2;
        const bool mixed = p.v.kind == KIND_TRELLIS && part == 0; /* the trellis' order of values */
        const int value = (mixed ? c / 4 * 128 + 16 * g + 4 * (c % 4) : 32 * c + 4 * g) + m % 2 * 2;
        const float4 v = group_sum(t.sum[part], at, groups, positions);
        float *to = t.acc[part] + head * D + value;
        to[0] = v.x;
        to[1] = v.z;
        to[D] = v.y;
        to[D + 1] = v.w;
    }
    team_sync(t);
    for (int i = t.rank / 32; i < p.heads && tile * p.heads + i < p.group; i += t.size / 32) {
        const float inv = 1.0f / (t.total[i] + t.total[8 + i]), by = inv * side_scale(p.v.s);
        const int head = in / p.head_tiles * p.group + tile * p.heads + i;
        const float *coded = t.acc[0] + i * D + lane * V, *exact = t.acc[1] + i * D + lane * V;
        float x[V];
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = coded[e] * by;
        warp_rotate_back<V>(p.v.s.space, x, lane);
        float *to = p.out + (int64_t)row.token * p.ldo + (int64_t)head * D + lane * V;
#pragma unroll
        for (int e = 0; e < V; e++)
            to[e] = fmaf(exact[e], inv, x[e]);
    }
}

/* The stretch of a block: steps lo .. lo + n - 1 of `total`, `warps` of its warps and `blocks` of the grid in use. */
typedef struct stretch {
    int lo, n, total, warps, blocks;
} stretch;

/* Owners (of `n` steps from lo in `parts` parts) of a unit's two parts, as far as they lie in lo .. lo + n - 1. */
static __device__ pieces owners(const spot &s, int lo, int n, int parts)
{
    const int from[2] = { max(s.first, lo), max(s.exact, lo) }, to[2] = { min(s.exact, lo + n), min(s.end, lo + n) };
    pieces o;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        o.first[i] = to[i] > from[i] ? split_owner(n, parts, from[i] - lo) : 0;
        o.count[i] = to[i] > from[i] ? split_owner(n, parts, to[i] - 1 - lo) - o.first[i] + 1 : 0;
    }
    return o;
}

template <int D>
static __device__ void team_unit(const decode_job &p, const team &t, const row_span *spans, const spot &s,
                                 const stretch &b, const float4 *rooms)
{
    constexpr int SIZE = (D / 16 + 1) * 32;
    const int unit = unit_of(p, s), from = max(s.first, b.lo), to = min(s.end, b.lo + b.n);
    const float4 *left = p.warp_part + ((int64_t)blockIdx.x * p.warps + 2 * unit) * SIZE;
    float4 *leave = p.block_part + (int64_t)(2 * unit) * SIZE;
    int groups, positions, all = to - from == s.end - s.first; /* all: of the blocks' pieces, or nobody else has any */
    pieces mine = owners(s, b.lo, b.n, b.warps);
#pragma unroll 1
    for (int level = 0;; level++) {
        team_join<D>(p, t, mine, &groups, &positions, [=](int part, int w, int i) {
            const bool last = b.lo + split_at(b.n, b.warps, w + 1) <= (part ? s.end : s.exact);
            if (level == 0 && last)
                return rooms[w * SIZE + i];
            return __ldcg((level ? leave : left) + (w + part) * SIZE + i); /* not what this block's cache remembers */
        });
        if (all)
            break;
        for (int part = 0; part < 2; part++)
            if (mine.count[part] > 0)
                team_leave<D>(p, t, part, groups, positions, leave + (blockIdx.x + part) * SIZE);
        __threadfence();
        team_sync(t);
        if (t.rank == 0) {
            const int before = (int)atomicAdd(p.counts + unit, (unsigned)(to - from));
            *t.flag = before + to - from == s.end - s.first;
            if (*t.flag)
                p.counts[unit] = 0;
        }
        team_sync(t);
        if (!*t.flag)
            return;
        __threadfence();
        mine = owners(s, 0, b.total, b.blocks);
        all = 1;
    }
    team_finish<D>(p, t, spans[s.row], s.in, groups, positions);
    team_sync(t);
}

/* The block's units; all pieces of its warps are there. */
template <int D>
static __device__ void block_units(const decode_job &p, const row_span *spans, const stretch &b, const float4 *rooms,
                                   float *room)
{
    spot s = spot_of(p, spans, b.lo);
    const bool one = D == 256 || s.end >= b.lo + b.n; /* there is no room for more teams of 256 values */
    const team t = team_make<D>(one ? (int)blockDim.x : TEAM, room);
    for (int i = 0;; i++) {
        if (one || i % ((int)blockDim.x / TEAM) == t.id)
            team_unit<D>(p, t, spans, s, b, rooms);
        if (s.end >= b.lo + b.n)
            break;
        s = spot_of(p, spans, s.end);
    }
}

#endif
#endif
