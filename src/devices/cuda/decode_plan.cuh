/* decode_plan.cuh: which steps of a batch a warp of attn_decode.cu computes.
 *
 * Steps are numbered through: rows in order, units of a row in order, of a unit first its encoded pages (shape<D>::STEP
 * keys each), then its exact keys (TAIL_STEP keys each).  Blocks get even stretches of the numbers, warps even parts of
 * their block's.  What a stretch is depends on the batch, so the last bits of a result do too. */
#ifndef KVANT_CUDA_DECODE_PLAN_CUH
#define KVANT_CUDA_DECODE_PLAN_CUH

#include "devices/cuda/decode_step.cuh"

enum { TAIL_STEP = 16 };

/* A row: token row (-1: not this kernel's), sequence and position; pages 0 .. encoded - 1 are read encoded, the rest
 * exactly.  steps: of each of its units, of which `coded` of encoded pages; first: number of the row's first step. */
typedef struct row_span {
    int token, seq, pos, encoded, coded, steps, first, pad;
} row_span;

static __host__ __device__ inline int units_per_row(const decode_job &p)
{
    return p.h_kv * p.head_tiles;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

template <int D> static __device__ row_span span_of(const decode_job &p, int row)
{
    row_span o = { -1, row, 0, 0, 0, 0, 0, 0 };
    const bool own = row < p.seqs.n_seqs; /* most often row i is sequence i's: three loads at once */
    const int from = own ? p.seqs.q0[row] : -1, to = own ? p.seqs.q0[row + 1] : -1;
    int pos0 = own ? p.seqs.pos0[row] : 0;
    if (p.by_seq && to - from != 1) /* only sequences with one token */
        return o;
    o.token = p.by_seq ? from : row;
    int q0 = from;
    if (!p.by_seq && (from != row || to <= from)) {
        o.seq = seq_of(p.seqs, row);
        q0 = p.seqs.q0[o.seq];
        pos0 = p.seqs.pos0[o.seq];
    }
    o.pos = pos0 + o.token - q0;
    const int now = o.pos / KVANT_PAGE;
    o.encoded = now + 1;
    const bool tail = p.k.s.tail || p.v.s.tail;
    while (tail && o.encoded > 0 && now - o.encoded + 1 < p.tail_pages &&
           p.seqs.tail_table[(size_t)o.seq * p.seqs.stride + o.encoded - 1] >= 0)
        o.encoded--;
    const int exact = o.pos + 1 - o.encoded * KVANT_PAGE;
    o.coded = o.encoded * shape<D>::PER_PAGE;
    o.steps = o.coded + (exact > 0 ? (exact + TAIL_STEP - 1) / TAIL_STEP : 0);
    return o;
}

/* All threads of the block: fills spans, returns the number of steps; total: room for it. */
template <int D> static __device__ int plan_rows(const decode_job &p, row_span *spans, int *total)
{
    for (int i = threadIdx.x; i < p.n_rows; i += blockDim.x)
        spans[i] = span_of<D>(p, p.row0 + i);
    __syncthreads();
    if (threadIdx.x < 32) {
        int before = 0;
        for (int base = 0; base < p.n_rows; base += 32) {
            const int i = base + threadIdx.x, mine = i < p.n_rows ? spans[i].steps * units_per_row(p) : 0;
            int sum = mine;
            for (int m = 1; m < 32; m *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, sum, m);
                sum += (int)threadIdx.x >= m ? other : 0;
            }
            if (i < p.n_rows)
                spans[i].first = before + sum - mine;
            before += __shfl_sync(0xffffffffu, sum, 31);
        }
        if (threadIdx.x == 0)
            *total = before;
    }
    __syncthreads();
    return *total;
}

/* n things in `parts` even parts, n >= parts, longer ones first: where part i begins; the part of thing `at`. */
static __device__ __forceinline__ int split_at(int n, int parts, int i)
{
    return n / parts * i + min(i, n % parts);
}

static __device__ __forceinline__ int split_owner(int n, int parts, int at)
{
    const int each = n / parts, longer = n % parts, behind = at - longer * (each + 1);
    return behind < 0 ? at / (each + 1) : longer + behind / each;
}

/* The unit of a step: unit `in` of row `row` of the launch; numbers of its first step, its first exact one and the next
 * unit's first. */
typedef struct spot {
    int row, in, first, exact, end;
} spot;

static __device__ spot spot_of(const decode_job &p, const row_span *spans, int at)
{
    int lo = 0, hi = p.n_rows - 1;
    while (lo < hi) {
        const int mid = (lo + hi + 1) / 2;
        if (spans[mid].first <= at)
            lo = mid;
        else
            hi = mid - 1;
    }
    spot o;
    const row_span s = spans[lo];
    o.row = lo;
    o.in = (at - s.first) / s.steps;
    o.first = s.first + o.in * s.steps;
    o.exact = o.first + s.coded;
    o.end = o.first + s.steps;
    return o;
}

static __device__ __forceinline__ int unit_of(const decode_job &p, const spot &s)
{
    return s.row * units_per_row(p) + s.in;
}

static __device__ __forceinline__ int kv_of(const decode_job &p, const spot &s)
{
    return s.in / p.head_tiles;
}

/* The encoded steps of a warp, for the copies that run ahead of the sums. */
typedef struct feed {
    int at, end, hi;     /* number of the next step to ask for; end of its unit's encoded steps; of the warp's steps */
    int in, base, ids;   /* its number in the unit; lane i: id of page base + i */
    const int32_t *table;
    uint32_t k_at, v_at; /* of the KV head in a page */
} feed;

template <int D> static __device__ __forceinline__ void feed_ids(feed &f, int lane)
{
    f.base = f.in / shape<D>::PER_PAGE;
    const int left = (f.end - f.at + f.in % shape<D>::PER_PAGE + shape<D>::PER_PAGE - 1) / shape<D>::PER_PAGE;
    f.ids = lane < left ? f.table[f.base + lane] : 0;
}

/* To the first encoded step from f.at on. */
template <int D>
static __device__ __forceinline__ void feed_seek(const decode_job &p, const row_span *spans, feed &f, int lane)
{
    while (f.at < f.hi) {
        const spot s = spot_of(p, spans, f.at);
        if (f.at < s.exact) {
            f.end = min(s.exact, f.hi);
            f.in = f.at - s.first;
            f.table = p.seqs.table + (size_t)spans[s.row].seq * p.seqs.stride;
            f.k_at = (uint32_t)kv_of(p, s) * (uint32_t)p.k.s.head_bytes;
            f.v_at = (uint32_t)kv_of(p, s) * (uint32_t)p.v.s.head_bytes;
            feed_ids<D>(f, lane);
            return;
        }
        f.at = s.end;
    }
}

template <int D>
static __device__ __forceinline__ void feed_next(const decode_job &p, const row_span *spans, feed &f, int lane)
{
    f.at++;
    f.in++;
    if (f.at >= f.hi)
        return;
    if (f.at >= f.end)
        feed_seek<D>(p, spans, f, lane);
    else if (f.in / shape<D>::PER_PAGE - f.base == 32)
        feed_ids<D>(f, lane);
}

/* Where the step's rows of a side begin. */
template <int D>
static __device__ __forceinline__ const uint8_t *feed_from(const feed &f, const decode_side &s, uint32_t head_at)
{
    const uint32_t page = (uint32_t)__shfl_sync(0xffffffffu, f.ids, f.in / shape<D>::PER_PAGE - f.base);
    return s.s.pages + (uint64_t)page * (uint32_t)s.s.page_bytes + head_at +
           (uint32_t)(f.in % shape<D>::PER_PAGE * shape<D>::BLOCKS) * s.block_bytes;
}

#endif
#endif
