/* attn_whole.cu: decode attention of few units with few steps each: a block takes a whole unit.
 *
 * What a short context costs is launches and waits, not its bytes: here one launch makes the queries' operands, sums
 * and joins.  It occupies as many multiprocessors as there are units and lets the launch behind it begin at once, so
 * that the weights of the next product are under way on all the others meanwhile.  A warp has steps of one part of the
 * unit, encoded pages or exact keys; the first warps have the encoded ones. */
#include "devices/cuda/decode_warp.cuh"

/* Steps of a unit's encoded pages, at most. */
enum { WHOLE_STEPS = 32 };

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

/* Steps at .. to - 1 of a part of the unit; coded_warps: of the block. */
typedef struct share {
    int at, to, coded_warps;
    bool exact;
} share;

static __device__ __forceinline__ share share_of(const decode_job &p, const row_span &row, int warp)
{
    const int exact = (row.steps - row.coded) >> p.exact_cost, even = (row.coded * p.warps + row.steps / 2) / row.steps;
    share o;
    o.coded_warps = exact == 0 ? p.warps : row.coded == 0 ? 0 : max(1, min(p.warps - 1, even));
    o.exact = warp >= o.coded_warps;
    const int i = o.exact ? warp - o.coded_warps : warp, n = o.exact ? p.warps - o.coded_warps : o.coded_warps;
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

/* One warp: head i of the unit from the pieces in the warps' slots. */
template <int D>
static __device__ __forceinline__ void whole_finish(const decode_job &p, const uint8_t *smem, uint32_t base, int i,
                                                    int coded_warps, float *out)
{
    constexpr int V = D / 32;
    const int lane = threadIdx.x % 32;
    const uint8_t *mine = smem + slot_at(p, base, min(lane, p.warps - 1));
    const float2 ml = lane < p.warps ? ((const float2 *)mine)[i] : make_float2(NOTHING, 0.0f);
    const float w = exp2_fast(ml.x - warp_max(ml.x)), inv = __fdividef(1.0f, warp_sum(w * ml.y));
    float x[V], y[V];
#pragma unroll
    for (int e = 0; e < V; e++)
        x[e] = y[e] = 0.0f;
#pragma unroll 4
    for (int g = 0; g < p.warps; g++) {
        const float *from = (const float *)(smem + slot_at(p, base, g)) + 2 * DECODE_HEADS + i * D + lane * V;
        const float now = __shfl_sync(0xffffffffu, w, g), coded = g < coded_warps ? now : 0.0f, exact = now - coded;
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = fmaf(coded, from[e], x[e]);
            y[e] = fmaf(exact, from[e], y[e]);
        }
    }
    const float by = inv * side_scale(p.v.s);
#pragma unroll
    for (int e = 0; e < V; e++)
        x[e] *= by;
    warp_rotate_back<V>(p.v.s.space, x, lane);
#pragma unroll
    for (int e = 0; e < V; e++)
        out[lane * V + e] = fmaf(y[e], inv, x[e]);
}
#endif

/* Block: unit. */
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
    const spot s = { 0, (int)blockIdx.x % units_per_row(p), 0, 0, 0 };
    const row_span row = span_of<D>(p, (int)blockIdx.x / units_per_row(p));
    const int kv = kv_of(p, s.in), first = s.in % p.head_tiles * p.heads, live = min(p.heads, p.group - first);
    room_tables(p, smem, base, KIND_K == KIND_TRELLIS && KIND_V == KIND_TRELLIS);
    __syncthreads();
    pdl_wait();
    if (row.steps == 0)
        return;
    const share mine = share_of(p, row, warp);
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
    __syncthreads();
    for (int i = warp; i < live; i += p.warps)
        whole_finish<D>(p, smem, base, i, mine.coded_warps,
                        p.out + row.token * p.ldo + (int64_t)(kv * p.group + first + i) * D);
#endif
}

bool decode_whole_takes(const decode_job &p, int max_pos)
{
    const int steps = (max_pos / KVANT_PAGE + 1) * (p.d == 256 ? 2 : 1);
    return p.n_rows * units_per_row(p) <= p.blocks && steps <= WHOLE_STEPS &&
           p.slot_bytes >= piece_size(p.d, p.heads) * sizeof(float);
}

template <int D, int KIND_K, int KIND_V> static void launch(cuda_device *d, const decode_job &p)
{
    cuda_smem(decode_whole<D, KIND_K, KIND_V>, SMEM);
    cuda_launch(d, decode_whole<D, KIND_K, KIND_V>, dim3((unsigned)(p.n_rows * units_per_row(p))),
                (unsigned)p.warps * 32, SMEM, p);
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
