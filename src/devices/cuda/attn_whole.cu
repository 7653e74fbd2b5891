/* attn_whole.cu: decode attention of few units with few steps each: one launch, a cluster of blocks to a unit.
 *
 * What a short context costs is launches and waits, not its bytes: here one launch makes the queries' operands, sums
 * and joins.  It lets the launch behind it begin at once, so that the weights of the next product are under way on the
 * multiprocessors that have no unit.  A warp has steps of one part of the unit, encoded pages or exact keys; the first
 * warps of the cluster have the encoded ones. */
#include "devices/cuda/decode_warp.cuh"

/* Blocks of a unit, at most; encoded steps of a warp, at most. */
enum { WHOLE_BLOCKS = 8, WHOLE_STEPS = 4 };

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

/* Steps at .. to - 1 of a part of the unit; coded: the cluster's warps that have encoded ones. */
typedef struct share {
    int at, to, coded;
    bool exact;
} share;

/* Of warp `warp` of `warps`. */
static __device__ __forceinline__ share share_of(const decode_job &p, const row_span &row, int warp, int warps)
{
    const int exact = (row.steps - row.coded) >> p.exact_cost, even = (row.coded * warps + row.steps / 2) / row.steps;
    share o;
    o.coded = exact == 0 ? warps : row.coded == 0 ? 0 : max(1, min(warps - 1, even));
    o.exact = warp >= o.coded;
    const int i = o.exact ? warp - o.coded : warp, n = o.exact ? warps - o.coded : o.coded;
    const int steps = o.exact ? exact : row.coded;
    o.at = steps * i / n;
    o.to = steps * (i + 1) / n;
    return o;
}

template <int D>
static __device__ __forceinline__ feed feed_of(const decode_job &p, const row_span &row, int kv, const share &mine,
                                               int lane)
{
    feed f;
    f.at = f.in = mine.at;
    f.end = f.hi = mine.to;
    f.table = p.seqs.table + (size_t)row.seq * p.seqs.stride;
    f.k_at = (uint32_t)kv * (uint32_t)p.k.s.head_bytes;
    f.v_at = (uint32_t)kv * (uint32_t)p.v.s.head_bytes;
    feed_ids<D>(f, lane);
    return f;
}

/* A head's sums in a warp: lane l has values V*l .. V*l + V - 1 of both parts, as V = D/32. */
template <int D> struct head_sum {
    float m, l, coded[D / 32], exact[D / 32];
};

/* Joins pieces whose m and l the lanes have; at(g): where the warp's values of piece g lie, coded and exact ones, NULL:
 * none. */
template <int D, typename F>
static __device__ __forceinline__ head_sum<D> head_join(float2 ml, int n, int lane, F at)
{
    constexpr int V = D / 32;
    head_sum<D> o = {};
    o.m = warp_max(ml.x);
    const float w = exp2_fast(ml.x - o.m);
    o.l = warp_sum(w * ml.y);
#pragma unroll 4
    for (int g = 0; g < n; g++) {
        const float by = __shfl_sync(0xffffffffu, w, g), *from[2];
        at(g, from);
#pragma unroll
        for (int e = 0; e < V; e++) {
            o.coded[e] = fmaf(by, from[0] ? from[0][lane * V + e] : 0.0f, o.coded[e]);
            o.exact[e] = fmaf(by, from[1] ? from[1][lane * V + e] : 0.0f, o.exact[e]);
        }
    }
    return o;
}

/* Piece of the block's warp g. */
static __device__ __forceinline__ float *piece_of(const decode_job &p, uint8_t *smem, uint32_t base, int g)
{
    return (float *)(smem + slot_at(p, base, g));
}

/* Head i of the block's warps, the first `coded` of which have encoded pages. */
template <int D>
static __device__ __forceinline__ head_sum<D> join_warps(const decode_job &p, uint8_t *smem, uint32_t base, int i,
                                                         int coded, int lane)
{
    const float2 ml = lane < p.warps ? ((const float2 *)piece_of(p, smem, base, lane))[i] : make_float2(NOTHING, 0.0f);
    return head_join<D>(ml, p.warps, lane, [&](int g, const float **from) {
        const float *values = piece_of(p, smem, base, g) + 2 * DECODE_HEADS + i * D;
        from[0] = g < coded ? values : NULL;
        from[1] = g < coded ? NULL : values;
    });
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
                                                          int lane)
{
    const float *first = piece_of(p, smem, base, 0), *second = piece_of(p, smem, base, 1);
    const int n = (int)cluster_blocks();
    const float2 ml = lane < n ? ((const float2 *)of_block(first, (uint32_t)lane))[i] : make_float2(NOTHING, 0.0f);
    return head_join<D>(ml, n, lane, [&](int g, const float **from) {
        from[0] = of_block(first + 2 * DECODE_HEADS + i * D, (uint32_t)g);
        from[1] = of_block(second + 2 * DECODE_HEADS + i * D, (uint32_t)g);
    });
}

template <int D>
static __device__ __forceinline__ void write_head(const decode_job &p, head_sum<D> &a, float *out, int lane)
{
    constexpr int V = D / 32;
    const float inv = __fdividef(1.0f, a.l), by = inv * side_scale(p.v.s);
#pragma unroll
    for (int e = 0; e < V; e++)
        a.coded[e] *= by;
    warp_rotate_back<V>(p.v.s.space, a.coded, lane);
#pragma unroll
    for (int e = 0; e < V; e++)
        out[lane * V + e] = fmaf(a.exact[e], inv, a.coded[e]);
}

/* All threads of the cluster: the unit's heads from the pieces in the warps' slots; out: of its first. */
template <int D>
static __device__ __forceinline__ void whole_join(const decode_job &p, uint8_t *smem, uint32_t base, int live,
                                                  int coded, float *out, int warp, int lane)
{
    const int blocks = (int)cluster_blocks(), rank = (int)cluster_rank();
    __syncthreads();
#pragma unroll 1
    for (int i = warp; i < live; i += p.warps) {
        head_sum<D> a = join_warps<D>(p, smem, base, i, coded - rank * p.warps, lane);
        if (blocks == 1)
            write_head<D>(p, a, out + i * D, lane);
        else
            leave_head<D>(p, smem, base, i, a, lane);
    }
    if (blocks == 1)
        return;
    cluster_meet();
#pragma unroll 1
    for (int i = rank + warp * blocks; i < live; i += blocks * p.warps) {
        head_sum<D> a = join_blocks<D>(p, smem, base, i, lane);
        write_head<D>(p, a, out + i * D, lane);
    }
    cluster_meet(); /* others may still read this block's */
}
#endif

/* Cluster: unit. */
template <int D, int KIND_K, int KIND_V>
static __global__ void __launch_bounds__(most_warps(D) * 32, 1) decode_whole(decode_job p)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    extern __shared__ __align__(1024) uint8_t smem[];
    pdl_go();
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const uint32_t base = shared_at(smem);
    uint16_t *raw = (uint16_t *)(smem + BARS), *turned = raw + DECODE_HEADS * D; /* where others have their plan */
    const warp_room r = room_of<D>(p, smem, base, warp, lane);
    room_begin(p, smem, r, lane);
    const int unit = (int)blockIdx.x / p.whole;
    const spot s = { 0, unit % units_per_row(p), 0, 0, 0 };
    /* the batch is there since before the list's first op */
    const row_span row = span_of<D>(p, unit / units_per_row(p));
    const int kv = kv_of(p, s.in), first = s.in % p.head_tiles * p.heads, live = min(p.heads, p.group - first);
    room_tables(p, smem, base, KIND_K == KIND_TRELLIS && KIND_V == KIND_TRELLIS);
    __syncthreads();
    pdl_wait();
    if (row.steps == 0)
        return;
    const share mine = share_of(p, row, (int)cluster_rank() * p.warps + warp, p.whole * p.warps);
    const int64_t head = (int64_t)row.token * p.h + kv * p.group + first;
    feed f;
    if (!mine.exact && mine.at < mine.to) {
        f = feed_of<D>(p, row, kv, mine, lane);
        step_ask<D>(p, r, feed_from<D>(f, p.k, f.k_at), feed_from<D>(f, p.v, f.v_at));
    }
    const float by = p.scale * PREP_LOG2E;
    for (int i = warp; i < live && !is_sign(KIND_K); i += p.warps)
        warp_prep<D / 32>(p.k.s.space, p.q + row.token * p.ldq + (kv * p.group + first + i) * p.gq, by,
                          by * side_scale(p.k.s), raw + i * D, turned + i * D, lane);
    __syncthreads();
    uint32_t q[QUERY_WORDS(D, is_sign(KIND_K))];
    state<D> a;
    state_clear(a);
    if (is_sign(KIND_K) && !mine.exact)
        load_sketch<KIND_K == KIND_SIGN>(p.sketch + head * SKETCH_WORDS, live, q, lane);
    else if (is_sign(KIND_K))
        load_q<D>(p, p.raw + head * D, 0, live, false, q, lane);
    else
        load_q<D>(p, mine.exact ? raw : turned, 0, live, p.k.kind == KIND_TRELLIS && !mine.exact, q, lane);
    if (mine.exact)
        exact_steps<D>(p, row, s, mine.at, mine.to, q, a, lane);
    for (int i = mine.at; i < mine.to && !mine.exact; i++) {
        f.at++;
        f.in++;
        if (f.at < f.hi && f.in / shape<D>::PER_PAGE - f.base == 32)
            feed_ids<D>(f, lane);
        coded_step<D, KIND_K, KIND_V>(p, r, a, q, i * shape<D>::STEP, row.pos, (uint32_t)(i - mine.at) & 1, f.at < f.hi,
                                      feed_from<D>(f, p.k, f.k_at), feed_from<D>(f, p.v, f.v_at), lane);
    }
    piece_store<D>(p, a, (float *)r.slot_k, p.v.kind == KIND_TRELLIS && !mine.exact, lane);
    whole_join<D>(p, smem, base, live, mine.coded,
                  p.out + row.token * p.ldo + (int64_t)(kv * p.group + first) * D, warp, lane);
#endif
}

int decode_whole_blocks(const decode_job &p, int max_pos)
{
    const int steps = (max_pos / KVANT_PAGE + 1) * (p.d == 256 ? 2 : 1), units = p.n_rows * units_per_row(p);
    int n = 1;
    if (units > p.blocks || p.slot_bytes < piece_size(p.d, p.heads) * sizeof(float))
        return 0;
    while (n < WHOLE_BLOCKS && 2 * n * units <= p.blocks && steps > n * p.warps)
        n *= 2;
    return steps <= WHOLE_STEPS * n * p.warps ? n : 0;
}

template <int D, int KIND_K, int KIND_V> static void launch(cuda_device *d, const decode_job &p)
{
    cudaLaunchAttribute attr[2] = {};
    cudaLaunchConfig_t cfg = {};
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    attr[1].id = cudaLaunchAttributeClusterDimension;
    attr[1].val.clusterDim.x = (unsigned)p.whole;
    attr[1].val.clusterDim.y = attr[1].val.clusterDim.z = 1;
    cfg.gridDim = dim3((unsigned)(p.n_rows * units_per_row(p) * p.whole));
    cfg.blockDim = dim3((unsigned)p.warps * 32);
    cfg.dynamicSmemBytes = SMEM;
    cfg.stream = d->stream;
    cfg.attrs = attr;
    cfg.numAttrs = p.whole > 1 ? 2 : 1;
    cuda_smem(decode_whole<D, KIND_K, KIND_V>, SMEM);
    cudaLaunchKernelEx(&cfg, decode_whole<D, KIND_K, KIND_V>, p);
}

#define KINDS(D, K, V)                                                                                                 \
    if (p.d == D && (K == KIND_COUNT || p.k.kind == K) && (V == KIND_COUNT || p.v.kind == V))                          \
    return launch<D, K, V>(d, p)

void decode_whole_run(cuda_device *d, const decode_job &p)
{
    KINDS(128, KIND_HALF, KIND_HALF);
    KINDS(128, KIND_SIGN, KIND_COUNT);
    KINDS(128, KIND_SIGN8, KIND_COUNT);
    KINDS(64, KIND_COUNT, KIND_COUNT);
    KINDS(128, KIND_COUNT, KIND_COUNT);
    KINDS(256, KIND_COUNT, KIND_COUNT);
}
