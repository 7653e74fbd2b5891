/* decode_plan.cuh: which steps of a batch a warp of attn_decode.cu computes.
 *
 * Steps are numbered through: rows in order, units of a row in order, of a unit first its encoded pages (shape::STEP
 * keys each), then its exact keys (TAIL_STEP keys each, which count as 1 << p.exact_cost steps); pages that lie before
 * the row's window have none.  The line of steps is
 * cut into even stretches, one for each warp of the grid.  The stretches depend on the batch, so the last bits of
 * a result do too.
 *
 * All of this runs once, before the first page is asked for, and its instructions are cold: few of them count. */
#ifndef KVANT_CUDA_DECODE_PLAN_CUH
#define KVANT_CUDA_DECODE_PLAN_CUH

#include "devices/cuda/attn/decode/decode_step.cuh"

enum { TAIL_STEP = 16, PLAN_SUMS = DECODE_ROWS / 32 };

/* A row: token row (-1: not this kernel's), sequence and position; pages first_page .. encoded - 1 are read encoded,
 * the rest exactly.  steps: of each of its units, of which `coded` of encoded pages; first: number of the row's first
 * step, counted from the first of its 32 rows; fresh: the sequence's first position of this batch. */
typedef struct row_span {
    int token, seq, pos, encoded, coded, steps, first, fresh;
} row_span;

/* A launch's rows and the steps of each 32 of them, in shared memory. */
typedef struct plan {
    const row_span *spans;
    const int *sums;
} plan;

static __host__ __device__ inline int units_per_row(const decode_job &p)
{
    return p.h_kv * p.head_tiles;
}

/* The first page that a row at pos reads. */
static __device__ __forceinline__ int first_page(const decode_job &p, int pos)
{
    return attn_first(p, pos) / KVANT_PAGE;
}

template <int D, int MAKE = ARCH_90> static __device__ __forceinline__ row_span span_of(const decode_job &p, int row)
{
    row_span o = { -1, row, 0, 0, 0, 0, 0, 0 };
    const bool own = row < p.seqs.n_seqs; /* most often row i is sequence i's: three loads at once */
    const int from = own ? p.seqs.q0[row] : -1, to = own ? p.seqs.q0[row + 1] : -1;
    int pos0 = own ? p.seqs.pos0[row] : 0;
    o.token = row;
    int q0 = from;
    if (from != row || to <= from) {
        o.seq = seq_of(p.seqs, row);
        q0 = p.seqs.q0[o.seq];
        pos0 = p.seqs.pos0[o.seq];
    }
    o.pos = pos0 + o.token - q0;
    o.fresh = pos0;
    const int now = o.pos / KVANT_PAGE;
    o.encoded = now + 1;
    const bool tail = p.k.s.tail || p.v.s.tail;
    if (p.in_place)
        o.encoded = o.fresh / KVANT_PAGE;
#pragma unroll 1
    while (tail && o.encoded > 0 && now - o.encoded + 1 < p.tail_pages &&
           p.seqs.tail_table[(size_t)o.seq * p.seqs.stride + o.encoded - 1] >= 0)
        o.encoded--;
    const int page = first_page(p, o.pos);
    o.encoded = max(o.encoded, page);
    const int exact = o.pos + 1 - o.encoded * KVANT_PAGE;
    o.coded = (o.encoded - page) * shape<D, MAKE>::PER_PAGE;
    o.steps = o.coded + (exact > 0 ? (exact + TAIL_STEP - 1) / TAIL_STEP << p.exact_cost : 0);
    return o;
}

/* All threads of the block, before a barrier: fills spans and sums. */
template <int D, int MAKE = ARCH_90>
static __device__ __forceinline__ void plan_rows(const decode_job &p, row_span *spans, int *sums)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int i = threadIdx.x; i - lane < p.n_rows; i += blockDim.x) {
        row_span o = { -1, 0, 0, 0, 0, 0, 0, 0 };
        if (i < p.n_rows)
            o = span_of<D, MAKE>(p, p.row0 + i);
        const int mine = o.steps * units_per_row(p);
        int sum = mine;
#pragma unroll
        for (int m = 1; m < 32; m *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, sum, m);
            sum += lane >= m ? other : 0;
        }
        o.first = sum - mine;
        if (i < p.n_rows)
            spans[i] = o;
        if (lane == 31)
            sums[i / 32] = sum;
    }
}

/* Steps of all rows. */
static __device__ __forceinline__ int plan_total(const decode_job &p, const plan &t)
{
    int total = 0;
#pragma unroll 1
    for (int i = 0; 32 * i < p.n_rows; i++)
        total += t.sums[i];
    return total;
}

/* a / b for quotients below 2^22; a division of integers is four times as many instructions. */
static __device__ __forceinline__ int few_div(int a, int b)
{
    int q = (int)__fdividef((float)a, (float)b);
    q -= q * b > a;
    q += (q + 1) * b <= a;
    return q;
}

/* The line of `total` steps in `parts` stretches; stretch i begins at step cut(i).  joined: a block's warps have
 * stretches one behind the other and leave one piece where these lie in one unit's encoded pages; else neighbours on
 * the line are warps of different blocks. */
typedef struct stretches {
    int total, parts;
    uint32_t by;
    bool joined;
} stretches;

static __device__ __forceinline__ stretches stretches_of(const decode_job &p, int total)
{
    const int most = p.blocks * p.warps;
    const stretches s = { total, min(total, most), p.share, p.join && total >= most };
    return s;
}

static __device__ __forceinline__ int cut(const stretches &s, int i)
{
    if (i >= s.parts)
        return s.total;
    return s.parts == s.total ? i : (int)__umulhi((uint32_t)s.total, (uint32_t)i * s.by);
}

/* The stretch of a step. */
static __device__ __forceinline__ int cut_owner(const stretches &s, int at)
{
    int i = min((int)__fdividef((float)at * (float)s.parts, (float)s.total), s.parts - 1);
    while (cut(s, i) > at)
        i--;
    while (cut(s, i + 1) <= at)
        i++;
    return i;
}

/* The unit of a step: unit `in` of row `row` of the launch; numbers of its first step, its first exact one and the next
 * unit's first. */
typedef struct spot {
    int row, in, first, exact, end;
} spot;

/* Whole warp. */
static __device__ __forceinline__ spot spot_of(const decode_job &p, const plan &t, int at, int lane)
{
    int c = 0, before = 0;
#pragma unroll 1
    for (; at - before >= t.sums[c]; c++)
        before += t.sums[c];
    const bool there = 32 * c + lane < p.n_rows && t.spans[32 * c + lane].first <= at - before;
    spot o;
    o.row = 32 * c + 31 - __clz((int)__ballot_sync(0xffffffffu, there));
    const row_span s = t.spans[o.row];
    o.in = few_div(at - before - s.first, s.steps);
    o.first = before + s.first + o.in * s.steps;
    o.exact = o.first + s.coded;
    o.end = o.first + s.steps;
    return o;
}

static __device__ __forceinline__ int unit_of(const decode_job &p, const spot &s)
{
    return s.row * units_per_row(p) + s.in;
}

static __device__ __forceinline__ int kv_of(const decode_job &p, int in)
{
    return p.head_tiles == 1 ? in : in / p.head_tiles;
}

/* Number in the unit of the first exact step that begins at `at` or behind it. */
static __device__ __forceinline__ int exact_at(const decode_job &p, const spot &s, int at)
{
    return (max(at - s.exact, 0) + (1 << p.exact_cost) - 1) >> p.exact_cost;
}

/* Row 0 of exact page j: of the tail, or of pages of rows as they are. */
static __device__ __forceinline__ const uint8_t *exact_rows(const decode_job &p, const decode_side &s, int seq, int j,
                                                            int kv)
{
    const size_t at = (size_t)seq * p.seqs.stride + j;
    if (s.s.tail)
        return (const uint8_t *)side_tail_row(s.s, p.seqs.tail_table[at], p.h_kv, kv, 0);
    return side_row(s.s, p.seqs.table[at], kv, 0);
}

/* The encoded steps of a warp, for the copies that run ahead of the sums. */
typedef struct feed {
    int at, end, hi;     /* number of the next step to ask for; end of its unit's encoded steps; of the warp's steps */
    int in, base, ids;   /* its number in the unit; lane i: id of page base + i of those that the unit reads */
    const int32_t *table;
    uint32_t k_at, v_at; /* of the KV head in a page */
} feed;

template <int D, int MAKE = ARCH_90> static __device__ __forceinline__ void feed_ids(feed &f, int lane)
{
    constexpr int PER_PAGE = shape<D, MAKE>::PER_PAGE;
    f.base = f.in / PER_PAGE;
    const int left = (f.end - f.at + f.in % PER_PAGE + PER_PAGE - 1) / PER_PAGE;
    f.ids = lane < left ? f.table[f.base + lane] : 0;
}

/* To the first encoded step from f.at on. */
template <int D, int MAKE = ARCH_90>
static __device__ __forceinline__ void feed_seek(const decode_job &p, const plan &t, feed &f, int lane)
{
#pragma unroll 1
    while (f.at < f.hi) {
        const spot s = spot_of(p, t, f.at, lane);
        if (f.at < s.exact) {
            f.end = min(s.exact, f.hi);
            f.in = f.at - s.first;
            f.table = p.seqs.table + (size_t)t.spans[s.row].seq * p.seqs.stride + first_page(p, t.spans[s.row].pos);
            f.k_at = (uint32_t)kv_of(p, s.in) * (uint32_t)p.k.s.head_bytes;
            f.v_at = (uint32_t)kv_of(p, s.in) * (uint32_t)p.v.s.head_bytes;
            feed_ids<D, MAKE>(f, lane);
            return;
        }
        f.at = s.end;
    }
}

template <int D, int MAKE = ARCH_90>
static __device__ __forceinline__ void feed_next(const decode_job &p, const plan &t, feed &f, int lane)
{
    f.at++;
    f.in++;
    if (f.at >= f.hi)
        return;
    if (f.at >= f.end)
        feed_seek<D, MAKE>(p, t, f, lane);
    else if (f.in / shape<D, MAKE>::PER_PAGE - f.base == 32)
        feed_ids<D, MAKE>(f, lane);
}

/* Returns the begin of the step's rows of a side. */
template <int D, int MAKE = ARCH_90>
static __device__ __forceinline__ const uint8_t *feed_from(const feed &f, const decode_side &s, uint32_t head_at)
{
    const uint32_t page = (uint32_t)__shfl_sync(0xffffffffu, f.ids, f.in / shape<D, MAKE>::PER_PAGE - f.base);
    return s.s.pages + (uint64_t)page * (uint32_t)s.s.page_bytes + head_at +
           (uint32_t)(f.in % shape<D, MAKE>::PER_PAGE * shape<D, MAKE>::BLOCKS) * s.apart;
}

#endif
