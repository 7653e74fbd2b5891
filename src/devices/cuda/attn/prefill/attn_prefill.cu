/* attn_prefill.cu: attention of many tokens: a page is decoded once to halves in shared memory for all the query rows
 * of a block, which multiplies with wgmma (ARCH_90; of ARCH_80, see attn_prefill_80.cu, the host's side).
 *
 * A block has 128 query rows: the heads of one KV head for the tokens of a tile, all in one page.  Makers fill a ring
 * of tiles (prefill_make.cuh); where many blocks want the same, a launch before has made them in global memory and they
 * copy: the same halves.  Two warpgroups (prefill_use.cuh) own 64 rows each.  First the encoded pages with the rotated
 * query; then the sums are un-rotated by one more product with the rotation's matrix of signs; then the exact pages
 * with the query as it is, into the same sums.  No row depends on another. */
#include "devices/cuda/attn/prefill/attn_prefill.cuh"
#include "devices/cuda/attn/prefill/prefill_ahead.cuh"
#include "devices/cuda/attn/prefill/prefill_sketch.cuh"
#include "devices/cuda/attn/prefill/prefill_use.cuh"

enum { ROWS = 128, RAW = 2, USERS = 256, BOOKS = 4096, STATIC = 2048 }; /* STATIC: of the kernel's own */

/* By head_dim: threads that make tiles, tiles of the ring. */
static __host__ __device__ constexpr int makers_of(int d)
{
    return d == 256 ? 128 : 256;
}

static __host__ __device__ constexpr int stages_of(int d)
{
    return d == 256 ? 2 : STAGES;
}

static __host__ __device__ inline bool placed_of(int width)
{
    return width == 256; /* queries of 256 values do not fit in registers */
}

static __host__ __device__ inline size_t shared_bytes(int width, int d)
{
    return BOOKS + stages_of(d) * pair_bytes(width, d) + (placed_of(width) ? (size_t)ROWS * 2 * width : 0);
}

#if ARCH_GROUPS

/* This thread's copies are there and its stores are seen by wgmma; then the stage counts it. */
static __device__ __forceinline__ void hand_over(const ring &r, int n)
{
    proxy_fence();
    bar_arrive(r.full + n % r.n * 8);
}

/* All makers: a stage is filled by one copy, which it counts; bf16 keys: and another one of what they are multiplied
 * by. */
template <int PAGES>
static __device__ __forceinline__ void bring_tile(const uint8_t *from, uint8_t *to, uint32_t bytes, float *scale,
                                                  uint32_t full)
{
    if (threadIdx.x != 0) {
        bar_arrive(full);
        return;
    }
    bar_expect(full, bytes + (PAGES & BF16_K ? SCALE_BYTES : 0));
    bulk_start(shared_at(to), from, bytes, full);
    if (PAGES & BF16_K)
        bulk_start(shared_at(scale), from + bytes, SCALE_BYTES, full);
}

template <int D, int PAGES>
static __device__ __forceinline__ void make_tiles(const prefill_job &p, const tile &t, const tile_plan &w,
                                                  const raw_ring &raw, books &b, const ring &r)
{
    const int ahead = p.tiles ? pages_ahead(w) : 0, turn = p.tiles && w.turn && ahead == w.encoded ? w.encoded : -1;
    bool before = false; /* copies of tile n - 1 are under way; not with tiles made ahead: they come first */
    for (int n = 0; n < raw.n && threadIdx.x == 0 && raw_has(raw, w, n); n++)
        raw_ask(p, t, w, raw, n);
    for (int n = 0; n < w.n; n++) {
        uint8_t *k = r.at + n % r.n * r.stage_bytes;
        if (n >= r.n)
            bar_wait(r.empty + n % r.n * 8, (n / r.n - 1) & 1);
        if constexpr (PAGES & BF16_K) {
            if (p.tiles && n < w.encoded) {
                bring_tile<PAGES>(tile_ahead<PAGES>(p, t.seq, page_of(w, n), raw.kv), k, r.stage_bytes,
                                  b.scale[n % r.n], r.full + n % r.n * 8);
                continue;
            }
        } else if (n < ahead || n == turn) {
            if (n < ahead)
                bring_tile<0>(tile_ahead<0>(p, t.seq, page_of(w, n), raw.kv), k, r.stage_bytes, NULL,
                              r.full + n % r.n * 8);
            else
                bring_tile<0>(turn_ahead(p), k, turn_bytes(D), NULL, r.full + n % r.n * 8);
            continue;
        }
        const maker who = { (int)threadIdx.x, makers_of(D), b.scale[n % r.n] };
        const bool now = make_tile<PAGES>(p, t, w, n, raw, b, k, k + p.k.width * 128, who);
        async_commit();
        if (before) {
            async_wait<1>();
            hand_over(r, n - 1);
        }
        before = now && stages_of(D) > 2;
        if (!before) {
            async_wait<0>();
            hand_over(r, n);
        }
        if (raw_has(raw, w, n + raw.n)) {
            asm volatile("bar.sync 1, %0;" ::"n"(makers_of(D)) : "memory"); /* the makers have read the copy */
            if (threadIdx.x == 0)
                raw_ask(p, t, w, raw, n + raw.n);
        }
    }
    if (before) {
        async_wait<0>();
        hand_over(r, w.n - 1);
    }
}

#endif

template <int D, int W, int PAGES>
static __global__ void __launch_bounds__(makers_of(D) + USERS, 1) prefill_kernel(prefill_job p)
{
#if ARCH_GROUPS
    constexpr int MAKERS = makers_of(D);
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ __align__(8) uint64_t bars[8];
    books &b = *(books *)smem;
    const int kv_tile = blockIdx.x % (p.h_kv * p.head_tiles), ti = blockIdx.x / (p.h_kv * p.head_tiles);
    ring r;
    tile t;

    r.at = smem + BOOKS;
    r.n = stages_of(D);
    r.stage_bytes = (W + D) * KEYS * 2;
    r.full = shared_at(bars);
    r.empty = r.full + 24;
    uint8_t *q_room = r.at + r.n * r.stage_bytes;
    if ((int)threadIdx.x < r.n) {
        bar_init(r.full + threadIdx.x * 8, MAKERS);
        bar_init(r.empty + threadIdx.x * 8, USERS / 32);
    }
    if (threadIdx.x < RAW)
        bar_init(r.full + (6 + threadIdx.x) * 8, 1);
    bar_publish();
    pdl_go();
    /* the last tiles of a sequence see most keys: they start first */
    if (!tile_at(p.seqs, p.tokens, p.n_tiles - 1 - ti, &t))
        return;
    fill_prefill_books(p, b);
    __syncthreads();
    const tile_plan w = plan_of(p, t);
    pdl_wait();
    if (threadIdx.x < MAKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        const raw_ring raw = { q_room + (placed_of(W) ? ROWS * 2 * W : 0), r.full + 48, p.n_raw,
                               kv_tile / p.head_tiles };
        make_tiles<D, PAGES>(p, t, w, raw, b, r);
    } else {
        if (MAKERS == 256)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 184;");
        else
            asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
        use_tiles<D, W, W == 256, PAGES>(p, t, w, kv_tile, r, b, q_room, (int)threadIdx.x - MAKERS);
    }
#endif
}

/* A block to a side of a page and KV head: its tile, where a prompt's queries want it; those of one page more make the
 * matrix.  Once it runs, all before it has ended: the launch behind it need not wait for it first. */
template <int PAGES> static __global__ void __launch_bounds__(AHEAD_THREADS) prefill_ahead(prefill_job p)
{
    __shared__ books b;
    const int j = blockIdx.x, kv = blockIdx.y / 2, is_v = blockIdx.y % 2, seq = blockIdx.z;
    const int n = p.seqs.q0[seq + 1] - p.seqs.q0[seq];
    const tile last = { seq, p.seqs.q0[seq], n, p.seqs.pos0[seq] + n - 1 };
    const tile_plan w = plan_of(p, last);
    const bool some = j < p.seqs.stride && n > 0 && page_wanted(p, seq, w, pages_ahead(w), j);
    const int page = some ? p.seqs.table[(size_t)seq * p.seqs.stride + j] : 0;
    if (some)
        fill_prefill_books(p, b);
    __syncthreads();
    pdl_wait();
    pdl_go();
    if (some) {
        const prefill_side &side = is_v ? p.v : p.k;
        const maker who = { (int)threadIdx.x, (int)blockDim.x, NULL };
        uint8_t *to = tile_ahead<0>(p, seq, j, kv) + (is_v ? p.k.width * KEYS * 2 : 0);
        const uint8_t *from = side_row(side.s, page, kv, 0);
        if (side.cls == PACK_HALF)
            copy_half(from, p.d, to, who);
        else
            make_coded<(PAGES & RESIDUALS) != 0, true, (PAGES & SCOPED) != 0>(side, is_v, from, page, kv, b, KEYS, to,
                                                                              who);
    } else if (j == p.seqs.stride && seq == 0 && p.v.s.space != SPACE_REAL) {
        const maker who = { (int)(blockIdx.y * blockDim.x + threadIdx.x), (int)(gridDim.y * blockDim.x), NULL };
        make_turn(p.v.s.space, turn_width(p.d), turn_ahead(p), who);
    }
}

/* As prefill_ahead, for bf16 keys: a block to a page and KV head, its own queries' page too. */
static __global__ void __launch_bounds__(AHEAD_THREADS / 2) prefill_ahead_bf16(prefill_job p)
{
    __shared__ books b;
    const int j = blockIdx.x, kv = blockIdx.y, seq = blockIdx.z;
    const int n = p.seqs.q0[seq + 1] - p.seqs.q0[seq];
    const tile last = { seq, p.seqs.q0[seq], n, p.seqs.pos0[seq] + n - 1 };
    const tile_plan w = plan_of(p, last);
    const bool some = n > 0 && page_wanted(p, seq, w, w.encoded, j);
    if (some)
        fill_prefill_books(p, b);
    __syncthreads();
    pdl_wait();
    pdl_go();
    if (!some)
        return;
    const int page = p.seqs.table[(size_t)seq * p.seqs.stride + j];
    uint8_t *to = tile_ahead<BF16_K>(p, seq, j, kv), *to_v = to + p.k.width * KEYS * 2;
    const maker who = { (int)threadIdx.x, (int)blockDim.x, (float *)(to + pair_bytes(p.k.width, p.d)) };
    const int live = last.pos + 1 - j * KVANT_PAGE;
    make_k_bf16(side_row(p.k.s, page, kv, 0), p.d, to, who);
    if (plain_rows(p.v))
        make_plain(side_row(p.v.s, page, kv, 0), p.d, live, to_v, who);
    else
        make_coded<false>(p.v, true, side_row(p.v.s, page, kv, 0), page, kv, b, live, to_v, who);
}

/* ---- the host's side ---- */

static bool side_fits(const side_dev &s, int role, int d, prefill_side *out)
{
    out->s = s;
    out->width = s.sdim;
    out->cls = PACK_NONE;
    memset(&out->shape, 0, sizeof out->shape);
    if (s.d != d || s.dp != d || (role == PACK_V && s.sdim != d) || s.sdim > 256)
        return false;
    const int cls = cuda_pack_class(s.fmt);
    if (s.fmt >= FMT_COUNT) {
        out->cls = PACK_PAGE;
        if (!PAGE_FAST || !s.tail)
            return false;
    } else if (cls == PACK_HALF || cls == PACK_BF16)
        out->cls = cls;
    else if (s.layout) {
        if (!cuda_pack_shape(&s, role, &out->shape))
            return false;
        out->cls = out->shape.cls;
    }
    return out->cls == PACK_NONE || !((s.page_bytes | s.head_bytes | (uintptr_t)s.pages) & 15);
}

/* Pages of codes, else rows that are read in place. */
static bool coded(const prefill_side &s)
{
    return s.shape.block_bytes || s.cls == PACK_PAGE;
}

static bool both_coded(const prefill_job &p)
{
    return coded(p.k) && coded(p.v);
}

static bool tiled(const prefill_side &s)
{
    return coded(s) || s.cls == PACK_HALF;
}

/* Bytes of tiles made ahead, and of the matrix, 0: each block makes its own.  For coded and f16 sides, or bf16 keys
 * beside any values; where a sequence has a tile of queries or more: fewer blocks than the GPU holds would decode. */
static size_t ahead_bytes(const cuda_device *d, const prefill_job &p)
{
    const size_t tiles = (size_t)p.seqs.n_seqs * p.seqs.stride * p.h_kv;
    const bool bf16 = p.k.cls == PACK_BF16;
    const size_t each = pair_bytes(p.k.width, p.d) + (bf16 ? SCALE_BYTES : 0);
    const bool many = !d->scarce && p.seqs.n_tokens - p.first >= (int64_t)p.tokens * p.seqs.n_seqs;
    return many && (bf16 || (tiled(p.k) && tiled(p.v))) && tiles <= AHEAD_MOST / each ? (tiles + 1) * each : 0;
}

/* A warp to what one decodes at a time of a page (prefill_make.cuh). */
static unsigned ahead_threads(const prefill_job &p)
{
    const bool bytes = p.k.cls == PACK_INT8 || p.k.cls == PACK_FLOAT8 || p.v.cls == PACK_INT8 || p.v.cls == PACK_FLOAT8;
    return bytes ? AHEAD_THREADS : AHEAD_THREADS / 2;
}

/* Rows of a block, pages copied ahead; false: no room. */
static bool room_90(const cuda_device *d, prefill_job *p)
{
    const size_t used = shared_bytes(p->k.width, p->d);
    if (used + STATIC > d->smem_max)
        return false;
    const size_t fit = (d->smem_max - used - STATIC) / raw_bytes(*p);
    p->n_raw = !both_coded(*p) || ahead_bytes(d, *p) ? 0 : fit < RAW ? (int)fit : RAW;
    return true;
}

bool prefill_shape(const cuda_device *d, const kvant_attn_args *a, const side_dev &k, const side_dev &v, prefill_job *p)
{
    memset(p, 0, sizeof *p);
    if (a->compute == KVANT_COMPUTE_F32 || a->d_k != a->d_v || ((uintptr_t)a->out & 15) || a->ldo % 4)
        return false;
    p->d = a->d_k;
    p->make = d->arch.make;
    if ((p->d != 64 && p->d != 128 && p->d != 256) || !side_fits(k, PACK_K, p->d, &p->k) ||
        !side_fits(v, PACK_V, p->d, &p->v))
        return false;
    const bool scoped = p->k.cls == PACK_PAGE || p->v.cls == PACK_PAGE;
    if (scoped && (p->k.cls == PACK_BF16 || p->v.cls == PACK_BF16 || p->k.width != p->d)) /* no kernels */
        return false;
    const int group = a->h / a->h_kv;
    static_cast<attn_call &>(*p) = cuda_attn_call(a);
    p->rows = p->make == ARCH_90 ? (int)ROWS : prefill_rows_80(*p, d->smem_max);
    p->heads = group < 16 ? group : 16;
    p->head_tiles = (group + p->heads - 1) / p->heads;
    p->tokens = KVANT_PAGE;
    while (p->tokens * p->heads > p->rows && p->tokens > 1)
        p->tokens /= 2;
    p->first = a->seqs.few_rows;
    const int64_t n = a->seqs.n_tokens - p->first, most = n / p->tokens + 2 * (int64_t)a->seqs.n_seqs;
    p->n_tiles = (int)(n < most ? n : most);
    return p->make == ARCH_90 ? room_90(d, p) : p->rows > 0;
}

static size_t query_bytes(const prefill_job &p)
{
    const size_t heads = (size_t)p.seqs.n_tokens * p.h;
    return cuda_aligned(heads * p.k.width * 2) + cuda_aligned(heads * p.d * 2);
}

size_t prefill_scratch(const cuda_device *d, const prefill_job &p)
{
    return query_bytes(p) + ahead_bytes(d, p);
}

/* A job's bits of what kernels are compiled for. */
static int pages_of(const prefill_job &p)
{
    if (p.k.cls == PACK_PAGE || p.v.cls == PACK_PAGE)
        return SCOPED;
    return p.k.shape.codes == CODES_SIGNED && p.v.shape.codes == CODES_SIGNED
               ? (int)RESIDUALS
               : (p.k.cls == PACK_BF16 ? BF16_K : 0) | (p.v.cls == PACK_BF16 ? BF16_V : 0);
}

template <int PAGES> static prefill_fn kernel_of_width(const prefill_job &p)
{
    return p.d == 64                        ? prefill_kernel<64, 64, PAGES & ~(RESIDUALS | SCOPED)>
           : p.d == 256                     ? prefill_kernel<256, 256, PAGES>
           : p.k.width == 128               ? prefill_kernel<128, 128, PAGES>
                                            : prefill_kernel<128, 256, PAGES & ~(BF16_K | RESIDUALS | SCOPED)>;
}

static prefill_fn kernel_of(const prefill_job &p)
{
    if (p.make == ARCH_80)
        return prefill_kernel_80(p, pages_of(p));
    switch (pages_of(p)) {
    case BF16_K: return kernel_of_width<BF16_K>(p);
    case BF16_V: return kernel_of_width<BF16_V>(p);
    case BF16_K | BF16_V: return kernel_of_width<BF16_K | BF16_V>(p);
    case RESIDUALS: return kernel_of_width<RESIDUALS>(p);
    case SCOPED: return kernel_of_width<SCOPED>(p);
    default: return kernel_of_width<0>(p);
    }
}

static void sketch_run(cuda_device *d, const prefill_job &p, unsigned heads)
{
    const unsigned tiles = cuda_blocks(heads, SKETCH_TILE), most = (unsigned)d->n_sm;
    const dim3 blocks(tiles < most ? tiles : most, p.make == ARCH_90 ? 1 : 2);
    const auto kernel = p.make == ARCH_90 ? prefill_sketch<ARCH_90> : prefill_sketch<ARCH_80>;
    const size_t room = sketch_room(p.make);
    cuda_smem(kernel, room);
    cuda_launch(d, kernel, blocks, SKETCH_THREADS, room, p);
}

static void queries_run(cuda_device *d, const prefill_job &p, unsigned heads)
{
    const unsigned lanes = heads * (unsigned)(p.d / QUERY_VALUES);
    if (p.k.s.space == SPACE_SKETCH)
        sketch_run(d, p, heads);
    else
        cuda_launch(d, p.d == 64 ? prefill_queries<64> : p.d == 128 ? prefill_queries<128> : prefill_queries<256>,
                    dim3(cuda_blocks(lanes, QUERY_THREADS)), QUERY_THREADS, 0, p);
}

static void ahead_run(cuda_device *d, const prefill_job &p, int pages)
{
    const dim3 each(p.seqs.stride, p.h_kv, p.seqs.n_seqs), sides(p.seqs.stride + 1, 2 * p.h_kv, p.seqs.n_seqs);
    if (pages & BF16_K)
        cuda_launch(d, prefill_ahead_bf16, each, AHEAD_THREADS / 2, 0, p);
    else
        cuda_launch(d,
                    pages & RESIDUALS ? prefill_ahead<RESIDUALS>
                    : pages & SCOPED  ? prefill_ahead<SCOPED>
                                      : prefill_ahead<0>,
                    sides, ahead_threads(p), 0, p);
}

query_operands prefill_operands(const prefill_job &p, unsigned char *scratch)
{
    const size_t heads = (size_t)p.seqs.n_tokens * p.h;
    return { (uint16_t *)(scratch + cuda_aligned(heads * p.k.width * 2)), (uint16_t *)scratch };
}

/* Queries are made while tiles are, and the kernel begins while both end. */
void prefill_run(cuda_device *d, prefill_job p, unsigned char *scratch, bool made)
{
    const query_operands to = prefill_operands(p, scratch);
    const unsigned heads = (unsigned)(p.seqs.n_tokens * (int64_t)p.h),
                   blocks = (unsigned)(p.n_tiles * p.h_kv * p.head_tiles);
    const bool one = p.make == ARCH_90;
    const size_t bytes = one ? shared_bytes(p.k.width, p.d) + (size_t)p.n_raw * raw_bytes(p)
                             : prefill_room_80(p, p.rows);
    const prefill_fn kernel = kernel_of(p);
    p.qp = to.turned;
    p.qraw = to.raw;
    p.tiles = ahead_bytes(d, p) ? scratch + query_bytes(p) : NULL;
    cuda_smem(kernel, bytes);
    if (p.tiles)
        ahead_run(d, p, pages_of(p));
    if (!made)
        queries_run(d, p, heads);
    cuda_launch(d, kernel, dim3(blocks), one ? makers_of(p.d) + USERS : 2 * p.rows, bytes, p);
}
