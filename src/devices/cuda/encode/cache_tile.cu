/* cache_tile.cu: cache_write of many rows in formats of records of 32 values (of 128: cache_run.cu).  A warp encodes
 * runs of tiles of 8 units of one head (encode_tile.cuh, tile_run.cuh); while it does, the next tile's values are on
 * their way to shared memory.  The tile's bytes are put together there: units of consecutive rows of a page are written
 * as one piece. */
#include "devices/cuda/encode/encode_tile.cuh"
#include "devices/cuda/encode/tile_run.cuh"

/* What a warp keeps in shared memory; registers are for the values.  Places of a run and of the next. */
template <int F> struct __align__(128) tile_desk {
    uint8_t stage[TILE_BYTES];
    uint8_t out[(TILE_UNITS * tile_format<F>::unit_bytes + 15) / 16 * 16];
    run_place place[2][32];
};

/* Bytes of a block's shared memory, counted from its own first one, which is at `first`.  Tables of records lie at the
 * addresses that they want, desks before and after. */
template <int F, bool BEST> struct tile_room_of {
    static constexpr int warps = 16, first = 1024;
    typedef tile_desk<F> desk;
    typedef tile_tables<F, BEST> tables;
    static constexpr int at = tables::record ? tables::records::at - first : 0;
    static constexpr int end = (at + tables::bytes + 127) / 128 * 128, low = at / (int)sizeof(desk);
    static constexpr int all = end + (warps - low) * (int)sizeof(desk);

    static __device__ __forceinline__ desk *desk_of(uint8_t *room, int warp)
    {
        return (desk *)(room + (warp < low ? 0 : end - low * (int)sizeof(desk)) + warp * (int)sizeof(desk));
    }
};

/* Chunk c of 16 bytes of a line is kept at c ^ this, so that the lanes that read together meet no bank twice. */
static __device__ __forceinline__ int tile_mix(int unit, int line)
{
    return (4 * unit + line) % 8;
}

/* Four values of each line of a unit: of four units at once, by the warp. */
static __device__ __forceinline__ void tile_copy4(uint32_t to, const float *x)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 4; k++)
        async_copy16_all(to + TILE_LINE * k + 16 * (lane % 8 ^ tile_mix(lane / 8, k)), x + 32 * k);
}

/* Values of the tile; past the end those of the last unit, nothing comes of them. */
static __device__ __forceinline__ void tile_load(const job &p, const run_spot &t, uint32_t stage)
{
    const int lane = threadIdx.x % 32;
    const uint32_t to = stage + 4 * TILE_LINE * (lane / 8);
    if (p.groups == 1 && t.left >= TILE_UNITS) {
        tile_copy4(to, t.x);
        tile_copy4(to + 16 * TILE_LINE, t.x + 4 * p.ldx);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        int token = 0, g = (int)t.first + min(lane / 8 + 4 * i, t.left - 1);
        tile_carry(p, &token, &g);
        tile_copy4(to + 16 * TILE_LINE * i, p.x + token * p.ldx + (t.h * p.side.d + g * GROUP_MAX + 4 * (lane % 8)));
    }
}

/* Asks for the values of tile t; for the places of a run that begins with it.  Each is a group of copies. */
static __device__ __forceinline__ void tile_ask(const job &p, const run_spot &t, const uint8_t *stage)
{
    if (t.left > 0)
        tile_load(p, t, shared_at(stage));
    async_commit();
}

template <int F>
static __device__ __forceinline__ void tile_ask_places(const job &p, const run_spot &t, const run_unit &unit,
                                                       run_place *place)
{
    if (t.start)
        run_ask_place(p, unit, t.h, tile_format<F>::unit_bytes, &place[threadIdx.x % 32].slot);
    async_commit();
}

/* A run's places are known; LATER groups of copies need not be there. */
template <int F, int LATER>
static __device__ __forceinline__ run_bits tile_settle(const job &p, run_place *place)
{
    async_wait<LATER>();
    __syncwarp();
    const run_bits bits = run_settle(p, tile_format<F>::unit_bytes, place + threadIdx.x % 32);
    __syncwarp();
    return bits;
}

/* This lane's values. */
static __device__ __forceinline__ void tile_read(const uint8_t *stage, float *v)
{
    const int lane = threadIdx.x % 32, r = lane / 4, line = lane % 4;
    const uint32_t at = shared_at(stage) + 512 * r + 128 * line + 16 * tile_mix(r, line);
#pragma unroll
    for (int i = 0; i < 8; i++)
        asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                     : "=f"(v[4 * i]), "=f"(v[4 * i + 1]), "=f"(v[4 * i + 2]), "=f"(v[4 * i + 3])
                     : "r"(at ^ 16 * i)
                     : "memory");
}

/* Units of a tile that go to a tail, as halves: bit r of `some` for unit r, whose place is place[r]. */
static __device__ __forceinline__ void tile_tails(unsigned some, const run_place *place, const uint8_t *stage)
{
    const int lane = threadIdx.x % 32, line = lane / 8;
    for (; some; some &= some - 1) {
        const int r = __ffs((int)some) - 1;
        const uint8_t *x = stage + 512 * r + 128 * line + 16 * (lane % 8 ^ tile_mix(r, line));
        tile_halves(place[r].to.tail, *(const float4 *)x);
    }
}

template <int F, bool BEST>
static __global__ void __launch_bounds__(32 * tile_room_of<F, BEST>::warps, 1)
    tile_kernel(jobs js, unsigned per, unsigned longer)
{
    extern __shared__ __align__(128) uint8_t tile_room[];
    typedef tile_room_of<F, BEST> has;
    const job &p = js.j[blockIdx.y];
    const int warp = threadIdx.x / 32;
    const run_work w = { p.units / (unsigned)p.h, gridDim.x * has::warps, per, longer };
    run_spot t = run_at(p, w, blockIdx.x + gridDim.x * warp);
    typename has::desk &desk = *has::desk_of(tile_room, warp);
    tile_copies<F, BEST, 32 * has::warps> tables;

    pdl_go();
    tables.load();
    pdl_wait();
    run_unit unit = run_find(p, t);         /* its reads are not waited for before the values are asked for */
    run_turn<true>(warp / 4);
    tile_ask(p, t, desk.stage);
    run_turn<false>(warp / 4 + 1);
    const auto books = tables.store(tile_room + has::at);
    tile_ask_places<F>(p, t, unit, desk.place[0]);
    __syncthreads();
    run_bits bits = { 0, 0, 0 };
    for (int n = 0, first = 0; t.left > 0;) {
        run_place *place = desk.place[n] + first;
        const int from = first;
        bool fresh = t.start;               /* places are not known yet; without a tail that can wait */
        float v[32];
        async_wait<1>();
        __syncwarp();
        if (p.side.tail) {
            if (fresh)
                bits = tile_settle<F, 0>(p, place);
            fresh = false;
            tile_tails(bits.tails >> from & 255u, place, desk.stage);
        }
        tile_read(desk.stage, v);
        __syncwarp();
        run_next(p, w, &t);
        n ^= t.start;
        first = t.start ? 0 : first + TILE_UNITS;
        tile_ask(p, t, desk.stage);
        if (t.start)
            unit = run_find(p, t);
        tile_ask_places<F>(p, t, unit, desk.place[n]);
        if (fresh || (bits.rows >> from & 255u)) {
            tile_encode<F, BEST>(books, v, desk.out);
            __syncwarp();
        }
        if (fresh)
            bits = tile_settle<F, 2>(p, place);
        run_store<F>(bits, from, place, desk.out);
    }
}

template <int F, bool BEST> static bool tile_launch(cuda_device *d, const jobs &p, int sides)
{
    typedef tile_room_of<F, BEST> has;
    const unsigned h = p.j[0].h, tiles = cuda_blocks(p.j[0].units / h, TILE_UNITS);
    const unsigned blocks = cuda_blocks(d->n_sm, sides), runs = run_count(tiles, h, blocks * has::warps);
    if (d->smem_max < (size_t)has::all || d->smem_first != has::first)
        return false;
    cuda_smem(tile_kernel<F, BEST>, has::all);
    cuda_launch(d, tile_kernel<F, BEST>, dim3(runs * h < blocks ? runs * h : blocks, (unsigned)sides),
                32 * has::warps, has::all, p, tiles / runs, tiles % runs);
    return true;
}

template <int F> static bool tile_either(cuda_device *d, const jobs &p, int sides)
{
    if (p.j[0].side.encoder == KVANT_ENCODER_BEST)
        return tile_launch<F, true>(d, p, sides);
    return tile_launch<F, false>(d, p, sides);
}

bool cuda_tile_encode(cuda_device *d, const jobs &p, int sides)
{
    switch (p.j[0].side.fmt) {
    case FMT_q8_0: return tile_either<FMT_q8_0>(d, p, sides);
    case FMT_q4_0: return tile_either<FMT_q4_0>(d, p, sides);
    case FMT_tbq4_0: return tile_either<FMT_tbq4_0>(d, p, sides);
    case FMT_tbq3_0: return tile_either<FMT_tbq3_0>(d, p, sides);
    case FMT_turbo4: return tile_either<FMT_turbo4>(d, p, sides);
    default: return false;
    }
}
