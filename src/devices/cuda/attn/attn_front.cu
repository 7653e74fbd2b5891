/* attn_front.cu: norms and rotations of queries and keys; queries to the operands of attention's kernels; rows of K and
 * V to the exact tail.  Each row is read once, as the products left it, and only what attention reads is written.
 *
 * A warp has `each` neighbours among a token's heads, those of the queries first, then K's and V's, so that angles are
 * made once for them. */
#include "devices/cuda/attn/attn_front.cuh"
#include "devices/cuda/attn/decode/whole_ahead.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* Where a token's rows lie in the tails of K and V, which have one table; page -1: nowhere. */
typedef struct exact_at {
    int page, row;
} exact_at;

static __device__ __forceinline__ exact_at exact_of(const front_job &p, int token)
{
    const int seq = seq_of(p.seqs, token), pos = pos_of(p.seqs, seq, token), page = pos / KVANT_PAGE;
    return { side_tail_page(p.k, p.seqs, seq, page, page, 1), pos % KVANT_PAGE };
}

/* Head `at` of a token: as the products left it. */
static __device__ __forceinline__ const float *front_from(const front_job &p, int token, int at, int d)
{
    if (at < p.h)
        return p.q + token * p.ldq + at * p.gq;
    const int key = at - p.h;
    return token * p.ld_rows + (key < p.h_kv ? p.k_rows + key * d : p.v_rows + (key - p.h_kv) * d);
}

template <int V>
static __device__ __forceinline__ void front_query(const front_job &p, const turn<V> &t, int token, int head,
                                                   const float *from, const float *ahead, int lane)
{
    const float by = p.scale * PREP_LOG2E;
    const size_t to = ((size_t)token * p.h + head) * 32 * V;
    float x[V];
    head_ready<V>(p.ahead, t, p.ahead.q_norm, p.ahead.q_eps, from, ahead, x, lane);
    warp_turn<V>(p.k.space, x, by, by * side_scale(p.k), p.raw + to, p.turned + to, lane);
}

/* key: its number among the rows of K, then V. */
template <int V>
static __device__ __forceinline__ void front_row(const front_job &p, const turn<V> &t, const exact_at &at, int key,
                                                 const float *from, const float *ahead, int lane)
{
    const bool value = key >= p.h_kv;
    uint16_t *to = side_tail_row(value ? p.v : p.k, at.page, p.h_kv, value ? key - p.h_kv : key, at.row);
    float x[V];
    if (value)
        head_load<V>(from, x, lane);
    else
        head_ready<V>(p.ahead, t, p.ahead.k_norm, p.ahead.k_eps, from, ahead, x, lane);
    store_row<V>(to + lane * V, x);
}

/* Once it runs, all before it has ended: decode_kernel.cuh reads pages before its own pdl_wait.  A head is asked for
 * while the one before it is at work. */
template <int V> static __global__ void __launch_bounds__(THREADS) front_kernel(front_job p)
{
    const int all = p.h + 2 * p.h_kv, groups = (all + p.each - 1) / p.each, lane = (int)threadIdx.x % 32;
    const int i = (int)(blockIdx.x * WARPS + threadIdx.x / 32), token = i / groups, first = i % groups * p.each;
    const int end = min(all, first + p.each);
    float ahead[V], next[V];
    turn<V> t = {};
    exact_at to = { -1, 0 };
    pdl_wait();
    pdl_go();
    if (token >= p.seqs.n_tokens)
        return;
    warp_ask<V>(front_from(p, token, first, 32 * V), next, lane);
    if (first < p.h + p.h_kv)
        t = turn_at<V>(p.ahead, token, lane);
    if (end > p.h)
        to = exact_of(p, token);
#pragma unroll 1
    for (int at = first; at < end; at++) {
        const float *from = front_from(p, token, at, 32 * V);
#pragma unroll
        for (int k = 0; k < V; k++)
            ahead[k] = next[k];
        if (at + 1 < end)
            warp_ask<V>(front_from(p, token, at + 1, 32 * V), next, lane);
        if (at < p.h)
            front_query<V>(p, t, token, at, from, ahead, lane);
        else if (to.page >= 0)
            front_row<V>(p, t, to, at - p.h, from, ahead, lane);
    }
}

static bool aligned(const void *at, int64_t stride, int bytes)
{
    return ((uintptr_t)at | (uintptr_t)(4 * stride)) % (unsigned)bytes == 0;
}

bool front_fits(const front_job &p)
{
    const int lane_bytes = p.d / 32 * (int)sizeof(float);
    return ahead_fits(p.ahead, p.d) && p.k.space != SPACE_SKETCH && aligned(p.q, p.ldq | p.gq, lane_bytes) &&
           aligned(p.k_rows, p.ld_rows, lane_bytes) && aligned(p.v_rows, p.ld_rows, lane_bytes) &&
           (((uintptr_t)p.k.tail | (uintptr_t)p.v.tail) & 15) == 0;
}

void front_run(const cuda_device *d, front_job p)
{
    const auto kernel = p.d == 64 ? front_kernel<2> : p.d == 128 ? front_kernel<4> : front_kernel<8>;
    const int heads = p.h + 2 * p.h_kv;
    const int64_t full = 64ll * d->n_sm, all = p.seqs.n_tokens * (int64_t)heads; /* full: warps that the GPU holds */
    p.each = all >= 8 * full ? 8 : all >= 4 * full ? 4 : 1;
    const int64_t warps = p.seqs.n_tokens * (int64_t)((heads + p.each - 1) / p.each);
    cuda_launch(d, kernel, dim3(cuda_blocks(warps, WARPS)), THREADS, 0, p);
}
