/* run_move.cuh: values to a warp's shared memory and bytes from there, for the formats of 128 values (cache_run.cu,
 * cache_best.cu). */
#ifndef KVANT_CUDA_RUN_MOVE_CUH
#define KVANT_CUDA_RUN_MOVE_CUH

#include "devices/cuda/encode/encode_run.cuh"
#include "devices/cuda/encode/tile_run.cuh"

/* Four values of each line of a unit: of four units at once, by the warp. */
static __device__ __forceinline__ void run_copy4(uint32_t to, const float *x)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        async_copy16_all((to ^ 32 * k) + RUN_LINE * k, x + 32 * k);
}

/* Where this lane's first values go. */
static __device__ __forceinline__ uint32_t run_goal(uint32_t stage)
{
    const int lane = threadIdx.x % 32;
    return run_chunk(stage, lane / 8, 0, lane % 8);
}

/* Values of the tile, to run_goal; past the end those of the last unit, nothing comes of them. */
static __device__ __forceinline__ void run_load(const job &p, const run_spot &t, uint32_t to)
{
    const int lane = threadIdx.x % 32;
    if (p.groups == 1 && t.left >= TILE_UNITS) {
        run_copy4(to, t.x);
        run_copy4(to + 4 * RUN_UNIT, t.x + 4 * p.ldx);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        int token = 0, g = (int)t.first + min(lane / 8 + 4 * i, t.left - 1);
        tile_carry(p, &token, &g);
        run_copy4(to + 4 * RUN_UNIT * i, p.x + token * p.ldx + (t.h * p.side.d + g * GROUP_MAX + 4 * (lane % 8)));
    }
}

/* Asks for tile t, if there is one. */
static __device__ __forceinline__ void best_ask(const job &p, const run_spot &t, uint32_t to)
{
    if (t.left > 0)
        run_load(p, t, to);
    async_commit();
}

/* Asks for tile t and moves on to the next. */
static __device__ __forceinline__ void run_ask(const job &p, const run_work &w, run_spot *t, uint32_t stage)
{
    if (t->left > 0) {
        run_load(p, *t, run_goal(stage));
        run_next(p, w, t);
    }
    async_commit();
}

/* Where a unit of a run goes: the ids of its pages are on their way. */
static __device__ __forceinline__ tile_slot run_slot(const job &p, const run_unit &u, int h, int bytes)
{
    const int pos = u.token - u.q0 + u.pos0, at = pos % KVANT_PAGE;
    const int64_t i = (int64_t)u.seq * p.seqs.stride + pos / KVANT_PAGE;
    if (u.seq < 0)
        return { -1, -1, 0, 0 };
    return { p.seqs.table[i], p.side.tail && p.seqs.tail_table ? p.seqs.tail_table[i] : -1,
             (uint32_t)h * (uint32_t)p.side.head_bytes + (uint32_t)at * (uint32_t)p.side.row_bytes +
                 (uint32_t)(u.g * bytes),
             (uint32_t)((h * KVANT_PAGE + at) * p.side.d + u.g * GROUP_MAX) };
}

/* The places of a run's units: this lane's, and by bits the units that have a row, and those whose rows follow the row
 * before.  RUN_WHOLE there: all do, of whole tiles, and may be written 16 bytes at a time; then `row` is the first
 * one's. */
typedef struct run_to {
    uint8_t *row;
    unsigned rows, follow;
} run_to;

static const unsigned RUN_WHOLE = ~0u;

static __device__ __forceinline__ run_to run_target(const job &p, const tile_slot &slot, int units, int bytes)
{
    run_to r = { tile_target(p, slot).row, 0, 0 };
    const uint8_t *before = (const uint8_t *)__shfl_up_sync(0xffffffffu, (unsigned long long)r.row, 1);
    r.rows = __ballot_sync(0xffffffffu, r.row != NULL);
    r.follow = __ballot_sync(0xffffffffu, r.row && r.row == before + bytes);
    uint8_t *first = (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)r.row, 0);
    const unsigned all = units < 32 ? (1u << units) - 1 : RUN_WHOLE;
    if (units % TILE_UNITS == 0 && r.follow == all - 1 && ((uintptr_t)first & 15) == 0)
        r = { first, 0, RUN_WHOLE };
    return r;
}

/* Units of a tile that go to a tail, as halves: bit r of `some` for unit r, which is this lane's where `tail` is. */
static __device__ __forceinline__ void run_tails(unsigned some, const uint16_t *tail, int first, uint32_t stage)
{
    const int lane = threadIdx.x % 32;
    for (; some; some &= some - 1) {
        const int r = __ffs((int)some) - 1;
        float x[4];
        run_read(run_chunk(stage, r, lane / 8, lane % 8), x);
        tile_halves((uint16_t *)__shfl_sync(0xffffffffu, (unsigned long long)tail, first + r),
                    make_float4(x[0], x[1], x[2], x[3]));
    }
    __syncwarp();
}

template <int F> static __device__ __forceinline__ void run_write(const run_to &to, int first, const uint8_t *out)
{
    constexpr int bytes = tile_format<F>::unit_bytes, all = TILE_UNITS * bytes;
    const unsigned rows = to.rows >> first & 255u, follow = to.follow >> first & 254u;
    if (to.follow == RUN_WHOLE)
        tile_copy_out<uint4, (all + 511) / 512>(to.row + bytes * first, out, all);
    run_rows<F>(rows, follow, out, [&](int r) {
        return (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)to.row, first + r);
    });
    __syncwarp();
}

#endif
