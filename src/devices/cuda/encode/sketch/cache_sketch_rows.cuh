/* cache_sketch_rows.cuh: rows of cache_sketch_wide.cu: a warp's 16 units of a tile, where they come from and go to. */
#ifndef KVANT_CUDA_CACHE_SKETCH_ROWS_CUH
#define KVANT_CUDA_CACHE_SKETCH_ROWS_CUH

#include "devices/cuda/encode/sketch/cache_sketch.cuh"
#include "devices/cuda/encode/tile_place.cuh"

enum {
    WIDE_ROWS = 16, WIDE_TILE = 4 * WIDE_ROWS, /* units of a warp, of a warpgroup */
    WIDE_ROW = GROUP_MAX * 4                   /* bytes of a row's values */
};

/* Where value i of a warp's row r lies: odd rows are turned by 64 bytes, so that two rows do not meet in a bank. */
static __device__ __forceinline__ int wide_at(int r, int i)
{
    return WIDE_ROW * r + ((4 * i + r % 2 * 64) & (WIDE_ROW - 1));
}

/* A tile: of head h, the units from WIDE_TILE n on. */
typedef struct wide_tile {
    int h, n;
} wide_tile;

static __device__ __forceinline__ wide_tile wide_tile_at(const job &p, unsigned n)
{
    const wide_tile o = { (int)(n % (unsigned)p.h), (int)(n / (unsigned)p.h) };
    return o;
}

/* Without a division. */
static __device__ __forceinline__ void wide_add(const job &p, wide_tile *o, const wide_tile &by)
{
    o->h += by.h;
    const bool more = o->h >= p.h;
    o->h -= more ? p.h : 0;
    o->n += by.n + more;
}

static __device__ __forceinline__ int wide_first(const wide_tile &o)
{
    return o.n * WIDE_TILE + (int)threadIdx.x / 32 % 4 * WIDE_ROWS;
}

/* Units from this warp's first on. */
static __device__ __forceinline__ int wide_left(const job &p, const wide_tile &o)
{
    return (int)(p.units / (unsigned)p.h) - wide_first(o);
}

/* Unit r of this warp. */
static __device__ __forceinline__ spot wide_spot(const job &p, const wide_tile &o, int r)
{
    spot at = { r < wide_left(p, o) ? 0 : p.units, 0, o.h, wide_first(o) + r };
    tile_carry(p, &at.token, &at.g);
    return at;
}

static __device__ __forceinline__ bool wide_copies(const job &p)
{
    return p.full && !p.seal;
}

/* Rows of a page that is sealed: halves that lie one behind the other. */
static __device__ __forceinline__ bool wide_halves(const job &p)
{
    return p.seal && p.full && p.groups == 1 && ((uintptr_t)p.side.tail & 15) == 0;
}

static __device__ __forceinline__ void wide_load_halves(const job &p, const wide_tile &tile, uint8_t *x)
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
template <bool SEAL> static __device__ __forceinline__ void wide_load(const job &p, const wide_tile &tile, uint8_t *x)
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

/* ---- where rows go ---- */

/* Lanes 2 r and 2 r + 1: where row r goes, read in two steps, each on its way until the next. */
typedef struct wide_place {
    spot at;
    int seq, pos0, q0;              /* or pos0: the page that is sealed */
    int page, tail;                 /* -1: none */
} wide_place;

static __device__ __forceinline__ void wide_place_begin(const job &p, const wide_tile &tile, wide_place *o)
{
    o->at = wide_spot(p, tile, threadIdx.x % 32 / 2);
    if (o->at.n)
        return;
    if (p.seal) {
        o->pos0 = p.dst[o->at.token / KVANT_PAGE];
        return;
    }
    o->seq = seq_of(p.seqs, o->at.token);
    o->pos0 = p.seqs.pos0[o->seq];
    o->q0 = p.seqs.q0[o->seq];
}

static __device__ __forceinline__ void wide_place_go_on(const job &p, wide_place *o)
{
    o->page = o->tail = -1;
    if (o->at.n)
        return;
    if (p.seal) {
        o->page = o->pos0;
        return;
    }
    o->at.token += o->pos0 - o->q0;     /* its position, from now on */
    const int page = o->at.token / KVANT_PAGE;
    o->tail = side_tail_page(p.side, p.seqs, o->seq, page, page, 1);
    o->page = p.seqs.table[(size_t)o->seq * p.seqs.stride + page];
}

static __device__ __forceinline__ uint8_t *wide_to(const job &p, const wide_place &o)
{
    if (o.tail >= 0 || o.page < 0)
        return NULL;
    return side_row(p.side, o.page, 0, 0) + (uint32_t)o.at.h * (uint32_t)p.side.head_bytes +
           (uint32_t)(o.at.token % KVANT_PAGE) * (uint32_t)p.side.row_bytes + (uint32_t)(o.at.g * SKETCH_BYTES);
}

/* Units that the tail keeps, two lanes to each. */
static __device__ __forceinline__ void wide_tails(const job &p, const uint8_t *x, const wide_place &o)
{
    const int r = threadIdx.x % 32 / 2, g = o.at.g * GROUP_MAX;
    if (o.tail < 0)
        return;
    uint16_t *tail = side_tail_row(p.side, o.tail, p.h, o.at.h, o.at.token % KVANT_PAGE) + g;
    for (int i = threadIdx.x % 2 * 4; i < GROUP_MAX && g + i < p.side.d; i += 8) {
        const float4 f = *(const float4 *)(x + wide_at(r, i));
        const float v[4] = { f.x, f.y, f.z, f.w };
        tail_store4<false>(p, tail, i, p.side.d - g, v);
    }
}

#endif
