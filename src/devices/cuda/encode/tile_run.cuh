/* tile_run.cuh: which tiles a warp encodes, and where their units go (tile_place.cuh): runs of up to four tiles of 8
 * units, one behind the other in one head.  Where a run goes is found once, a unit to a lane. */
#ifndef KVANT_CUDA_TILE_RUN_CUH
#define KVANT_CUDA_TILE_RUN_CUH

#include "devices/cuda/encode/tile_codes.cuh"
#include "devices/cuda/encode/tile_place.cuh"

enum { RUN_TILES = 4 };

/* What is encoded: a head's units, in runs of `per` tiles, the first `longer` of them of one more; `step` runs apart
 * for a warp. */
typedef struct run_work {
    unsigned units, step, per, longer;
} run_work;

/* A tile: run n, of head h, from unit `first` of it on has `left` units; start: the run's first tile.  x: this lane's
 * first values, of unit lane / 8, where there are eight units in eight rows. */
typedef struct run_spot {
    unsigned n, first;
    int h, left;
    bool start;
    const float *x;
} run_spot;

/* The first tile of run n; none is left past the last run. */
static __device__ __forceinline__ run_spot run_at(const job &p, const run_work &w, unsigned n)
{
    const unsigned row = n / (unsigned)p.h, first = TILE_UNITS * (row * w.per + min(row, w.longer));
    const int h = (int)(n - row * (unsigned)p.h), lane = threadIdx.x % 32;
    const unsigned size = TILE_UNITS * (w.per + (row < w.longer));
    const int left = first < w.units ? (int)min(w.units - first, size) : 0;
    return { n, first, h, left, true, p.x + (first + lane / 8) * p.ldx + (h * GROUP_MAX + 4 * (lane % 8)) };
}

/* The next tile, of this run or the warp's next. */
static __device__ __forceinline__ void run_next(const job &p, const run_work &w, run_spot *t)
{
    t->first += TILE_UNITS;
    t->left -= TILE_UNITS;
    t->x += TILE_UNITS * p.ldx;
    t->start = false;
    if (t->left <= 0)
        *t = run_at(p, w, t->n + w.step);
}

/* Unit `lane` of a run: its token's sequence, which starts at row q0 and position pos0; none past the end. */
typedef struct run_unit {
    int token, g, seq, q0, pos0;
} run_unit;

static __device__ __forceinline__ run_unit run_find(const job &p, const run_spot &t)
{
    run_unit u = { 0, (int)t.first + (int)threadIdx.x % 32, -1, 0, 0 };
    if ((int)threadIdx.x % 32 >= t.left)
        return u;
    tile_carry(p, &u.token, &u.g);
    u.seq = seq_of(p.seqs, u.token);
    u.q0 = p.seqs.q0[u.seq];
    u.pos0 = p.seqs.pos0[u.seq];
    return u;
}

/* Where a unit of a run goes, as it is found and, once its pages' ids are there, as addresses. */
typedef union run_place {
    tile_slot slot;
    tile_to to;
} run_place;

/* Where this lane's unit goes: the ids of its pages are on their way. */
static __device__ __forceinline__ void run_ask_place(const job &p, const run_unit &u, int h, int bytes, tile_slot *slot)
{
    const int pos = u.token - u.q0 + u.pos0, at = pos % KVANT_PAGE;
    const int64_t i = (int64_t)u.seq * p.seqs.stride + pos / KVANT_PAGE;
    const bool tails = p.side.tail && p.seqs.tail_table;
    if (u.seq < 0 || !tails)
        slot->tail = -1;
    if (u.seq < 0) {
        slot->page = -1;
        return;
    }
    async_copy4(shared_at(&slot->page), p.seqs.table + i);
    if (tails)
        async_copy4(shared_at(&slot->tail), p.seqs.tail_table + i);
    slot->row = (uint32_t)h * (uint32_t)p.side.head_bytes + (uint32_t)at * (uint32_t)p.side.row_bytes +
                (uint32_t)(u.g * bytes);
    slot->exact = (uint32_t)((h * KVANT_PAGE + at) * p.side.d + u.g * GROUP_MAX);
}

/* Of a run's units, by bits: those that have a row, those whose rows follow the row before, those with a place in a
 * tail. */
typedef struct run_bits {
    unsigned rows, follow, tails;
} run_bits;

/* Where this lane's unit goes is known. */
static __device__ __forceinline__ run_bits run_settle(const job &p, int bytes, run_place *place)
{
    const tile_to to = tile_target(p, place->slot);
    const uint8_t *before = (const uint8_t *)__shfl_up_sync(0xffffffffu, (unsigned long long)to.row, 1);
    place->to = to;
    return { __ballot_sync(0xffffffffu, to.row != NULL),
             __ballot_sync(0xffffffffu, to.row && to.row == before + bytes),
             __ballot_sync(0xffffffffu, to.tail != NULL) };
}

/* The bytes of a tile, of whose units `rows` have a row, at_of(unit), and `follow` one that follows the row before:
 * rows one behind the other at once. */
template <int F, typename AT>
static __device__ __forceinline__ void run_rows(unsigned rows, unsigned follow, const uint8_t *out, AT at_of)
{
    constexpr int bytes = tile_format<F>::unit_bytes, all = TILE_UNITS * bytes;
    while (rows) {
        const int r = __ffs((int)rows) - 1, n = __ffs((int)~(follow >> (r + 1)));
        uint8_t *at = at_of(r);
        if (n == TILE_UNITS && ((uintptr_t)at & 15) == 0)
            tile_copy_out<uint4, (all + 511) / 512>(at, out, all);
        else if (((uintptr_t)at & 3) == 0 && bytes * r % 4 == 0 && bytes * n % 4 == 0)
            tile_copy_out<uint32_t>(at, out + bytes * r, bytes * n);
        else
            tile_copy_out<uint16_t>(at, out + bytes * r, bytes * n);
        rows &= ~0u << (r + n);
    }
}

/* The same, of the units of the run from `first` on, which are at `place`. */
template <int F>
static __device__ __forceinline__ void run_store(const run_bits &bits, int first, const run_place *place,
                                                 const uint8_t *out)
{
    run_rows<F>(bits.rows >> first & 255u, bits.follow >> first & 254u, out,
                [&](int r) { return place[r].to.row; });
    __syncwarp();
}

/* Four warps after four: what is asked for first is there first. */
template <bool WAIT> static __device__ __forceinline__ void run_turn(int turn)
{
    const int left = (int)blockDim.x - 128 * turn, threads = 128 + min(left, 128);
    if (turn == 0 || left <= 0)
        return;
    if (WAIT)
        asm volatile("barrier.sync %0, %1;" ::"r"(turn), "r"(threads) : "memory");
    else
        asm volatile("barrier.arrive %0, %1;" ::"r"(turn), "r"(threads) : "memory");
}

/* Runs of a head: as many to a warp as it takes for no run to be too long, and the same to all. */
static inline unsigned run_count(unsigned tiles, unsigned h, unsigned warps)
{
    const unsigned each = cuda_blocks(cuda_blocks(tiles, RUN_TILES) * h, warps), most = each * warps / h;
    const unsigned least = cuda_blocks(tiles, RUN_TILES);
    return most > tiles ? tiles : most < least ? least : most;
}

#endif
