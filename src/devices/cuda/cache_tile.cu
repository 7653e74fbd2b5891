/* cache_tile.cu: cache_write of many rows in the coded formats.  A warp encodes tiles of 8 units of one head
 * (encode_tile.cuh); while it does, the next tile's values are on their way to shared memory.  The tile's bytes are put
 * together there: units of consecutive rows of a page are written as one piece. */
#include "devices/cuda/encode_tile.cuh"
#include "devices/cuda/tile_place.cuh"

/* What a warp keeps in shared memory besides a tile's bytes; registers are for the values. */
template <int STAGES> struct tile_desk {
    uint8_t stage[STAGES][TILE_BYTES];
    tile_slot slot[2][TILE_UNITS];
    tile_seq seq[TILE_UNITS];
};

/* best has large tables: a tile's values leave its one stage before the next ones are asked for. */
template <int F, bool BEST> struct tile_room_of {
    static constexpr int warps = !BEST ? 8 : 16, blocks = BEST ? 1 : 2;     /* of a block; of a multiprocessor */
    static constexpr int stages = BEST ? 1 : 2;
    typedef tile_desk<stages> desk;
    static constexpr int tables = (tile_tables<F, BEST>::bytes + 127) / 128 * 128;
    static constexpr int out = (TILE_UNITS * tile_format<F>::unit_bytes + 15) / 16 * 16;
    static constexpr int warp = (int)sizeof(desk) + out, head = 32;         /* of the block: tile_work */
    static constexpr int all = tables + head + warps * warp;
};

/* Chunk c of 16 bytes of a line is kept at c ^ this, so that the lanes that read together meet no bank twice. */
template <int F> static __device__ __forceinline__ int tile_mix(int unit, int line)
{
    return tile_format<F>::records ? (4 * unit + line) % 8 : unit % 2;
}

/* Units past the end are the last one again; nothing comes of them. */
template <int F>
static __device__ __forceinline__ void tile_start(const job &p, const tile_spot &t, int count, uint32_t stage)
{
    const int lane = threadIdx.x % 32, line = lane / 8, groups = p.groups;
    const float *x = p.x + t.token * p.ldx + (t.h * p.side.d + t.g * GROUP_MAX + 4 * lane);
    const uint32_t even = stage + 128 * line + 16 * (lane % 8 ^ tile_mix<F>(0, line));
    const uint32_t odd = stage + 128 * line + 16 * (lane % 8 ^ tile_mix<F>(1, line));
    if (groups == 1 && count == TILE_UNITS) {
#pragma unroll
        for (int r = 0; r < TILE_UNITS; r++, x += p.ldx)
            async_copy16_all((r % 2 ? odd : even) + 512 * r, x);
        return;
    }
    int g = t.g;
#pragma unroll 1
    for (int r = 0; r < TILE_UNITS; r++) {
        async_copy16_all((r % 2 ? odd : even) + 512 * r, x);
        g = g + 1 == groups ? 0 : g + 1;
        if (r + 1 < count)
            x += g == 0 ? p.ldx - (groups - 1) * GROUP_MAX : GROUP_MAX;
    }
}

/* This lane's values. */
template <int F> static __device__ __forceinline__ void tile_read(const uint8_t *stage, float *v)
{
    const int lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int line = tile_format<F>::records ? q : i / 2, c = tile_format<F>::records ? i : 2 * q + i % 2;
        const float4 x = *(const float4 *)(stage + 512 * r + 128 * line + 16 * (c ^ tile_mix<F>(r, line)));
        v[4 * i] = x.x, v[4 * i + 1] = x.y, v[4 * i + 2] = x.z, v[4 * i + 3] = x.w;
    }
}

/* Units that go to a tail, as halves. */
template <int F> static __device__ __forceinline__ void tile_tails(const uint8_t *stage, uint16_t *tail)
{
    const int lane = threadIdx.x % 32, line = lane / 8;
    for (unsigned some = __ballot_sync(0xffffffffu, tail && lane % 4 == 0); some; some &= some - 1) {
        const int at = __ffs((int)some) - 1, r = at / 4;
        const uint8_t *x = stage + 512 * r + 128 * line + 16 * (lane % 8 ^ tile_mix<F>(r, line));
        tile_halves((uint16_t *)__shfl_sync(0xffffffffu, (unsigned long long)tail, at), *(const float4 *)x);
    }
}

/* Asks for a warp's next tile, if there is one. */
template <int F, typename DESK>
static __device__ __forceinline__ bool tile_ask(const job &p, tile_spot *t, const tile_work &work, DESK *desk,
                                                int round)
{
    constexpr int stages = sizeof desk->stage / TILE_BYTES;
    if (t->n >= work.tiles)
        return false;
    const int r = threadIdx.x % 32 / 4, count = tile_count<TILE_UNITS>(p, *t, work);
    tile_start<F>(p, *t, count, shared_at(desk->stage[round % stages]));
    tile_find<TILE_UNITS, tile_format<F>::unit_bytes>(p, *t, count, desk->seq + r, desk->slot[round % 2] + r);
    tile_add<TILE_UNITS>(p, t, work.step);
    return true;
}

/* This lane's values of a tile that all but LATER tiles have come before; its rows in tails are written. */
template <int F, int LATER>
static __device__ __forceinline__ tile_to tile_take(const job &p, const uint8_t *stage, const tile_slot *slots,
                                                    float *v)
{
    async_wait<LATER>();
    __syncwarp();
    tile_read<F>(stage, v);
    const tile_to to = tile_target(p, slots[threadIdx.x % 32 / 4]);
    tile_tails<F>(stage, to.tail);
    __syncwarp();
    return to;
}

template <int F, bool BEST>
static __global__ void __launch_bounds__(32 * tile_room_of<F, BEST>::warps, tile_room_of<F, BEST>::blocks)
    tile_kernel(jobs js)
{
    extern __shared__ __align__(128) uint8_t tile_room[];
    typedef tile_room_of<F, BEST> has;
    constexpr bool ahead = has::stages > 1;     /* the next tile is asked for before this one is read */
    const job &p = js.j[blockIdx.y];
    tile_work &work = *(tile_work *)(tile_room + has::tables);
    uint8_t *own = tile_room + has::tables + has::head + threadIdx.x / 32 * has::warp;
    typename has::desk &desk = *(typename has::desk *)own;
    /* best: a block has few of the last round's tiles, not all warps or none. */
    tile_spot t = tile_at<TILE_UNITS>(p, BEST ? threadIdx.x / 32 * gridDim.x + blockIdx.x
                                              : blockIdx.x * has::warps + threadIdx.x / 32);
    tile_copies<F, BEST, 32 * has::warps> tables;

    pdl_go();
    tables.load();
    if (threadIdx.x == 0)
        tile_plan<TILE_UNITS>(p, gridDim.x * has::warps, &work);
    if (threadIdx.x % 4 == 0)
        desk.seq[threadIdx.x % 32 / 4] = { 0, 0, 0, 0 };
    __syncthreads();
    pdl_wait();
    bool more = tile_ask<F>(p, &t, work, &desk, 0);
    async_commit();
    const tile_books books = tables.store(tile_room);
    __syncthreads();
    for (int round = 1; more; round++) {
        const uint8_t *stage = desk.stage[(round + 1) % has::stages];
        uint8_t *out = own + sizeof desk;
        float v[32];
        tile_to to;
        if (!ahead)
            to = tile_take<F, 0>(p, stage, desk.slot[(round + 1) % 2], v);
        more = tile_ask<F>(p, &t, work, &desk, round);
        async_commit();
        if (ahead)
            to = tile_take<F, 1>(p, stage, desk.slot[(round + 1) % 2], v);
        tile_encode<F, BEST>(books, v, out);
        __syncwarp();
        tile_store<TILE_UNITS, tile_format<F>::unit_bytes>(out, to.row);
        __syncwarp();
    }
}

template <int F, bool BEST> static bool tile_launch(cuda_device *d, const jobs &p, int sides)
{
    typedef tile_room_of<F, BEST> has;
    const unsigned tiles = cuda_blocks(p.j[0].units / p.j[0].h, TILE_UNITS) * p.j[0].h;
    const unsigned want = BEST ? tiles : cuda_blocks(tiles, has::warps), most = has::blocks * d->n_sm;
    cuda_smem(tile_kernel<F, BEST>, has::all);
    if (d->smem_max < (size_t)has::all)
        return false;
    const dim3 grid(want < most ? want : most, (unsigned)sides);
    cuda_launch(d, tile_kernel<F, BEST>, grid, 32 * has::warps, has::all, p);
    return true;
}

/* Formats of 128 values have kernels of their own upstream (cache_run.cu). */
template <int F> static bool tile_either(cuda_device *d, const jobs &p, int sides)
{
    if (p.j[0].side.encoder == KVANT_ENCODER_BEST)
        return tile_launch<F, true>(d, p, sides);
    if constexpr (tile_format<F>::records)
        return tile_launch<F, false>(d, p, sides);
    return false;
}

bool cuda_tile_encode(cuda_device *d, const jobs &p, int sides)
{
    switch (p.j[0].side.fmt) {
    case FMT_q8_0: return tile_either<FMT_q8_0>(d, p, sides);
    case FMT_q4_0: return tile_either<FMT_q4_0>(d, p, sides);
    case FMT_tbq4_0: return tile_either<FMT_tbq4_0>(d, p, sides);
    case FMT_tbq3_0: return tile_either<FMT_tbq3_0>(d, p, sides);
    case FMT_turbo4: return tile_either<FMT_turbo4>(d, p, sides);
    case FMT_turbo3: return tile_either<FMT_turbo3>(d, p, sides);
    case FMT_turbo4_66: return tile_either<FMT_turbo4_66>(d, p, sides);
    case FMT_q4_polar: return tile_either<FMT_q4_polar>(d, p, sides);
    case FMT_q4_polar_r: return tile_either<FMT_q4_polar_r>(d, p, sides);
    default: return false;
    }
}
