/* cache_run.cu: cache_write of many rows in the formats of 128 values, upstream (encode_run.cuh; cache_best.cu has the
 * other encoder).  A warp encodes runs of up to four tiles of 8 units, one behind the other in one head: where a run
 * goes is found once, a unit to a lane.  Two tiles' values are on their way to shared memory at any time; the next is
 * asked for as soon as a tile is in registers.  All warps' first tiles come before their second: work begins early, and
 * not everywhere at once. */
#include "devices/cuda/encode/run_move.cuh"

enum { RUN_WARPS = 16, RUN_STAGES = 2 };

/* What a warp keeps in shared memory. */
template <int F> struct __align__(128) run_desk {
    uint8_t stage[RUN_STAGES][RUN_STAGE];
    uint8_t out[(TILE_UNITS * tile_format<F>::unit_bytes + 15) / 16 * 16];
};

template <int F>
static __global__ void __launch_bounds__(32 * RUN_WARPS, 1) run_kernel(jobs js, unsigned per)
{
    extern __shared__ __align__(256) uint8_t room[];
    const job &p = js.j[blockIdx.y];
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const run_work w = { p.units / (unsigned)p.h, gridDim.x * warps, per, 0 };
    run_spot t = run_at(p, w, blockIdx.x + gridDim.x * warp), ask = t;
    run_desk<F> &desk = ((run_desk<F> *)(room + sizeof(run_room<F>)))[warp];
    run_copy<F> tables;

    pdl_go();
    tables.load();
    pdl_wait();
    run_unit unit = run_find(p, t);
    run_turn<true>(warp / 4);
    run_ask(p, w, &ask, shared_at(desk.stage[0]));
    run_turn<false>(warp / 4 + 1);
    const auto books = tables.store((run_room<F> *)room);
    __syncthreads();
    run_ask(p, w, &ask, shared_at(desk.stage[1]));
    const unsigned n = t.n;
    tile_slot slot;
    run_to to;
    unsigned tails = 0;
    for (int at = 0, first = 0; t.left > 0; run_next(p, w, &t), at ^= 1, first += TILE_UNITS) {
        const uint32_t stage = shared_at(desk.stage[at]);
        float v[32], norm = 0.0f;
        if (t.start) {
            if (t.n != n)
                unit = run_find(p, t);
            slot = run_slot(p, unit, t.h, tile_format<F>::unit_bytes);
            tails = p.side.tail ? __ballot_sync(0xffffffffu, slot.tail >= 0) : 0;
            first = 0;
        }
        async_wait<RUN_STAGES - 1>();
        __syncwarp();
        const unsigned gone = tails >> first & 255u;
        if (gone)
            run_tails(gone, tile_target(p, slot).tail, first, stage);
        if (gone != 255u)
            norm = run_rotate<F>(books, stage, v);
        run_ask(p, w, &ask, stage);
        if (gone != 255u) {
            run_encode<F>(books, v, norm, desk.out);
            __syncwarp();
        }
        if (t.start)
            to = run_target(p, slot, 32, tile_format<F>::unit_bytes);
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

template <int F> static bool run_launch(cuda_device *d, const jobs &p, int sides)
{
    constexpr int64_t tables = sizeof(run_room<F>), desk = sizeof(run_desk<F>);
    const int64_t room = ((int64_t)d->smem_max - tables) / desk;
    const int warps = room < RUN_WARPS ? (int)room : RUN_WARPS;
    if (warps < 1)
        return false;
    const unsigned h = p.j[0].h, tiles = cuda_blocks(p.j[0].units / h, TILE_UNITS);
    const unsigned blocks = cuda_blocks(d->n_sm, sides), per = run_tiles(tiles, h, blocks * warps);
    const unsigned want = cuda_blocks(tiles, per) * h;
    const dim3 grid(want < blocks ? want : blocks, (unsigned)sides);
    const size_t bytes = (size_t)(tables + warps * desk);
    cuda_smem(run_kernel<F>, bytes);
    cuda_launch(d, run_kernel<F>, grid, 32 * warps, bytes, p, per);
    return true;
}

bool cuda_run_encode(cuda_device *d, const jobs &p, int sides)
{
    if (p.j[0].side.encoder == KVANT_ENCODER_BEST)
        return cuda_best_encode(d, p, sides);
    switch (p.j[0].side.fmt) {
    case FMT_turbo3: return run_launch<FMT_turbo3>(d, p, sides);
    case FMT_turbo4_66: return run_launch<FMT_turbo4_66>(d, p, sides);
    case FMT_q4_polar: return run_launch<FMT_q4_polar>(d, p, sides);
    case FMT_q4_polar_r: return run_launch<FMT_q4_polar_r>(d, p, sides);
    default: return false;
    }
}
