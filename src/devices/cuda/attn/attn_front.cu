/* attn_front.cu: norms and rotations of queries and keys; queries to the operands of attention's kernels; rows of K and
 * V to the exact tail or to pages of 16-bit rows.  Each row is read once, as the products left it, and only what
 * attention reads is written.
 *
 * A warp has `each` neighbours among a token's heads, those of the queries first, then K's and V's, so that angles are
 * made once for them. */
#include "devices/cuda/attn/attn_front.cuh"
#include "devices/cuda/attn/decode/whole_ahead.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* A token's place: its page's numbers in the pages and in the tails (-1: none), and the row. */
typedef struct token_at {
    int page, tail, row;
} token_at;

static __device__ __forceinline__ token_at place_of(const front_job &p, int token)
{
    const int seq = seq_of(p.seqs, token), pos = pos_of(p.seqs, seq, token), page = pos / KVANT_PAGE;
    const size_t at = (size_t)seq * p.seqs.stride + page;
    return { p.seqs.table[at], p.seqs.tail_table ? p.seqs.tail_table[at] : -1, pos % KVANT_PAGE };
}

/* A head's row of a side and the values between two heads' rows; NULL: a side with a tail has none for this token. */
static __device__ __forceinline__ uint16_t *row_of(const front_job &p, const side_dev &s, const token_at &at, int head,
                                                   int *step)
{
    *step = s.tail ? KVANT_PAGE * s.d : (int)(s.head_bytes / 2);
    if (!s.tail)
        return (uint16_t *)side_row(s, at.page, head, at.row);
    return at.tail < 0 ? NULL : side_tail_row(s, at.tail, p.h_kv, head, at.row);
}

/* Heads that lie `step` values apart, one after the other: of(number, the lane's values, what warp_ask has).  A head is
 * asked for while the one before it is at work. */
template <int V, typename F>
static __device__ __forceinline__ void front_heads(const float *from, int64_t step, int n, bool norm, int lane, F of)
{
    float next[V], next_asked[V] = {};
    auto ask = [&] {
        lane_take<V>(from + lane * V, next);
        if (norm)
            warp_ask<V>(from, next_asked, lane);
        from += step;
    };
    if (n > 0)
        ask();
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        float x[V], asked[V];
#pragma unroll
        for (int k = 0; k < V; k++)
            x[k] = next[k], asked[k] = next_asked[k];
        if (i + 1 < n)
            ask();
        of(i, x, asked);
    }
}

/* Queries first .. end - 1 of a token. */
template <int V>
static __device__ __forceinline__ void front_queries(const front_job &p, const turn<V> &t, int token, int first,
                                                     int end, int lane)
{
    const lane_norm<V> norm = lane_norm_of<V>(p.ahead.q_norm, p.ahead.q_eps, lane);
    const warp_space<V> space = warp_space_of<V>(p.k.space, lane);
    const float by = p.scale * PREP_LOG2E, by_k = by * side_scale(p.k);
    const size_t to = ((size_t)token * p.h + first) * 32 * V;
    front_heads<V>(p.q + token * p.ldq + first * p.gq, p.gq, end - first, norm.some, lane,
                   [&](int i, float *x, const float *asked) {
                       head_ready<V>(p.ahead, t, norm, asked, x, lane);
                       const size_t at = to + (size_t)(i * 32 + lane) * V;
                       if (p.k_bf16) {
                           store_split<V>(p.raw + at, p.turned + at, x, by);
                           return;
                       }
                       store_halves<V>(p.raw + at, x, by);
                       warp_rotate<V>(space, x, lane);
                       store_halves<V>(p.turned + at, x, by_k);
                   });
}

/* Rows first .. end - 1 of a token's keys or values, to their side. */
template <int V>
static __device__ __forceinline__ void front_rows(const front_job &p, const turn<V> &t, const token_at &at, bool value,
                                                  int token, int first, int end, int lane)
{
    const lane_norm<V> norm = lane_norm_of<V>(value ? NULL : p.ahead.k_norm, p.ahead.k_eps, lane);
    const side_dev &side = value ? p.v : p.k;
    const bool bf16 = value ? p.v_bf16 : p.k_bf16;
    int step;
    uint16_t *const to = row_of(p, side, at, first, &step);
    if (!to)
        return;
    front_heads<V>((value ? p.v_rows : p.k_rows) + token * p.ld_rows + first * 32 * V, 32 * V, end - first, norm.some,
                   lane, [&](int i, float *x, const float *asked) {
                       if (!value)
                           head_ready<V>(p.ahead, t, norm, asked, x, lane);
                       store_row<V>(to + i * step + lane * V, x, bf16);
                   });
}

/* Once it runs, all before it has ended: decode_kernel.cuh reads pages before its own pdl_wait. */
template <int V> static __global__ void __launch_bounds__(THREADS) front_kernel(front_job p)
{
    const int keys = p.h + p.h_kv, all = keys + p.h_kv, groups = (all + p.each - 1) / p.each;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0); /* so the compiler knows that a warp has one */
    const int lane = (int)threadIdx.x % 32, i = (int)blockIdx.x * WARPS + warp, token = i / groups;
    const int first = i % groups * p.each, end = min(all, first + p.each);
    pdl_wait();
    pdl_go();
    if (token >= p.seqs.n_tokens)
        return;
    const turn<V> t = first < keys ? turn_at<V>(p.ahead, token, lane) : turn<V>();
    front_queries<V>(p, t, token, first, min(end, p.h), lane);
    if (end <= p.h)
        return;
    const token_at at = place_of(p, token);
    front_rows<V>(p, t, at, false, token, max(first - p.h, 0), min(end - p.h, p.h_kv), lane);
    front_rows<V>(p, t, at, true, token, max(first - keys, 0), end - keys, lane);
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
