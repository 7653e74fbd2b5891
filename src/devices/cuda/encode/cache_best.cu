/* cache_best.cu: cache_write of many rows in the formats of 128 values, `best` (run_best.cuh): runs of tiles as in
 * cache_run.cu, of one tile more or less, so that all warps end together.  A tile is asked for as soon as the one
 * before is in registers.
 *
 * A sixth of the time at 8192 tokens goes by before a block's tables and first values are there.  So half of the warps
 * ask for values at once; the others fill in the tables before they do, and the first half waits for those only. */
#include "devices/cuda/encode/run_best.cuh"
#include "devices/cuda/encode/run_move.cuh"

enum { BEST_THREADS = 512 };

/* What a warp keeps in shared memory. */
template <int F> struct __align__(128) best_desk {
    uint8_t stage[RUN_STAGE];
    uint8_t out[(TILE_UNITS * tile_format<F>::unit_bytes + 15) / 16 * 16];
};

template <int F> struct best_space {
    best_room<F> room;
    best_desk<F> desk[BEST_THREADS / 32];
};

/* Whether this thread fills in the tables: then it says so, and waits for the others that do after it has asked for
 * values.  Barriers 1 to 3 are the turns'. */
static __device__ __forceinline__ bool best_filler(void)
{
    return threadIdx.x >= BEST_THREADS - BEST_FILL;
}

static __device__ __forceinline__ void best_filled(void)
{
    asm volatile("barrier.arrive 4, %0;" ::"n"((int)BEST_THREADS) : "memory");
}

static __device__ __forceinline__ void best_wait(void)
{
    if (best_filler())
        asm volatile("barrier.sync 5, %0;" ::"n"((int)BEST_FILL) : "memory");
    else
        asm volatile("barrier.sync 4, %0;" ::"n"((int)BEST_THREADS) : "memory");
}

template <int F>
static __global__ void __launch_bounds__(BEST_THREADS, 1) best_kernel(jobs js, unsigned per, unsigned longer)
{
    extern __shared__ __align__(256) uint8_t best_shared[];
    constexpr int bytes = tile_format<F>::unit_bytes;
    best_space<F> *space = (best_space<F> *)best_shared;
    const job &p = js.j[blockIdx.y];
    const int warp = threadIdx.x / 32;
    best_desk<F> &desk = space->desk[warp];
    const uint32_t stage = shared_at(desk.stage), goal = run_kept(run_goal(stage)), own = run_kept(run_own(stage));
    const run_work w = { p.units / (unsigned)p.h, gridDim.x * (BEST_THREADS / 32), per, longer };
    run_spot t = run_at(p, w, blockIdx.x + gridDim.x * warp);

    pdl_go();
    best_copy<F> copy;
    if (best_filler())
        copy.load();
    pdl_wait();
    run_unit unit = run_find(p, t);         /* its reads are not waited for before the values are asked for */
    if (best_filler()) {
        copy.store(&space->room);
        best_filled();
    }
    run_turn<true>(warp / 4);
    best_ask(p, t, goal);
    run_turn<false>(warp / 4 + 1);
    const best_books books = best_books_of<F>(&space->room);
    best_wait();
    tile_slot slot;
    run_to to;
    unsigned tails = 0;
    for (int first = 0; t.left > 0;) {
        const bool fresh = t.start;
        const int at = first, units = t.left;
        float v[32];
        if (fresh) {
            slot = run_slot(p, unit, t.h, bytes);
            tails = p.side.tail ? __ballot_sync(0xffffffffu, slot.tail >= 0) : 0;
        }
        async_wait<0>();
        __syncwarp();
        const unsigned gone = tails >> at & 255u;
        if (gone)
            run_tails(gone, tile_target(p, slot).tail, at, stage);
        run_read_own(own, v);
        __syncwarp();
        run_next(p, w, &t);
        first = t.start ? 0 : first + TILE_UNITS;
        best_ask(p, t, goal);
        if (gone != 255u) {
            best_encode<F>(books, v, desk.out);
            __syncwarp();
        }
        if (fresh)
            to = run_target(p, slot, units, bytes);
        if (t.start)
            unit = run_find(p, t);
        run_write<F>(to, at, desk.out);
    }
}

template <int F> static bool best_launch(cuda_device *d, const jobs &p, int sides)
{
    if (d->smem_max < sizeof(best_space<F>))
        return false;
    const unsigned h = p.j[0].h, tiles = cuda_blocks(p.j[0].units / h, TILE_UNITS);
    const unsigned blocks = cuda_blocks(d->n_sm, sides), runs = run_count(tiles, h, blocks * (BEST_THREADS / 32));
    cuda_smem(best_kernel<F>, sizeof(best_space<F>));
    cuda_launch(d, best_kernel<F>, dim3(runs * h < blocks ? runs * h : blocks, (unsigned)sides), BEST_THREADS,
                sizeof(best_space<F>), p, tiles / runs, tiles % runs);
    return true;
}

bool cuda_best_encode(cuda_device *d, const jobs &p, int sides)
{
    switch (p.j[0].side.fmt) {
    case FMT_turbo3: return best_launch<FMT_turbo3>(d, p, sides);
    case FMT_turbo4_66: return best_launch<FMT_turbo4_66>(d, p, sides);
    case FMT_q4_polar: return best_launch<FMT_q4_polar>(d, p, sides);
    case FMT_q4_polar_r: return best_launch<FMT_q4_polar_r>(d, p, sides);
    default: return false;
    }
}
