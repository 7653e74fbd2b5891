/* tile_place.cuh: where a tile's units come from and where their bytes go, for the encoders of many rows.  A tile is
 * UNITS units of 128 values of one head, 32 / UNITS lanes to each. */
#ifndef KVANT_CUDA_TILE_PLACE_CUH
#define KVANT_CUDA_TILE_PLACE_CUH

#include "devices/cuda/encode/cache_job.cuh"
#include "devices/cuda/core/hopper.cuh"

/* ---- tiles by number ---- */

/* Tile n: units of head h; units of a head count its tokens' groups, the first is group g of a token. */
typedef struct __align__(16) tile_spot {
    unsigned n;
    int h, token, g;
} tile_spot;

/* g < groups again.  A row of 128 values needs no division. */
static __device__ __forceinline__ void tile_carry(const job &p, int *token, int *g)
{
    const int whole = p.groups == 1 ? *g : (int)((unsigned)*g / (unsigned)p.groups);
    *token += whole;
    *g -= whole * p.groups;
}

template <int UNITS> static __device__ __forceinline__ tile_spot tile_at(const job &p, unsigned n)
{
    tile_spot o = { n, (int)(n % (unsigned)p.h), 0, (int)(n / (unsigned)p.h * UNITS) };
    tile_carry(p, &o.token, &o.g);
    return o;
}

/* ---- where its units go ---- */

/* page, tail: ids as the tables have them (-1: none), on their way with the values; row, exact: the place in such a
 * page, in bytes and in values. */
typedef struct __align__(16) tile_slot {
    int page, tail;
    uint32_t row, exact;
} tile_slot;

/* The same as addresses; neither: past the end. */
typedef struct tile_to {
    uint8_t *row;
    uint16_t *tail;
} tile_to;

static __device__ __forceinline__ tile_to tile_target(const job &p, const tile_slot &o)
{
    tile_to to = { NULL, NULL };
    if (o.tail >= 0)
        to.tail = side_tail_row(p.side, o.tail, p.h, 0, 0) + o.exact;
    else if (o.page >= 0)
        to.row = side_row(p.side, o.page, 0, 0) + o.row;
    return to;
}

/* Four values of a unit as halves, by each lane of the warp. */
static __device__ __forceinline__ void tile_halves(uint16_t *tail, const float4 &x)
{
    const float v[4] = { x.x, x.y, x.z, x.w };
    *(uint2 *)(tail + 4 * (threadIdx.x % 32)) = tail_halves(v);
}

/* ---- storing ---- */

/* `bytes` of shared memory by the warp, T at a time; EACH: as many at most, where that is known. */
template <typename T, int EACH = 0>
static __device__ __forceinline__ void tile_copy_out(uint8_t *to, const uint8_t *out, int bytes)
{
#pragma unroll
    for (int i = threadIdx.x % 32 * (int)sizeof(T), n = 0; EACH ? n < EACH : i < bytes; i += 32 * (int)sizeof(T), n++)
        if (!EACH || i < bytes)
            *(T *)(to + i) = *(const T *)(out + i);
}

/* Rows of BYTES each, one behind the other in `out`, where they do not follow one another: those that do at once. */
template <int UNITS, int BYTES> static __device__ void tile_runs(const uint8_t *out, uint8_t *row, bool follows)
{
    constexpr int each = 32 / UNITS;
    unsigned firsts = __ballot_sync(0xffffffffu, threadIdx.x % each == 0 && !follows), next;
    for (; firsts; firsts = next) {
        const int lane = __ffs((int)firsts) - 1;
        next = firsts & (firsts - 1);
        const int from = lane / each, to = next ? (__ffs((int)next) - 1) / each : UNITS;
        uint8_t *at = (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)row, lane);
        if (at)
            tile_copy_out<uint16_t>(at, out + BYTES * from, BYTES * (to - from));
    }
}

template <int UNITS, int BYTES>
static __device__ __forceinline__ void tile_store(const uint8_t *out, uint8_t *row)
{
    constexpr int each = 32 / UNITS, all = UNITS * BYTES;
    const uint8_t *before = (const uint8_t *)__shfl_up_sync(0xffffffffu, (unsigned long long)row, each);
    const bool follows = threadIdx.x % 32 >= each && row && row == before + BYTES;
    uint8_t *first = (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)row, 0);
    if (!__all_sync(0xffffffffu, follows || (threadIdx.x % 32 < each && row)))
        tile_runs<UNITS, BYTES>(out, row, follows);
    else if (((uintptr_t)first & 15) == 0)
        tile_copy_out<uint4, (all + 511) / 512>(first, out, all);
    else if (((uintptr_t)first & 3) == 0)
        tile_copy_out<uint32_t>(first, out, all);
    else
        tile_copy_out<uint16_t>(first, out, all);
}

#endif
