/* cache_tile.cu: cache_write of many rows in the coded formats.  A warp encodes tiles of 8 units of one head
 * (encode_tile.cuh); while it does, the next tile's values are on their way to shared memory.  The tile's bytes are put
 * together there: units of consecutive rows of a page are written as one piece. */
#include "devices/cuda/cache_job.cuh"
#include "devices/cuda/encode_tile.cuh"

enum { TILE_LEAST = 384 };       /* units: fewer keep more of the GPU busy four to a warp */

/* Where the eight units of a tile go.  page, tail: ids as the tables have them (-1: none), on their way with the
 * values; row, exact: the place in such a page, in bytes and in values. */
typedef struct __align__(16) tile_slot {
    int page, tail;
    uint32_t row, exact;
} tile_slot;

/* The sequence of a unit's token, kept from tile to tile: tokens from .. to - 1 have position token + add. */
typedef struct __align__(16) tile_seq {
    int seq, from, to, add;
} tile_seq;

/* What a warp keeps in shared memory besides a tile's bytes; registers are for the values. */
typedef struct tile_desk {
    uint8_t stage[2][TILE_BYTES];
    tile_slot slot[2][TILE_UNITS];
    tile_seq seq[TILE_UNITS];
} tile_desk;

template <int F, bool BEST> struct tile_room_of {
    static constexpr int warps = BEST ? 16 : 8, blocks = BEST ? 1 : 2;      /* of a block; of a multiprocessor */
    static constexpr int codes = tile_format<F, BEST>::table_bytes, tries = BEST ? tile_search<F>::table_bytes : 0;
    static constexpr int out = (TILE_UNITS * tile_format<F>::unit_bytes + 15) / 16 * 16;
    static constexpr int warp = (int)sizeof(tile_desk) + out, head = 32;    /* of the block: tile_work */
    static constexpr int all = codes + tries + head + warps * warp;
};

/* Chunk c of 16 bytes of a line is kept at c ^ this, so that the lanes that read together meet no bank twice. */
template <int F> static __device__ __forceinline__ int tile_mix(int unit, int line)
{
    return tile_format<F>::records ? (4 * unit + line) % 8 : unit % 2;
}

/* Tile n: 8 units of head h; units of a head count its tokens' groups, the first is group g of a token. */
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

static __device__ __forceinline__ tile_spot tile_at(const job &p, unsigned n)
{
    tile_spot o = { n, (int)(n % (unsigned)p.h), 0, (int)(n / (unsigned)p.h * TILE_UNITS) };
    tile_carry(p, &o.token, &o.g);
    return o;
}

/* `by` tiles further on. */
static __device__ __forceinline__ void tile_add(const job &p, tile_spot *o, const tile_spot &by)
{
    o->n += by.n;
    o->token += by.token;
    o->g += by.g;
    o->h += by.h;
    if (o->h >= p.h) {
        o->h -= p.h;
        o->g += TILE_UNITS;
    }
    tile_carry(p, &o->token, &o->g);
}

/* Units of the tile, from its first to the last of all, at most 8. */
static __device__ __forceinline__ int tile_count(const job &p, const tile_spot &t, const tile_work &w)
{
    const int left = (int)w.units - (t.token * p.groups + t.g);
    return left < TILE_UNITS ? left : TILE_UNITS;
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

/* One lane of each unit: where it will go.  The ids of its pages come with the tile's values. */
template <int F>
static __device__ __forceinline__ void tile_find(const job &p, const tile_spot &t, int count, tile_seq *seqs,
                                                 tile_slot *slots)
{
    const int r = threadIdx.x % 32 / 4;
    const bool tails = p.side.tail && p.seqs.tail_table;
    int token = t.token, g = t.g + r;
    if (threadIdx.x % 4 != 0)
        return;
    if (r >= count || !tails)
        slots[r].tail = -1;
    if (r >= count) {
        slots[r].page = -1;
        return;
    }
    tile_carry(p, &token, &g);
    tile_seq s = seqs[r];
    if (token < s.from || token >= s.to) {
        s.seq = seq_of(p.seqs, token);
        s.from = p.seqs.q0[s.seq];
        s.to = p.seqs.q0[s.seq + 1];
        s.add = p.seqs.pos0[s.seq] - s.from;
        seqs[r] = s;
    }
    const int pos = token + s.add, at = pos % KVANT_PAGE;
    const int64_t i = (int64_t)s.seq * p.seqs.stride + pos / KVANT_PAGE;
    slots[r].row = (uint32_t)t.h * (uint32_t)p.side.head_bytes + (uint32_t)at * (uint32_t)p.side.row_bytes +
                   (uint32_t)g * tile_format<F>::unit_bytes;
    slots[r].exact = (uint32_t)((t.h * KVANT_PAGE + at) * p.side.d + g * GROUP_MAX);
    async_copy4(shared_at(&slots[r].page), p.seqs.table + i);
    if (tails)
        async_copy4(shared_at(&slots[r].tail), p.seqs.tail_table + i);
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

/* Unit r's values as halves. */
template <int F> static __device__ void tile_exact(const uint8_t *stage, int r, uint16_t *tail)
{
    const int lane = threadIdx.x % 32, line = lane / 8;
    const float4 x = *(const float4 *)(stage + 512 * r + 128 * line + 16 * (lane % 8 ^ tile_mix<F>(r, line)));
    *(uint2 *)(tail + 4 * lane) = make_uint2(enc_half(x.x) | (uint32_t)enc_half(x.y) << 16,
                                             enc_half(x.z) | (uint32_t)enc_half(x.w) << 16);
}

/* Units one by one, two bytes at a time. */
template <int F> static __device__ void tile_scatter(const uint8_t *stage, const uint8_t *out, const tile_to &to)
{
    constexpr int bytes = tile_format<F>::unit_bytes;
    for (int r = 0; r < TILE_UNITS; r++) {
        uint8_t *row = (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)to.row, 4 * r);
        uint16_t *tail = (uint16_t *)__shfl_sync(0xffffffffu, (unsigned long long)to.tail, 4 * r);
        if (tail)
            tile_exact<F>(stage, r, tail);
        else if (row)
            for (int i = threadIdx.x % 32; i < bytes / 2; i += 32)
                ((uint16_t *)row)[i] = ((const uint16_t *)(out + bytes * r))[i];
    }
}

/* A piece of memory, N bytes at a time. */
template <int N, typename T> static __device__ __forceinline__ void tile_piece(uint8_t *to, const uint8_t *out)
{
#pragma unroll
    for (int i = 0; i < N; i += 32 * (int)sizeof(T))
        if (i + (int)(threadIdx.x % 32 * sizeof(T)) < N)
            ((T *)(to + i))[threadIdx.x % 32] = ((const T *)(out + i))[threadIdx.x % 32];
}

template <int F>
static __device__ __forceinline__ void tile_store(const uint8_t *stage, const uint8_t *out, const tile_to &to)
{
    constexpr int bytes = tile_format<F>::unit_bytes, all = TILE_UNITS * bytes;
    uint8_t *first = (uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)to.row, 0);
    const bool piece = first && to.row == first + threadIdx.x % 32 / 4 * bytes;
    if (!__all_sync(0xffffffffu, piece))
        tile_scatter<F>(stage, out, to);
    else if (((uintptr_t)first & 15) == 0)
        tile_piece<all, uint4>(first, out);
    else if (((uintptr_t)first & 3) == 0)
        tile_piece<all, uint32_t>(first, out);
    else
        tile_piece<all, uint16_t>(first, out);
}

template <int F, bool BEST>
static __global__ void __launch_bounds__(32 * tile_room_of<F, BEST>::warps, tile_room_of<F, BEST>::blocks)
    tile_kernel(jobs js)
{
    extern __shared__ __align__(128) uint8_t tile_room[];
    typedef tile_room_of<F, BEST> has;
    const job &p = js.j[blockIdx.y];
    tile_work &work = *(tile_work *)(tile_room + has::codes + has::tries);
    uint8_t *own = tile_room + has::codes + has::tries + has::head + threadIdx.x / 32 * has::warp;
    tile_desk &desk = *(tile_desk *)own;
    tile_spot t = tile_at(p, blockIdx.x * has::warps + threadIdx.x / 32);
    tile_books books = { 0, 0 };
    tile_copy<F, BEST, 32 * has::warps> codes;
    try_copy<F, BEST, 32 * has::warps> tries;

    pdl_go();
    codes.load();
    tries.load();
    if (threadIdx.x == 0) {
        work.step = tile_at(p, gridDim.x * has::warps);
        work.units = p.units / (unsigned)p.h;
        work.tiles = (work.units + TILE_UNITS - 1) / TILE_UNITS * (unsigned)p.h;
    }
    if (threadIdx.x % 4 == 0)
        desk.seq[threadIdx.x % 32 / 4] = { 0, 0, 0, 0 };
    __syncthreads();
    pdl_wait();
    /* The first round only asks for a tile. */
    for (int round = 0;; round++) {
        const bool more = t.n < work.tiles;
        if (more) {
            const int count = tile_count(p, t, work);
            tile_start<F>(p, t, count, shared_at(desk.stage[round % 2]));
            tile_find<F>(p, t, count, desk.seq, desk.slot[round % 2]);
            tile_add(p, &t, work.step);
        }
        async_commit();
        if (round == 0) {
            books.codes = codes.store(tile_room);
            books.tries = tries.store(tile_room + has::codes);
            __syncthreads();
        } else {
            const uint8_t *stage = desk.stage[(round + 1) % 2];
            uint8_t *out = own + sizeof(tile_desk);
            float v[32];
            async_wait<1>();
            __syncwarp();
            tile_read<F>(stage, v);
            tile_encode<F, BEST>(books, v, out);
            __syncwarp();
            tile_store<F>(stage, out, tile_target(p, desk.slot[(round + 1) % 2][threadIdx.x % 32 / 4]));
            __syncwarp();
        }
        if (!more)
            break;
    }
}

template <int F, bool BEST> static bool tile_launch(cuda_device *d, const jobs &p, int sides)
{
    typedef tile_room_of<F, BEST> has;
    const unsigned tiles = cuda_blocks(p.j[0].units / p.j[0].h, TILE_UNITS) * p.j[0].h;
    const unsigned want = cuda_blocks(tiles, has::warps), most = has::blocks * d->n_sm;
    cuda_smem(tile_kernel<F, BEST>, has::all);
    if (d->smem_max < (size_t)has::all)
        return false;
    const dim3 grid(want < most ? want : most, (unsigned)sides);
    cuda_launch(d, tile_kernel<F, BEST>, grid, 32 * has::warps, has::all, p);
    return true;
}

template <int F> static bool tile_either(cuda_device *d, const jobs &p, int sides)
{
    if (p.j[0].side.encoder != KVANT_ENCODER_BEST)
        return tile_launch<F, false>(d, p, sides);
    if constexpr (F == FMT_q8_0)        /* no table for its 255 levels */
        return false;
    else
        return tile_launch<F, true>(d, p, sides);
}

bool cuda_tile_encode(cuda_device *d, const jobs &p, int sides)
{
    const job &j = p.j[0];
    if (j.seal || j.units < TILE_LEAST)
        return false;
    switch (j.side.fmt) {
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
