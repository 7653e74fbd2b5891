/* encode_runs.cuh: which tiles a warp encodes, where their values come from and where their bytes go: runs of up to
 * four tiles of 8 units, one behind the other in one head.  The target of a run is found once, a unit to a lane. */
#ifndef KVANT_CUDA_ENCODE_RUNS_CUH
#define KVANT_CUDA_ENCODE_RUNS_CUH

#include "devices/cuda/encode/encode_format.cuh"
#include "devices/cuda/encode/encode_job.cuh"

enum { RUN_TILES = 4, TILE_LINE = 128, TILE_UNIT = 4 * TILE_LINE, TILE_STAGE = TILE_UNITS * TILE_UNIT };   /* bytes */

/* ---- tiles ---- */

/* A head's units, in runs of `per` tiles, the first `longer` of them of one more; `step` runs apart for a warp. */
typedef struct run_work {
    unsigned units, step, per, longer;
} run_work;

/* A tile: run n, of head h, from unit `first` of it on has `left` units; start: the run's first tile.  x: this lane's
 * first values, of unit lane / 8, where there are eight units in eight rows of the batch. */
typedef struct run_spot {
    unsigned n, first;
    int h, left;
    bool start;
    const float *x;
} run_spot;

/* The first tile of run n; none is left past the last run. */
static __device__ __forceinline__ run_spot run_at(const encode_job &p, const run_work &w, unsigned n)
{
    const unsigned row = n / (unsigned)p.h, first = TILE_UNITS * (row * w.per + min(row, w.longer));
    const int h = (int)(n - row * (unsigned)p.h), lane = threadIdx.x % 32;
    const unsigned size = TILE_UNITS * (w.per + (row < w.longer));
    const int left = first < w.units ? (int)min(w.units - first, size) : 0;
    return { n, first, h, left, true, p.x + (first + lane / 8) * p.ldx + (h * GROUP_MAX + 4 * (lane % 8)) };
}

/* The next tile, of this run or the warp's next. */
static __device__ __forceinline__ void run_next(const encode_job &p, const run_work &w, run_spot *t)
{
    t->first += TILE_UNITS;
    t->left -= TILE_UNITS;
    t->x += TILE_UNITS * p.ldx;
    t->start = false;
    if (t->left <= 0)
        *t = run_at(p, w, t->n + w.step);
}

/* Unit n of a head: group g of a token.  A row of 128 values needs no division. */
static __device__ __forceinline__ void run_carry(const encode_job &p, int n, int *token, int *g)
{
    *token = p.groups == 1 ? n : (int)((unsigned)n / (unsigned)p.groups);
    *g = n - *token * p.groups;
}

/* Runs of a head: as many to a warp as it takes for no run to be too long, and the same to all. */
static inline unsigned run_count(unsigned tiles, unsigned h, unsigned warps)
{
    const unsigned each = cuda_blocks(cuda_blocks(tiles, RUN_TILES) * h, warps), most = each * warps / h;
    const unsigned least = cuda_blocks(tiles, RUN_TILES);
    return most > tiles ? tiles : most < least ? least : most;
}

/* ---- values, in a warp's shared memory ---- */

/* Returns the place of chunk c of 16 bytes of a line of 32 values of unit r: lanes that read lines of their own, or a
 * line together, meet no bank twice. */
static __device__ __forceinline__ uint32_t tile_chunk(uint32_t stage, int r, int line, int c)
{
    return stage + TILE_UNIT * r + TILE_LINE * line + 16 * (c ^ (2 * line + r % 2));
}

static __device__ __forceinline__ void tile_read4(uint32_t at, float *v)
{
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(at) : "memory");
}

/* This lane's 32 values, of unit lane / 4; or (UNITS) four of each unit, 4 lane and on. */
template <bool UNITS> static __device__ __forceinline__ void tile_read(uint32_t stage, float *v)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; i++)
        tile_read4(UNITS ? tile_chunk(stage, i, lane / 8, lane % 8) : tile_chunk(stage, lane / 4, lane % 4, 0) ^ 16 * i,
                   v + 4 * i);
}

/* Four values of each line of a unit: of four units at once, by the warp. */
static __device__ __forceinline__ void tile_copy4(uint32_t to, const float *x)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        async_copy16_all((to ^ 32 * k) + TILE_LINE * k, x + 32 * k);
}

/* Values that cannot be copied: at odd places, or halves of a page that is sealed. */
static __device__ __noinline__ void tile_gather(const encode_job &p, unsigned first, int left, int h, uint32_t stage)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 4
    for (int r = 0; r < TILE_UNITS; r++) {
        unit_spot at = { r < left ? 0 : p.units, 0, h, 0 };
        float v[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        unit o;
        run_carry(p, (int)first + r, &at.token, &at.g);
        if (unit_from(p, at, &o))
            unit_load4<false>(p, o, 4 * lane, v);
        asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};"
                     ::"r"(tile_chunk(stage, r, lane / 8, lane % 8)), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
                     : "memory");
    }
}

/* Units of which a row may have a part: zeros behind it; past the end the last one, nothing comes of it. */
static __device__ __forceinline__ void tile_copy_parts(const encode_job &p, const run_spot &t, uint32_t to)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        int token, g;
        run_carry(p, (int)t.first + min(lane / 8 + 4 * i, t.left - 1), &token, &g);
        const int at = g * GROUP_MAX + 4 * (lane % 8);
        const float *x = p.x + token * p.ldx + t.h * p.side.d;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const bool live = at + 32 * k < p.side.d;
            async_copy16((to ^ 32 * k) + TILE_UNIT * 4 * i + TILE_LINE * k, live ? x + at + 32 * k : x, live);
        }
    }
}

/* Values of tile t on their way, if there is one. */
static __device__ __forceinline__ void tile_ask(const encode_job &p, const run_spot &t, uint32_t stage)
{
    const int lane = threadIdx.x % 32;
    const uint32_t to = tile_chunk(stage, lane / 8, 0, lane % 8);
    if (t.left <= 0)
        return;
    if (!p.vec || p.seal) {
        tile_gather(p, t.first, t.left, t.h, stage);
    } else if (p.full && p.groups == 1 && t.left >= TILE_UNITS) {
        tile_copy4(to, t.x);
        tile_copy4(to + 4 * TILE_UNIT, t.x + 4 * p.ldx);
    } else {
        tile_copy_parts(p, t, to);
    }
    async_commit();
}

/* ---- places ---- */

/* Unit `lane` of those of a head from `first` on: its token's sequence, which starts at row q0 and position pos0 (a
 * page that is sealed: seq is it); none past the end. */
typedef struct run_unit {
    int token, g, seq, q0, pos0;
} run_unit;

static __device__ __forceinline__ run_unit run_find(const encode_job &p, int first, int left)
{
    run_unit u = { 0, 0, -1, 0, 0 };
    if ((int)threadIdx.x % 32 >= left)
        return u;
    run_carry(p, first + (int)threadIdx.x % 32, &u.token, &u.g);
    if (p.seal) {
        u.seq = p.dst[u.token / KVANT_PAGE];
        return u;
    }
    u.seq = seq_of(p.seqs, u.token);
    u.q0 = p.seqs.q0[u.seq];
    u.pos0 = p.seqs.pos0[u.seq];
    return u;
}

/* page, tail: ids as the tables have them (-1: none), on their way; row, exact: the place in such a page, in bytes and
 * in values; count: values of the row's. */
typedef struct run_slot {
    int page, tail, count;
    uint32_t row, exact;
} run_slot;

static __device__ __forceinline__ run_slot run_slot_of(const encode_job &p, const run_unit &u, int h, int bytes)
{
    const int pos = u.token - u.q0 + u.pos0, at = pos % KVANT_PAGE;
    const int64_t i = (int64_t)u.seq * p.seqs.stride + pos / KVANT_PAGE;
    run_slot o = { -1, -1, min(p.side.d - u.g * (int)GROUP_MAX, (int)GROUP_MAX), 0, 0 };
    if (u.seq < 0)
        return o;
    o.page = p.seal ? u.seq : p.seqs.table[i];
    if (!p.seal && p.side.tail && p.seqs.tail_table)
        o.tail = p.seqs.tail_table[i];
    o.row = (uint32_t)h * (uint32_t)p.side.head_bytes + (uint32_t)at * (uint32_t)p.side.row_bytes +
            (uint32_t)(u.g * bytes);
    o.exact = (uint32_t)((h * KVANT_PAGE + at) * p.side.d + u.g * GROUP_MAX);
    return o;
}

/* The slots of a run as addresses: this lane's row and, by bits, the units that have one, and those whose rows follow
 * the row before. */
typedef struct run_to {
    uint8_t *row;
    unsigned rows, follow;
} run_to;

static __device__ __forceinline__ run_to run_target(const encode_job &p, const run_slot &slot, bool follow, int bytes)
{
    run_to r = { NULL, 0, 0 };
    if (slot.tail < 0 && slot.page >= 0)
        r.row = side_row(p.side, slot.page, 0, 0) + slot.row;
    const uint8_t *before = (const uint8_t *)__shfl_up_sync(0xffffffffu, (unsigned long long)r.row, 1);
    r.rows = __ballot_sync(0xffffffffu, r.row != NULL);
    r.follow = __ballot_sync(0xffffffffu, follow && r.row && r.row == before + bytes);
    return r;
}

/* RUN_WHOLE in `follow`: all do, of whole tiles, and may be written 16 bytes at a time; then `row` is the first. */
static const unsigned RUN_WHOLE = ~0u;

static __device__ __forceinline__ run_to run_target_whole(const encode_job &p, const run_slot &slot, int units,
                                                          int bytes)
{
    const run_to r = run_target(p, slot, p.full, bytes);
    uint8_t *first = (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)r.row, 0);
    const unsigned all = units < 32 ? (1u << units) - 1 : RUN_WHOLE;
    if (units % TILE_UNITS == 0 && r.follow == all - 1 && ((uintptr_t)first & 15) == 0)
        return { first, 0, RUN_WHOLE };
    return r;
}

static __device__ __forceinline__ uint8_t *run_row(const run_to &to, int unit)
{
    return (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)to.row, unit);
}

/* Units of a tile that go to a tail, as halves: bit r of `some` for unit first + r of the run, which is that lane's. */
static __device__ __forceinline__ void run_tails(const encode_job &p, unsigned some, const run_slot &slot, int first,
                                                 uint32_t stage)
{
    const int lane = threadIdx.x % 32;
    uint16_t *mine = slot.tail >= 0 ? side_tail_row(p.side, slot.tail, p.h, 0, 0) + slot.exact : NULL;
    for (; some; some &= some - 1) {
        const int r = __ffs((int)some) - 1, count = __shfl_sync(0xffffffffu, slot.count, first + r);
        uint16_t *tail = (uint16_t *)__shfl_sync(0xffffffffu, (unsigned long long)mine, first + r);
        float x[4];
        tile_read4(tile_chunk(stage, r, lane / 8, lane % 8), x);
        if (p.full)
            tail_store4<true>(p, tail, 4 * lane, count, x);
        else
            tail_store4<false>(p, tail, 4 * lane, count, x);
    }
    __syncwarp();
}

/* ---- bytes ---- */

/* `bytes` of shared memory by the warp, T at a time; EACH: as many at most, where that is known. */
template <typename T, int EACH = 0>
static __device__ __forceinline__ void tile_copy_out(uint8_t *to, const uint8_t *out, int bytes)
{
#pragma unroll
    for (int i = threadIdx.x % 32 * (int)sizeof(T), n = 0; EACH ? n < EACH : i < bytes; i += 32 * (int)sizeof(T), n++)
        if (!EACH || i < bytes)
            *(T *)(to + i) = *(const T *)(out + i);
}

/* UNITS units of BYTES each, one behind the other in `out`, to their rows, at_of(unit): those that follow one another
 * (bits in `follow`) at once; size_of(unit): bytes of one alone. */
template <int UNITS, int BYTES, typename AT, typename SIZE>
static __device__ __forceinline__ void run_rows(unsigned rows, unsigned follow, const uint8_t *out, AT at_of,
                                                SIZE size_of)
{
    constexpr int all = UNITS * BYTES;
    while (rows) {
        const int r = __ffs((int)rows) - 1, n = __ffs((int)~(follow >> (r + 1)));
        const int size = n > 1 ? BYTES * n : size_of(r);
        uint8_t *at = at_of(r);
        if (n == UNITS && ((uintptr_t)at & 15) == 0)
            tile_copy_out<uint4, (all + 511) / 512>(at, out, all);
        else if (((uintptr_t)at & 3) == 0 && BYTES * r % 4 == 0 && size % 4 == 0)
            tile_copy_out<uint32_t>(at, out + BYTES * r, size);
        else
            tile_copy_out<uint16_t>(at, out + BYTES * r, size);
        rows &= ~0u << (r + n);
    }
}

/* A tile's units from `first` of the run on; of a part of a unit the records that the row has. */
template <int F>
static __device__ __forceinline__ void run_write(const encode_job &p, const run_to &to, const run_slot &slot, int first,
                                                 const uint8_t *out)
{
    constexpr int bytes = enc_format<F>::unit_bytes, all = TILE_UNITS * bytes;
    if (to.follow == RUN_WHOLE)
        tile_copy_out<uint4, (all + 511) / 512>(to.row + bytes * first, out, all);
    run_rows<TILE_UNITS, bytes>(to.rows >> first & 255u, to.follow >> first & 254u, out,
                                [&](int r) { return run_row(to, first + r); }, [&](int r) {
        const int padded = __shfl_sync(0xffffffffu, slot.count, first + r) + p.side.dp - p.side.d;
        return min(padded, (int)GROUP_MAX) / card<F>::values * card<F>::bytes;
    });
    __syncwarp();
}

/* Plain values: v has four of each unit. */
template <int F>
static __device__ __forceinline__ void run_write_plain(const encode_job &p, const run_to &to, const run_slot &slot,
                                                       int first, float *v)
{
    constexpr int bytes = card<F>::bytes, unit = enc_format<F>::unit_bytes;
    const float scale = side_scale(p.side);
    const int at = 4 * ((int)threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < TILE_UNITS; r++) {
        const bool whole = to.follow == RUN_WHOLE;
        uint8_t *row = whole ? to.row + unit * (first + r) : run_row(to, first + r);
        const int count = __shfl_sync(0xffffffffu, slot.count, first + r) - at;
        uint8_t *to4 = row + at * bytes;
        if (whole || (row && count >= 4 && ((uintptr_t)to4 & (4 * bytes - 1)) == 0))
            enc_plain4<F>(scale, v + 4 * r, to4);
        else if (row && count > 0)
            enc_plain_some<F>(scale, v + 4 * r, to4, min(count, 4));
    }
}

#endif
