/* tile_place.cuh: where a tile's units come from and where their bytes go, for the encoders of many rows.  A tile is
 * UNITS units of 128 values of one head, 32 / UNITS lanes to each. */
#ifndef KVANT_CUDA_TILE_PLACE_CUH
#define KVANT_CUDA_TILE_PLACE_CUH

#include "devices/cuda/cache_job.cuh"
#include "devices/cuda/hopper.cuh"

/* ---- tiles by number ---- */

/* Tile n: units of head h; units of a head count its tokens' groups, the first is group g of a token. */
typedef struct __align__(16) tile_spot {
    unsigned n;
    int h, token, g;
} tile_spot;

/* What a block has to do: `step` from tile to tile of a warp. */
typedef struct tile_work {
    tile_spot step;
    unsigned tiles, units;      /* units: of one head */
} tile_work;

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

/* For a block whose warps take tiles `apart` tiles apart. */
template <int UNITS> static __device__ __forceinline__ void tile_plan(const job &p, unsigned apart, tile_work *work)
{
    work->step = tile_at<UNITS>(p, apart);
    work->units = p.units / (unsigned)p.h;
    work->tiles = (work->units + UNITS - 1) / UNITS * (unsigned)p.h;
}

/* `by` tiles further on. */
template <int UNITS> static __device__ __forceinline__ void tile_add(const job &p, tile_spot *o, const tile_spot &by)
{
    o->n += by.n;
    o->token += by.token;
    o->g += by.g;
    o->h += by.h;
    if (o->h >= p.h) {
        o->h -= p.h;
        o->g += UNITS;
    }
    tile_carry(p, &o->token, &o->g);
}

/* Units of the tile, from its first to the last of all, at most UNITS. */
template <int UNITS>
static __device__ __forceinline__ int tile_count(const job &p, const tile_spot &t, const tile_work &w)
{
    const int left = (int)w.units - (t.token * p.groups + t.g);
    return left < UNITS ? left : UNITS;
}

/* ---- where its units go ---- */

/* page, tail: ids as the tables have them (-1: none), on their way with the values; row, exact: the place in such a
 * page, in bytes and in values. */
typedef struct __align__(16) tile_slot {
    int page, tail;
    uint32_t row, exact;
} tile_slot;

/* The sequence of a unit's token, kept from tile to tile: tokens from .. to - 1 have position token + add. */
typedef struct __align__(16) tile_seq {
    int seq, from, to, add;
} tile_seq;

/* One lane of each unit, which has it and `slot` for its own: where the unit will go, BYTES each.  The ids of its pages
 * come with the tile's values. */
template <int UNITS, int BYTES>
static __device__ __forceinline__ void tile_find(const job &p, const tile_spot &t, int count, tile_seq *seq,
                                                 tile_slot *slot)
{
    const int r = threadIdx.x % 32 / (32 / UNITS);
    const bool tails = p.side.tail && p.seqs.tail_table;
    int token = t.token, g = t.g + r;
    if (threadIdx.x % (32 / UNITS) != 0)
        return;
    if (r >= count || !tails)
        slot->tail = -1;
    if (r >= count) {
        slot->page = -1;
        return;
    }
    tile_carry(p, &token, &g);
    tile_seq s = *seq;
    if (token < s.from || token >= s.to) {
        s.seq = seq_of(p.seqs, token);
        s.from = p.seqs.q0[s.seq];
        s.to = p.seqs.q0[s.seq + 1];
        s.add = p.seqs.pos0[s.seq] - s.from;
        *seq = s;
    }
    const int pos = token + s.add, at = pos % KVANT_PAGE;
    const int64_t i = (int64_t)s.seq * p.seqs.stride + pos / KVANT_PAGE;
    slot->row = (uint32_t)t.h * (uint32_t)p.side.head_bytes + (uint32_t)at * (uint32_t)p.side.row_bytes +
                (uint32_t)(g * BYTES);
    slot->exact = (uint32_t)((t.h * KVANT_PAGE + at) * p.side.d + g * GROUP_MAX);
    async_copy4(shared_at(&slot->page), p.seqs.table + i);
    if (tails)
        async_copy4(shared_at(&slot->tail), p.seqs.tail_table + i);
}

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
