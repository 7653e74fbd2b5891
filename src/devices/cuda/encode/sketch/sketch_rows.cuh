/* sketch_rows.cuh: rows of sketch_wgmma.cu: a warp's 16 units of a tile, where they come from and go to. */
#ifndef KVANT_CUDA_SKETCH_ROWS_CUH
#define KVANT_CUDA_SKETCH_ROWS_CUH

#include "devices/cuda/encode/sketch/sketch.cuh"
#include "devices/cuda/encode/encode_runs.cuh"

enum {
    WIDE_ROWS = 16, WIDE_TILE = 4 * WIDE_ROWS, /* units of a warp, of a warpgroup */
    WIDE_ROW = GROUP_MAX * 4                   /* bytes of a row's values */
};

/* Returns the place of value i of a warp's row r: odd rows are turned by 64 bytes, lest two rows meet in a bank. */
static __device__ __forceinline__ int wide_at(int r, int i)
{
    return WIDE_ROW * r + ((4 * i + r % 2 * 64) & (WIDE_ROW - 1));
}

/* A tile: of head h, the units from WIDE_TILE n on. */
typedef struct wide_tile {
    int h, n;
} wide_tile;

static __device__ __forceinline__ wide_tile wide_tile_at(const encode_job &p, unsigned n)
{
    const wide_tile o = { (int)(n % (unsigned)p.h), (int)(n / (unsigned)p.h) };
    return o;
}

static __device__ __forceinline__ int wide_first(const wide_tile &o)
{
    return o.n * WIDE_TILE + (int)threadIdx.x / 32 % 4 * WIDE_ROWS;
}

/* Units from this warp's first on. */
static __device__ __forceinline__ int wide_left(const encode_job &p, const wide_tile &o)
{
    return (int)(p.units / (unsigned)p.h) - wide_first(o);
}

/* Unit r of this warp. */
static __device__ __forceinline__ unit_spot wide_spot(const encode_job &p, const wide_tile &o, int r)
{
    unit_spot at = { r < wide_left(p, o) ? 0 : p.units, 0, o.h, 0 };
    run_carry(p, wide_first(o) + r, &at.token, &at.g);
    return at;
}

static __device__ __forceinline__ bool wide_copies(const encode_job &p)
{
    return p.full && !p.seal;
}

/* Rows of a page that is sealed: halves that lie one behind the other. */
static __device__ __forceinline__ bool wide_halves(const encode_job &p)
{
    return p.seal && p.full && p.groups == 1 && ((uintptr_t)p.side.tail & 15) == 0;
}

static __device__ __forceinline__ void wide_load_halves(const encode_job &p, const wide_tile &tile, uint8_t *x)
{
    const int lane = threadIdx.x % 32, first = wide_first(tile) % KVANT_PAGE, at = lane % 16 * 8;
    const uint4 *from = (const uint4 *)side_tail_row(p.side, p.src[tile.n], p.h, tile.h, first) + lane;
    uint4 v[WIDE_ROWS / 2];
#pragma unroll
    for (int i = 0; i < WIDE_ROWS / 2; i++)
        v[i] = from[32 * i];
#pragma unroll
    for (int i = 0; i < WIDE_ROWS / 2; i++) {
        const int r = 2 * i + lane / 16;
        *(float4 *)(x + wide_at(r, at)) =
            make_float4(low_half(v[i].x), high_half(v[i].x), low_half(v[i].y), high_half(v[i].y));
        *(float4 *)(x + wide_at(r, at + 4)) =
            make_float4(low_half(v[i].z), high_half(v[i].z), low_half(v[i].w), high_half(v[i].w));
    }
}

/* The warp's values of a tile on their way; where they cannot be copied whole they are there at once. */
template <bool SEAL>
static __device__ __forceinline__ void wide_load(const encode_job &p, const wide_tile &tile, uint8_t *x)
{
    const int lane = threadIdx.x % 32, left = wide_left(p, tile);
    const uint32_t even = shared_at(x + wide_at(0, 4 * lane)), odd = shared_at(x + wide_at(1, 4 * lane));
    if (wide_copies(p) && p.groups == 1 && left >= WIDE_ROWS) {
        const float *from = p.x + wide_first(tile) * p.ldx + tile.h * GROUP_MAX + 4 * lane;
#pragma unroll
        for (int r = 0; r < WIDE_ROWS; r++, from += p.ldx)
            async_copy16_all((r % 2 ? odd : even) + r / 2 * 2 * WIDE_ROW, from);
        async_commit();
        return;
    }
    if (wide_copies(p)) {
        unit o;
        unit_from(p, wide_spot(p, tile, lane % WIDE_ROWS), &o);
#pragma unroll 4
        for (int r = 0; r < WIDE_ROWS; r++) {
            const float *from = (const float *)__shfl_sync(0xffffffffu, (unsigned long long)o.x, r);
            if (from)
                async_copy16_all((r % 2 ? odd : even) + r / 2 * 2 * WIDE_ROW, from + 4 * lane);
        }
        async_commit();
        return;
    }
    if (SEAL && wide_halves(p)) {
        wide_load_halves(p, tile, x);
        return;
    }
#pragma unroll 4
    for (int r = 0; r < WIDE_ROWS; r++) {
        unit o;
        float v[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        if (unit_from(p, wide_spot(p, tile, r), &o))
            unit_load4<false>(p, o, 4 * lane, v);
        *(float4 *)(x + wide_at(r, 4 * lane)) = make_float4(v[0], v[1], v[2], v[3]);
    }
}

/* ---- where rows go: unit r of the warp is lane r's ---- */

/* The bytes of the warp's rows in `out`. */
static __device__ __forceinline__ void wide_out(const encode_job &p, const run_slot &slot, const uint8_t *out)
{
    const run_to to = run_target(p, slot, true, SKETCH_BYTES);
    run_rows<WIDE_ROWS, SKETCH_BYTES>(to.rows, to.follow, out, [&](int r) { return run_row(to, r); },
                                      [](int) { return (int)SKETCH_BYTES; });
}

/* Units that the tail keeps, by bits: the warp, one after another. */
static __device__ __forceinline__ void wide_tails(const encode_job &p, const uint8_t *x, unsigned some,
                                                  const run_slot &slot)
{
    const int i = 4 * ((int)threadIdx.x % 32);
    uint16_t *mine = slot.tail >= 0 ? side_tail_row(p.side, slot.tail, p.h, 0, 0) + slot.exact : NULL;
    for (; some; some &= some - 1) {
        const int r = __ffs((int)some) - 1, count = __shfl_sync(0xffffffffu, slot.count, r);
        uint16_t *tail = (uint16_t *)__shfl_sync(0xffffffffu, (unsigned long long)mine, r);
        tail_store4<false>(p, tail, i, count, (const float *)(x + wide_at(r, i)));
    }
}

#endif
