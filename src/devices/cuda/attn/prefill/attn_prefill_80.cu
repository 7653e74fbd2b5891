/* attn_prefill_80.cu: prompt attention of ARCH_80: mma.sync on tiles of keys in shared memory.
 *
 * As attn_prefill.cu, of which it has the tiles, the makers and the order of a row's sums; but all warps of a block
 * make a tile (or copy one that was made ahead) and then multiply it, 16 rows each.  There is room for one tile of K
 * and one of V: V's comes while scores are made, the next one of K while sums are. */
#include "devices/cuda/attn/prefill/prefill_ahead.cuh"
#include "devices/cuda/attn/prefill/prefill_use.cuh"

/* A block's shared memory. */
typedef struct prompt_room {
    uint8_t *k, *v, *q;
    books *b;
} prompt_room;

/* books, of which a scale for each key of one tile. */
enum { BOOKS_80 = offsetof(books, scale) + KEYS * sizeof(float), STATIC_80 = 256 };

size_t prefill_room_80(const prefill_job &p, int rows)
{
    return pair_bytes(p.k.width, p.d) + (p.k.width == 256 ? (size_t)rows * 2 * p.k.width : 0) + BOOKS_80;
}

int prefill_rows_80(const prefill_job &p, size_t most)
{
    for (int rows = 128; rows >= 64; rows /= 2)
        if (prefill_room_80(p, rows) + STATIC_80 <= most)
            return rows;
    return 0;
}

static __device__ __forceinline__ void copy_tile(uint8_t *to, const uint8_t *from, int bytes, const maker &w)
{
    const uint32_t at = shared_at(to);
#pragma unroll 4
    for (int i = 16 * w.m; i < bytes; i += 16 * w.n)
        async_copy16_all(at + (uint32_t)i, from + i);
}

/* A side (V: i is 1) of tile n of the plan, which is no matrix; its copies are under way. */
template <int D, int W, int PAGES>
static __device__ __forceinline__ void bring_side(const prefill_job &p, const tile &t, const tile_plan &w, int n, int i,
                                                  int kv, const prompt_room &r, const maker &who)
{
    const int ahead = !p.tiles ? 0 : PAGES & BF16_K ? w.encoded : pages_ahead(w), j = page_of(w, n);
    uint8_t *to = i ? r.v : r.k;
    if (n < ahead) {
        const uint8_t *from = tile_ahead<PAGES>(p, t.seq, j, kv);
        copy_tile(to, from + (i ? W * KEYS * 2 : 0), (i ? D : W) * KEYS * 2, who);
        if ((PAGES & BF16_K) && i == 0)
            copy_tile((uint8_t *)who.scale, from + pair_bytes(W, D), SCALE_BYTES, who);
        return;
    }
    const int page = p.seqs.table[(size_t)t.seq * p.seqs.stride + j];
    make_side<PAGES>(p, t, w, n, j, i, side_row((i ? p.v : p.k).s, page, kv, 0), page, kv, *r.b, to, who);
}

/* K of tile n, unless that is the matrix. */
template <int D, int W, int PAGES>
static __device__ __forceinline__ void bring_first(const prefill_job &p, const tile &t, const tile_plan &w, int n,
                                                   int kv, const prompt_room &r, const maker &who)
{
    if (n < w.n && (!w.turn || n != w.encoded))
        bring_side<D, W, PAGES>(p, t, w, n, 0, kv, r, who);
}

/* Waits until every thread's copies are there, and all have read the ones before. */
static __device__ __forceinline__ void meet_tile(void)
{
    async_commit();
    async_wait<0>();
    __syncthreads();
}

/* The sums so far to real space.  The matrix takes the room of K and V. */
template <int D, int PAGES>
static __device__ __forceinline__ void turn_tiles(const prefill_job &p, rows_state<D> &a, const prompt_room &r,
                                                  const maker &who, int lane)
{
    __syncthreads();
    if (p.tiles && !(PAGES & BF16_K))
        copy_tile(r.k, turn_ahead(p), (int)turn_bytes(D), who);
    else
        make_turn(p.v.s.space, turn_width(D), r.k, who);
    meet_tile();
    rows_turn<ARCH_80, D>(a, shared_at(r.k), turn_factor(p.v.s.space), lane);
    __syncthreads();
}

template <int D, int W, int PAGES>
static __device__ __forceinline__ void prompt_tiles(const prefill_job &p, const tile &t, const tile_plan &w,
                                                    int kv_tile, const prompt_room &r)
{
    constexpr bool PLACED = W == 256, TWO = (PAGES & BF16_V) != 0;
    const int thread = threadIdx.x, lane = thread % 32, group = thread / 128, first = thread / 32 * 16;
    const int kv = kv_tile / p.head_tiles;
    const maker who = { thread, (int)blockDim.x, r.b->scale[0] };
    uint8_t *placed = r.q + group * W * 128;
    const uint32_t k = shared_at(r.k), v = shared_at(r.v);
    const int pos[2] = { t.pos + (first + lane / 4) / p.heads, t.pos + (first + 8 + lane / 4) / p.heads };
    uint32_t q[PLACED ? 1 : W / 16][4];
    rows_state<D> a;

    state_clear(a);
    bring_first<D, W, PAGES>(p, t, w, 0, kv, r, who);
    for (int n = 0; n < w.n; n++) {
        const bool exact = n >= w.encoded && p.k.s.tail;
        if (n == (exact ? w.encoded + w.turn : 0)) { /* the queries for what comes */
            const uint16_t *from = exact ? p.qraw : p.qp;
            if (PLACED)
                rows_place<ARCH_80>(p, t, kv_tile, from, exact ? D : W, placed, group, thread % 128);
            else
                rows_load<W>(p, t, kv_tile, from, q, first, lane);
        }
        if (w.turn && n == w.encoded) {
            turn_tiles<D, PAGES>(p, a, r, who, lane);
            bring_first<D, W, PAGES>(p, t, w, n + 1, kv, r, who);
            continue;
        }
        meet_tile();
        float s[8][4];
        uint32_t pr[(TWO ? 2 : 1) * (KEYS / 16)][4];
        const int key = page_of(w, n) * KVANT_PAGE;
        bring_side<D, W, PAGES>(p, t, w, n, 1, kv, r, who);
        rows_scores<ARCH_80, W, PLACED>(s, q, shared_at(placed), k, exact ? D : W);
        if (PAGES & BF16_K)
            rows_scale(s, who.scale, lane);
        rows_mask(p, t, s, key, pos, lane);
        rows_softmax<D, TWO>(a, s, pr);
        meet_tile();
        bring_first<D, W, PAGES>(p, t, w, n + 1, kv, r, who);
        rows_sums<ARCH_80, D, TWO>(a.o, pr, v);
    }
    rows_total<D>(a);
    rows_sinks<D>(p, t, kv_tile, a, first, lane);
    rows_norm<D>(a);
    rows_write<D>(p, t, kv_tile, a, first, lane);
}

template <int D, int W, int PAGES> static __global__ void __launch_bounds__(256, 1) prompt_kernel(prefill_job p)
{
    extern __shared__ __align__(1024) uint8_t smem[];
    const int kv_tile = blockIdx.x % (p.h_kv * p.head_tiles), ti = blockIdx.x / (p.h_kv * p.head_tiles);
    prompt_room r;
    tile t;

    r.k = smem;
    r.v = r.k + W * KEYS * 2;
    r.q = r.v + D * KEYS * 2;
    r.b = (books *)(r.q + (W == 256 ? (int)blockDim.x / 2 * 2 * W : 0));
    pdl_go();
    /* the last tiles of a sequence see most keys: they start first */
    if (!tile_at(p.seqs, p.tokens, p.n_tiles - 1 - ti, &t))
        return;
    fill_prefill_books(p, *r.b);
    __syncthreads();
    const tile_plan w = plan_of(p, t);
    pdl_wait();
    prompt_tiles<D, W, PAGES>(p, t, w, kv_tile, r);
}

template <int PAGES> static prefill_fn kernel_of_width(const prefill_job &p)
{
    return p.d == 64          ? prompt_kernel<64, 64, PAGES & ~(RESIDUALS | SCOPED)>
           : p.d == 256       ? prompt_kernel<256, 256, PAGES>
           : p.k.width == 128 ? prompt_kernel<128, 128, PAGES>
                              : prompt_kernel<128, 256, PAGES & ~(BF16_K | RESIDUALS | SCOPED)>;
}

prefill_fn prefill_kernel_80(const prefill_job &p, int pages)
{
    switch (pages) {
    case BF16_K: return kernel_of_width<BF16_K>(p);
    case BF16_V: return kernel_of_width<BF16_V>(p);
    case BF16_K | BF16_V: return kernel_of_width<BF16_K | BF16_V>(p);
    case RESIDUALS: return kernel_of_width<RESIDUALS>(p);
    case SCOPED: return kernel_of_width<SCOPED>(p);
    default: return kernel_of_width<0>(p);
    }
}
