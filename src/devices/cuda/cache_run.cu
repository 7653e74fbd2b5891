/* cache_run.cu: cache_write of many rows in the formats of 128 values (encode_run.cuh; run_best.cuh).  A warp encodes
 * runs of up to four tiles of 8 units, one behind the other in one head: where a run goes is found once, a unit to a
 * lane.  Two tiles' values are on their way to shared memory at any time, `best` has room for one; the next is asked
 * for as soon as a tile is in registers.  All warps' first tiles come before their second: work begins early, and not
 * everywhere at once. */
#include "devices/cuda/run_best.cuh"
#include "devices/cuda/tile_run.cuh"

enum { RUN_WARPS = 16 };

/* The encoders' tables, and how many tiles are on their way. */
template <int F, bool BEST> struct run_rules {
    typedef run_room<F> room;
    typedef run_copy<F> tables;
    static constexpr int stages = 2;
};

template <int F> struct run_rules<F, true> {
    typedef best_room<F> room;
    typedef best_copy<F, 32 * RUN_WARPS> tables;
    static constexpr int stages = 1;
};

/* What a warp keeps in shared memory. */
template <int F, bool BEST> struct __align__(128) run_desk {
    uint8_t stage[run_rules<F, BEST>::stages][RUN_STAGE];
    uint8_t out[(TILE_UNITS * tile_format<F>::unit_bytes + 15) / 16 * 16];
};

/* Four values of each line of a unit: of four units at once, by the warp. */
static __device__ __forceinline__ void run_copy4(uint32_t to, const float *x)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        async_copy16_all((to ^ 32 * k) + RUN_LINE * k, x + 32 * k);
}

/* Values of the tile; past the end those of the last unit, nothing comes of them. */
static __device__ __forceinline__ void run_load(const job &p, const run_spot &t, uint32_t stage)
{
    const int lane = threadIdx.x % 32;
    const uint32_t to = run_chunk(stage, lane / 8, 0, lane % 8);
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

/* Asks for tile t and moves on to the next. */
static __device__ __forceinline__ void run_ask(const job &p, const run_work &w, run_spot *t, uint32_t stage)
{
    if (t->left > 0) {
        run_load(p, *t, stage);
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
 * before.  RUN_WHOLE there: all of 32 do, and may be written 16 bytes at a time; then `row` is the first one's. */
typedef struct run_to {
    uint8_t *row;
    unsigned rows, follow;
} run_to;

static const unsigned RUN_WHOLE = ~0u;

static __device__ __forceinline__ run_to run_target(const job &p, const tile_slot &slot, int bytes)
{
    run_to r = { tile_target(p, slot).row, 0, 0 };
    const uint8_t *before = (const uint8_t *)__shfl_up_sync(0xffffffffu, (unsigned long long)r.row, 1);
    r.rows = __ballot_sync(0xffffffffu, r.row != NULL);
    r.follow = __ballot_sync(0xffffffffu, r.row && r.row == before + bytes);
    uint8_t *first = (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)r.row, 0);
    if (r.follow == RUN_WHOLE - 1 && ((uintptr_t)first & 15) == 0)
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

template <int F, bool BEST>
static __global__ void __launch_bounds__(32 * RUN_WARPS, 1) run_kernel(jobs js, unsigned per)
{
    extern __shared__ __align__(256) uint8_t room[];
    typedef run_rules<F, BEST> rules;
    constexpr int stages = rules::stages;
    const job &p = js.j[blockIdx.y];
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const run_work w = { p.units / (unsigned)p.h, gridDim.x * warps, per, 0 };
    run_spot t = run_at(p, w, blockIdx.x + gridDim.x * warp), ask = t;
    run_desk<F, BEST> &desk = ((run_desk<F, BEST> *)(room + sizeof(typename rules::room)))[warp];
    typename rules::tables tables;

    pdl_go();
    tables.load();
    pdl_wait();
    run_unit unit = run_find(p, t);
    run_turn<true>(warp / 4);
    run_ask(p, w, &ask, shared_at(desk.stage[0]));
    run_turn<false>(warp / 4 + 1);
    const auto books = tables.store((typename rules::room *)room);
    __syncthreads();
    if (stages > 1)
        run_ask(p, w, &ask, shared_at(desk.stage[stages - 1]));
    const unsigned n = t.n;
    tile_slot slot;
    run_to to;
    unsigned tails = 0;
    for (int at = 0, first = 0; t.left > 0; run_next(p, w, &t), at ^= 1, first += TILE_UNITS) {
        const uint32_t stage = shared_at(desk.stage[stages > 1 ? at : 0]);
        float v[32], norm = 0.0f;
        if (t.start) {
            if (t.n != n)
                unit = run_find(p, t);
            slot = run_slot(p, unit, t.h, tile_format<F>::unit_bytes);
            tails = p.side.tail ? __ballot_sync(0xffffffffu, slot.tail >= 0) : 0;
            first = 0;
        }
        async_wait<stages - 1>();
        __syncwarp();
        const unsigned gone = tails >> first & 255u;
        if (gone)
            run_tails(gone, tile_target(p, slot).tail, first, stage);
        if constexpr (BEST) {
            run_read_apart(stage, v);
            __syncwarp();
        } else if (gone != 255u) {
            norm = run_rotate<F>(books, stage, v);
        }
        run_ask(p, w, &ask, stage);
        if (gone != 255u) {
            if constexpr (BEST)
                best_encode<F>(books, v, desk.out);
            else
                run_encode<F>(books, v, norm, desk.out);
            __syncwarp();
        }
        if (t.start)
            to = run_target(p, slot, tile_format<F>::unit_bytes);
        run_write<F>(to, first, desk.out);
    }
}

/* Tiles to a run: those that leave the busiest of `warps` warps the fewest tiles, the most of equals. */
static unsigned run_tiles(unsigned tiles, unsigned h, unsigned warps)
{
    unsigned best = 1, least = ~0u;
    for (unsigned per = RUN_TILES; per > 0; per--) {
        const unsigned most = cuda_blocks(cuda_blocks(tiles, per) * h, warps) * per;
        if (most < least) {
            best = per;
            least = most;
        }
    }
    return best;
}

template <int F, bool BEST> static bool run_launch(cuda_device *d, const jobs &p, int sides)
{
    constexpr int64_t tables = sizeof(typename run_rules<F, BEST>::room), desk = sizeof(run_desk<F, BEST>);
    const int64_t room = ((int64_t)d->smem_max - tables) / desk;
    const int warps = room < RUN_WARPS ? (int)room : RUN_WARPS;
    if (warps < (BEST ? (int)RUN_WARPS : 1))        /* best: all of them fill in the tables */
        return false;
    const unsigned h = p.j[0].h, tiles = cuda_blocks(p.j[0].units / h, TILE_UNITS);
    const unsigned blocks = cuda_blocks(d->n_sm, sides), per = run_tiles(tiles, h, blocks * warps);
    const unsigned want = cuda_blocks(tiles, per) * h;
    const dim3 grid(want < blocks ? want : blocks, (unsigned)sides);
    const size_t bytes = (size_t)(tables + warps * desk);
    cuda_smem(run_kernel<F, BEST>, bytes);
    cuda_launch(d, run_kernel<F, BEST>, grid, 32 * warps, bytes, p, per);
    return true;
}

template <int F> static bool run_either(cuda_device *d, const jobs &p, int sides)
{
    if (p.j[0].side.encoder != KVANT_ENCODER_BEST)
        return run_launch<F, false>(d, p, sides);
    return run_launch<F, true>(d, p, sides);
}

bool cuda_run_encode(cuda_device *d, const jobs &p, int sides)
{
    switch (p.j[0].side.fmt) {
    case FMT_turbo3: return run_either<FMT_turbo3>(d, p, sides);
    case FMT_turbo4_66: return run_either<FMT_turbo4_66>(d, p, sides);
    case FMT_q4_polar: return run_either<FMT_q4_polar>(d, p, sides);
    case FMT_q4_polar_r: return run_either<FMT_q4_polar_r>(d, p, sides);
    default: return false;
    }
}
