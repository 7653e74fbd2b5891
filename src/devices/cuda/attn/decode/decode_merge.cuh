/* decode_merge.cuh: the sums of attn_decode.cu's warps to results, in an order that is fixed by the plan.
 *
 * A piece is what a warp has of one part of a unit: part 0 its encoded pages, in acc space, part 1 its exact keys.  It
 * is floats: m and l of the unit's heads, then the sums [heads][D].  A warp leaves each part that it has finished at
 * (number of its stretch + 2 * unit + part), which no two pieces share; a block whose warps all have stretches of one
 * unit's encoded pages leaves one piece instead, in the place of its first warp's (stretches.joined).  decode_merge
 * joins the pieces in the order of the line, a block those of one head of a unit or of all of them; block 0 of the
 * decode kernel leaves what it needs of the plan (merge_row). */
#ifndef KVANT_CUDA_DECODE_MERGE_CUH
#define KVANT_CUDA_DECODE_MERGE_CUH

#include "devices/cuda/attn/decode/decode_room.cuh"
#include "devices/cuda/attn/prep.cuh"

/* Floats of a piece. */
static __host__ __device__ inline int piece_size(int d, int heads)
{
    return 2 * DECODE_HEADS + d * heads;
}

/* Threads that read a piece together in decode_merge; a head's shared memory with so many groups of them. */
#define MERGE_LANES(d) ((d) / 4)

static __host__ __device__ inline size_t merge_bytes(int d, int groups)
{
    return (size_t)groups * 8 * (size_t)d + ((size_t)groups * 8 + 15) / 16 * 16;
}

/* mixed: in the trellis' order of values. */
template <int D>
static __device__ __forceinline__ void piece_store(const decode_job &p, state<D> &a, float *to, bool mixed, int lane)
{
#pragma unroll
    for (int m = 4; m <= 16; m *= 2) {
        a.l[0] += __shfl_xor_sync(0xffffffffu, a.l[0], m);
        a.l[1] += __shfl_xor_sync(0xffffffffu, a.l[1], m);
    }
    const int head = lane % 4 * 2, g = lane / 4;
    if (head >= p.heads)
        return;
    if (g == 0)
        ((float4 *)to)[lane] = make_float4(a.m[0], a.l[0], a.m[1], a.l[1]);
    float4 *sums = (float4 *)(to + 2 * DECODE_HEADS + head * D) + (mixed ? 4 * g : g);
    const bool two = head + 1 < p.heads;
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
        const int at = mixed ? c / 4 * 32 + c % 4 : 8 * c;
        const float *x = a.o[2 * c], *y = a.o[2 * c + 1];
        sums[at] = make_float4(x[0], x[2], y[0], y[2]);
        if (two)
            sums[at + D / 4] = make_float4(x[1], x[3], y[1], y[3]);
    }
}

static __device__ __forceinline__ float4 add_weighted(const float4 &v, float w, const float4 &o)
{
    return make_float4(fmaf(w, o.x, v.x), fmaf(w, o.y, v.y), fmaf(w, o.z, v.z), fmaf(w, o.w, v.w));
}

/* Returns true if the block's stretches all lie in unit s's encoded pages.  Reading the plan again saves registers. */
static __device__ __forceinline__ bool block_joins(const decode_job &p, const plan &t, const spot &s)
{
    const int before = (int)blockIdx.x * p.warps;
    const stretches cuts = stretches_of(p, plan_total(p, t));
    return cuts.joined && s.first <= cut(cuts, before) && cut(cuts, before + p.warps) <= s.exact;
}

/* All threads of a block whose warps have left pieces of one part in their slots: one piece of them. */
template <int D, int MAKE>
static __device__ __forceinline__ void block_join(const decode_job &p, const uint8_t *smem, uint32_t base, float *to)
{
    __syncthreads();
#pragma unroll 1
    for (int r = threadIdx.x; r < p.heads * (D / 4); r += blockDim.x) {
        const int head = r / (D / 4);
        float top = NOTHING, l = 0.0f;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (int w = 0; w < p.warps; w++)
            top = fmaxf(top, ((const float2 *)(smem + slot_at<MAKE>(p, base, w)))[head].x);
#pragma unroll 4
        for (int w = 0; w < p.warps; w++) {
            const uint8_t *from = smem + slot_at<MAKE>(p, base, w);
            const float2 ml = ((const float2 *)from)[head];
            const float by = exp2_fast(ml.x - top);
            l = fmaf(by, ml.y, l);
            v = add_weighted(v, by, ((const float4 *)from)[DECODE_HEADS / 2 + r]);
        }
        ((float4 *)to)[DECODE_HEADS / 2 + r] = v;
        if (r % (D / 4) == 0)
            ((float2 *)to)[head] = make_float2(top, l);
    }
}

/* One block: the rows of its plan, and behind them the number of all steps, for the launch that merges. */
static __device__ __forceinline__ void leave_plan(const decode_job &p, const plan &t)
{
#pragma unroll 1
    for (int i = threadIdx.x; i <= p.n_rows; i += blockDim.x) {
        merge_row o = { 0, 0, 0, 0 };
#pragma unroll 1
        for (int c = 0; 32 * c < min(i / 32 * 32, p.n_rows); c++)
            o.before += t.sums[c];
        if (i < p.n_rows) {
            o.token = t.spans[i].token;
            o.coded = t.spans[i].coded;
            o.steps = t.spans[i].steps;
            o.before += t.spans[i].first;
        } else
            o.before = plan_total(p, t);
        p.rows[i] = o;
    }
}

/* Pieces of a unit in the order of the line: those of encoded pages, then the others.  Piece i lies at float
 * (i < n_coded ? coded : exact) + i * size; but encoded ones from number `lead` on, `blocks` of them, are of whole
 * blocks (stretches.joined) and the next one's place is `over` further on. */
typedef struct piece_list {
    int coded, exact, n_coded, n, size, lead, blocks, over;
} piece_list;

/* Whole warp. */
template <int D>
static __device__ __forceinline__ piece_list pieces_of(const decode_job &p, const merge_row &row, int total, int unit,
                                                       int in)
{
    const int lane = threadIdx.x % 32, first = row.before + in * row.steps, exact = first + row.coded;
    const int end = first + row.steps, at = lane == 0 ? first : lane == 1 ? exact - 1 : lane == 2 ? exact : end - 1;
    const stretches cuts = stretches_of(p, total);
    const int owner = lane < 4 ? cut_owner(cuts, max(min(at, end - 1), 0)) : 0;
    const int coded_at = __shfl_sync(0xffffffffu, owner, 0), coded_to = __shfl_sync(0xffffffffu, owner, 1) + 1;
    const int exact_at = __shfl_sync(0xffffffffu, owner, 2), exact_to = __shfl_sync(0xffffffffu, owner, 3) + 1;
    piece_list o = { 0, 0, exact > first ? coded_to - coded_at : 0, 0, piece_size(D, p.heads), 0, 0, 0 };
    if (cuts.joined && o.n_coded > 0) {
        int lo = (coded_at + p.warps - 1) / p.warps, hi = coded_to / p.warps; /* blocks wholly in the encoded pages */
        lo += cut(cuts, lo * p.warps) < first;
        hi -= cut(cuts, hi * p.warps) > exact;
        o.lead = lo * p.warps - coded_at;
        o.blocks = max(hi - lo, 0);
        o.over = p.warps - 1;
        o.n_coded -= o.blocks * o.over;
    }
    o.n = o.n_coded + (end > exact ? exact_to - exact_at : 0);
    o.coded = (coded_at + 2 * unit) * o.size;
    o.exact = (exact_at + 2 * unit + 1 - o.n_coded) * o.size;
    return o;
}

static __device__ __forceinline__ int piece_at(const piece_list &c, int i)
{
    if (i >= c.n_coded)
        return c.exact + i * c.size;
    return c.coded + (i + min(max(i - c.lead, 0), c.blocks) * c.over) * c.size;
}

/* MERGE_LANES threads sum these over some pieces of a head: the maximum, the sum, four values of both parts. */
typedef struct merge_sum {
    float m, l;
    float4 coded, exact;
} merge_sum;

/* Pieces rank, rank + groups, ... of the list, AT_ONCE on their way at a time. */
template <int D>
static __device__ __forceinline__ merge_sum merge_some(const decode_job &p, const piece_list &c, int head, int rank,
                                                       int groups)
{
    constexpr int AT_ONCE = 7;
    const int offset = 2 * DECODE_HEADS + head * D + (int)threadIdx.x % MERGE_LANES(D) * 4;
    merge_sum a = { NOTHING, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f), make_float4(0.0f, 0.0f, 0.0f, 0.0f) };
#pragma unroll 1
    for (int k = rank; k < c.n; k += AT_ONCE * groups) {
        float2 ml[AT_ONCE];
        float4 o[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int i = k + j * groups;
            const float *from = p.pieces + piece_at(c, i);
            ml[j] = i < c.n ? __ldcg((const float2 *)(from + 2 * head)) : make_float2(NOTHING, 0.0f);
            o[j] = i < c.n ? __ldcg((const float4 *)(from + offset)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        float top = a.m;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            top = fmaxf(top, ml[j].x);
        const float by = exp2_fast(a.m - top);
        a.m = top;
        a.l *= by;
        a.coded = make_float4(a.coded.x * by, a.coded.y * by, a.coded.z * by, a.coded.w * by);
        a.exact = make_float4(a.exact.x * by, a.exact.y * by, a.exact.z * by, a.exact.w * by);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const float w = exp2_fast(ml[j].x - top);
            a.l = fmaf(w, ml[j].y, a.l);
            if (k + j * groups < c.n_coded)
                a.coded = add_weighted(a.coded, w, o[j]);
            else
                a.exact = add_weighted(a.exact, w, o[j]);
        }
    }
    return a;
}

/* One warp: joins the groups' sums, [groups][2 parts][D], and its sink to the head's values, which
 * lie from `at` on. */
template <int D>
static __device__ __forceinline__ void merge_finish(const decode_job &p, const float2 *ml, const float *sums,
                                                    int groups, float sink, int64_t at)
{
    constexpr int V = D / 32;
    const int lane = threadIdx.x % 32;
    const float2 mine = lane < groups ? ml[lane] : make_float2(NOTHING, 0.0f);
    const float top = warp_max(mine.x), w = exp2_fast(mine.x - top);
    const float inv = __fdividef(1.0f, warp_sum(w * mine.y) + sink_weight(sink, top));
    float x[V], y[V];
#pragma unroll
    for (int e = 0; e < V; e++)
        x[e] = y[e] = 0.0f;
#pragma unroll 4
    for (int g = 0; g < groups; g++) {
        const float now = __shfl_sync(0xffffffffu, w, g), *from = sums + g * 2 * D + lane * V;
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = fmaf(now, from[e], x[e]);
            y[e] = fmaf(now, from[D + e], y[e]);
        }
    }
    const float by = inv * side_scale(p.v.s);
#pragma unroll
    for (int e = 0; e < V; e++)
        x[e] *= by;
    warp_rotate_back<V>(p.v.s.space, x, lane);
#pragma unroll
    for (int e = 0; e < V; e++)
        x[e] = fmaf(y[e], inv, x[e]);
#pragma unroll
    for (int e = 0; e < V; e += 2)
        if (p.halves)
            *(uint32_t *)(p.halves + at + lane * V + e) = pair_bf16(x[e], x[e + 1]);
        else
            *(float2 *)(p.out + at + lane * V + e) = make_float2(x[e], x[e + 1]);
}

/* Block (of a unit's heads, unit of the row, row); a block has blockDim.y heads, blockDim.x threads each. */
template <int D, int MAKE> static __device__ __forceinline__ void merge_all(const decode_job &p)
{
    constexpr int LANES = MERGE_LANES(D);
    extern __shared__ __align__(16) float room[];
    const int i = blockIdx.x * blockDim.y + threadIdx.y, in = blockIdx.y, row = blockIdx.z, lane = threadIdx.x % 32;
    const int rank = threadIdx.x / LANES, groups = blockDim.x / LANES, kv = kv_of(p, in);
    const int head = (in - kv * p.head_tiles) * p.heads + i; /* of the KV head's */
    float *sums = room + threadIdx.y * (merge_bytes(D, groups) / sizeof(float));
    float2 *ml = (float2 *)(sums + groups * 2 * D);
    pdl_go();
    const float sink = head < p.group ? attn_sink(p, kv * p.group + head) : 0.0f;
    warm_signs<D / 32>(p.v.s.space, lane);
    pdl_wait();
    const merge_row m = p.rows[row];
    if (m.steps == 0) /* nothing to write */
        return;
    const piece_list c = pieces_of<D>(p, m, p.rows[p.n_rows].before, row * units_per_row(p) + in, in);
    const merge_sum a = merge_some<D>(p, c, i, rank, groups);
    float4 *to = (float4 *)sums + rank * (D / 2) + threadIdx.x % LANES;
    to[0] = a.coded;
    to[D / 4] = a.exact;
    if (threadIdx.x % LANES == 0)
        ml[rank] = make_float2(a.m, a.l);
    __syncthreads();
    if (threadIdx.x < 32 && head < p.group)
        merge_finish<D>(p, ml, sums, groups, sink, (int64_t)m.token * p.ldo + (int64_t)(kv * p.group + head) * D);
}

template <int D, int MAKE> static __global__ void __launch_bounds__(1024, 1) decode_merge(decode_job p)
{
    if constexpr (arch_has(MAKE))
        merge_all<D, MAKE>(p);
}

#endif
