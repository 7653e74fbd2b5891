/* decode_kernel.cuh: the kernel of decode attention.  See attn_decode.cuh. */
#ifndef KVANT_CUDA_DECODE_KERNEL_CUH
#define KVANT_CUDA_DECODE_KERNEL_CUH

#include "devices/cuda/attn/decode/decode_sketch.cuh"

template <int D, int KIND_K, int KIND_V, int MAKE>
static __device__ __forceinline__ void decode_all(const decode_job &p)
{
    constexpr bool PAGES = is_page(KIND_K) || is_page(KIND_V);
    extern __shared__ __align__(1024) uint8_t smem[];
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); /* so the compiler knows that a warp has one */
    const uint32_t base = shared_at(smem);
    row_span *spans = (row_span *)(smem + BARS);
    const plan t = { spans, (int *)(smem + SUMS) };
    const warp_room r = room_of<D, MAKE, PAGES>(p, smem, base, warp, lane);
    uint32_t phase = 0;

    room_begin<MAKE, PAGES>(p, smem, r, lane);
    plan_rows<D, MAKE>(p, spans, (int *)(smem + SUMS));
    pdl_go();
    __syncthreads();
    const stretches cuts = stretches_of(p, plan_total(p, t));
    const int mine = cuts.joined ? (int)blockIdx.x * p.warps + warp : warp * (int)gridDim.x + (int)blockIdx.x;
    int at = cut(cuts, mine);
    const int hi = cut(cuts, mine + 1);
    bool join = false;

    uint32_t q[QUERY_WORDS(D, KIND_K)];
    state<D> a;
    spot s;
    feed f;
    if (p.sealing)
        pdl_wait();
    f.at = at;
    f.hi = hi;
    feed_seek<D, MAKE>(p, t, f, lane);
    if (MAKE == ARCH_80 || f.at < hi)
        step_ask<D, KIND_K, KIND_V, MAKE>(p, r, feed_from<D, MAKE>(f, p.k, f.k_at), feed_from<D, MAKE>(f, p.v, f.v_at),
                                          f.in % shape<D, MAKE>::PER_PAGE, f.at < hi);
    /* while they are under way */
    room_tables<MAKE, PAGES>(p, smem, base, MAKE == ARCH_90 && KIND_K == KIND_TRELLIS && KIND_V == KIND_TRELLIS);
    __syncthreads();
    pdl_wait(); /* the queries; everything else was there when the kernel that makes them began */
    if (blockIdx.x == 0)
        leave_plan(p, t);
    while (at < hi) {
        s = spot_of(p, t, at, lane);
        const row_span row = spans[s.row];
        const int part = at >= s.exact, to = min(part ? s.end : s.exact, hi);
        const int first = s.in % p.head_tiles * p.heads, live = min(p.heads, p.group - first);
        const int head = row.token * p.h + kv_of(p, s.in) * p.group + first;
        const int from = first_page(p, row.pos) * KVANT_PAGE;
        state_clear(a);
        if (is_sign(KIND_K) && !part)
            load_sketch<KIND_K == KIND_SIGN>(p.sketch + (int64_t)head * SKETCH_WORDS, live, q, lane);
        else
            load_queries<D, KIND_K>(p, part ? p.raw : p.turned, p.raw, p.turned, head, live,
                                    is_mixed(p.k.kind) && !part, q, lane);
        if (part) {
            exact_steps<D, parts_of(KIND_K), parts_of(KIND_V)>(p, row, s, exact_at(p, s, at), exact_at(p, s, to), q, a,
                                                               lane);
            at = to;
        }
        for (; at < to; at++) {
            feed_next<D, MAKE>(p, t, f, lane);
            const uint8_t *k = feed_from<D, MAKE>(f, p.k, f.k_at), *v = feed_from<D, MAKE>(f, p.v, f.v_at);
            coded_step<D, KIND_K, KIND_V, shape<D, MAKE>::BLOCKS, MAKE>(
                p, r, a, q, from + (at - s.first) * shape<D, MAKE>::STEP, row.pos, phase, f.at < hi, k, v,
                f.in % shape<D, MAKE>::PER_PAGE, lane);
            phase ^= 1;
        }
        join = block_joins(p, t, s); /* the same for all warps of the block */
        float *piece = p.pieces + (size_t)(mine + 2 * unit_of(p, s) + part) * piece_size(D, p.heads);
        piece_store<D>(p, a, join ? (float *)r.slot_k : piece, is_mixed(p.v.kind) && !part, lane);
    }
    if (join)
        block_join<D, MAKE>(p, smem, base,
                            p.pieces + (size_t)(mine - warp + 2 * unit_of(p, s)) * piece_size(D, p.heads));
}

template <int D, int KIND_K, int KIND_V, int MAKE>
static __global__ void __launch_bounds__(most_warps(D) * 32, 1) decode_kernel(decode_job p)
{
    if constexpr (arch_has(MAKE))
        decode_all<D, KIND_K, KIND_V, MAKE>(p);
}

/* ---- the host's side ---- */

/* Groups of threads that read a head's pieces, about 7 each. */
static inline int merge_groups(const decode_job &p)
{
    const int units = p.n_rows * units_per_row(p), joined = p.blocks / units + 2 * p.warps; /* not those at the ends */
    const int pieces = (p.join ? joined : p.blocks * p.warps / units) + 2, groups = (pieces + 6) / 7;
    const int lanes = MERGE_LANES(p.d), least = lanes < 32 ? 32 / lanes : 1;
    const int most = 1024 / lanes < 32 ? 1024 / lanes : 32; /* a lane of merge_finish for each */
    if (groups <= 2)
        return groups < least ? least : groups;
    return groups < most ? (groups + 3) / 4 * 4 : most;
}

/* A block's heads: all of a unit where there are as many units as multiprocessors. */
static inline int merge_heads(const decode_job &p, int groups)
{
    const bool many = p.n_rows * units_per_row(p) >= p.blocks;
    return many && p.heads * groups * MERGE_LANES(p.d) <= 1024 ? p.heads : 1;
}

template <int D, int KIND_K, int KIND_V, int MAKE> static void launch_make(cuda_device *d, const decode_job &p)
{
    const int groups = merge_groups(p), heads = merge_heads(p, groups);
    const size_t room = MAKE == ARCH_90 ? SMEM : p.slots_from + (size_t)p.warps * p.slot_bytes;
    const size_t bytes = (size_t)heads * merge_bytes(D, groups);
    const dim3 merges((unsigned)(p.heads / heads), (unsigned)units_per_row(p), (unsigned)p.n_rows);
    cuda_smem(decode_kernel<D, KIND_K, KIND_V, MAKE>, room);
    cuda_launch(d, decode_kernel<D, KIND_K, KIND_V, MAKE>, dim3((unsigned)p.blocks), (unsigned)p.warps * 32, room, p);
    cuda_smem(decode_merge<D, MAKE>, bytes);
    cuda_launch(d, decode_merge<D, MAKE>, merges, dim3(MERGE_LANES(D) * groups, heads), bytes, p);
}

#endif
