/* attn_whole.cu: decode attention of few units with few steps each: one launch, a cluster of blocks to a unit.
 *
 * What a short context costs is launches and waits, not its bytes: here one launch makes the queries' operands, sums
 * and joins.  It lets the launch behind it begin at once, so that the weights of the next product are under way on the
 * multiprocessors that have no unit.  A warp has one part of the unit, blocks of encoded pages or exact keys; the first
 * warps of the cluster have the encoded ones.  While the launches before it end it brings what it will read to the L2;
 * then pages and exact rows are asked for before the queries are made.  If a new row is stored as it is, in the
 * exact tail or in a page of 16-bit rows, the launch takes cache_write's place too: the warp that reads a new row
 * stores it first.  Then it may also norm and rotate queries and new keys (whole_ahead.cuh). */
#include "devices/cuda/attn/decode/decode_sketch.cuh"
#include "devices/cuda/attn/decode/whole_ahead.cuh"
#include "devices/cuda/attn/decode/whole_join.cuh"

/* Blocks of PACK_BLOCK encoded keys of a warp, at most. */
#define WHOLE_STEPS(d) ((d) == 256 ? 4 : 8)

#if ARCH_GROUPS

/* Parts at .. to - 1 of a unit's encoded pages, in blocks of PACK_BLOCK keys, or of its exact keys, in steps of
 * TAIL_STEP; coded: the cluster's warps that have encoded ones. */
typedef struct share {
    int at, to, coded;
    bool exact;
} share;

static __device__ __forceinline__ int blocks_of(const decode_job &p, const row_span &row)
{
    return (row.encoded - first_page(p, row.pos)) * (KVANT_PAGE / (int)PACK_BLOCK);
}

static __device__ __forceinline__ int exact_of(const row_span &row)
{
    return (row.pos - row.encoded * KVANT_PAGE + TAIL_STEP) / TAIL_STEP;
}

/* Returns the share of warp `warp` of `warps`. */
static __device__ __forceinline__ share share_of(const decode_job &p, const row_span &row, int warp, int warps)
{
    const int blocks = blocks_of(p, row), exact = exact_of(row), all = blocks + exact;
    share o;
    o.coded = exact <= 0 ? warps : blocks == 0 ? 0 : max(1, min(warps - 1, (blocks * warps + all / 2) / all));
    o.exact = warp >= o.coded;
    const int i = o.exact ? warp - o.coded : warp, n = o.exact ? warps - o.coded : o.coded;
    const int steps = o.exact ? exact : blocks;
    o.at = steps * i / n;
    o.to = steps * (i + 1) / n;
    return o;
}

/* A warp's encoded pages: lane i has the id of page base + i of those that the unit reads; where its KV head begins in
 * a page. */
typedef struct page_ids {
    int base, ids;
    uint32_t k_at, v_at;
} page_ids;

static __device__ __forceinline__ page_ids pages_of(const decode_job &p, const row_span &row, int kv, const share &mine,
                                                    int lane)
{
    const int32_t *table = p.seqs.table + (size_t)row.seq * p.seqs.stride + first_page(p, row.pos);
    page_ids o;
    o.base = mine.at / (KVANT_PAGE / PACK_BLOCK);
    const int n = mine.exact ? 0 : (mine.to + KVANT_PAGE / PACK_BLOCK - 1) / (KVANT_PAGE / PACK_BLOCK) - o.base;
    o.ids = lane < n ? table[o.base + lane] : 0;
    o.k_at = (uint32_t)kv * (uint32_t)p.k.s.head_bytes;
    o.v_at = (uint32_t)kv * (uint32_t)p.v.s.head_bytes;
    return o;
}

static __device__ __forceinline__ int half_of_page(int block)
{
    return block % (KVANT_PAGE / PACK_BLOCK);
}

/* Block `block` of a side. */
static __device__ __forceinline__ const uint8_t *block_from(const page_ids &o, const decode_side &s, uint32_t head_at,
                                                            int block)
{
    const uint32_t page = (uint32_t)__shfl_sync(0xffffffffu, o.ids, block / (KVANT_PAGE / PACK_BLOCK) - o.base);
    return s.s.pages + (uint64_t)page * (uint32_t)s.s.page_bytes + head_at +
           (uint32_t)half_of_page(block) * s.apart;
}

/* The room of one of the slot's blocks. */
static __device__ __forceinline__ warp_room room_part(const decode_job &p, warp_room r, int i)
{
    r.bar_k += 16 * (uint32_t)i;
    r.bar_v += 16 * (uint32_t)i;
    r.slot_k += i * p.k.block_bytes;
    r.slot_v += i * p.v.block_bytes;
    r.k_at += i * p.k.block_bytes;
    r.v_at += i * p.v.block_bytes;
    return r;
}

/* A lane's part of an exact step's rows, read where they lie.  BOTH: registers hold K's and V's. */
template <int D> struct exact_tile {
    static constexpr bool BOTH = D < 256;
    uint4 k[D / 16];
    uint2 v[D / 8];
};

/* First key of exact step i; where its row of a side lies. */
static __device__ __forceinline__ int exact_key(const row_span &row, int i)
{
    return row.encoded * KVANT_PAGE + i * TAIL_STEP;
}

template <int D>
static __device__ __forceinline__ const uint8_t *exact_from(const decode_job &p, const decode_side &s,
                                                            const row_span &row, int kv, int i)
{
    const int key = exact_key(row, i);
    return exact_rows(p, s, row.seq, key / KVANT_PAGE, kv) + key % KVANT_PAGE * 2 * D;
}

template <int D>
static __device__ __forceinline__ void exact_ask_k(const decode_job &p, const row_span &row, int kv, int i,
                                                   exact_tile<D> &x, int lane)
{
    const uint8_t *low = exact_from<D>(p, p.k, row, kv, i) + lane / 4 * 2 * D + lane % 4 * 16;
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
        x.k[2 * c] = __ldcg((const uint4 *)(low + 64 * c));
        x.k[2 * c + 1] = __ldcg((const uint4 *)(low + 16 * D + 64 * c));
    }
}

/* Rows behind the row's position may hold anything, NaN too: they count as zeros. */
template <int D>
static __device__ __forceinline__ void exact_ask_v(const decode_job &p, const row_span &row, int kv, int i,
                                                   exact_tile<D> &x, int lane)
{
    const uint8_t *at = exact_from<D>(p, p.v, row, kv, i) + lane % 4 * 4 * D + lane / 4 * 8;
    const int live = row.pos - exact_key(row, i) + 1 - lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
            const int t = r % 2 + r / 2 * 8;
            x.v[4 * c + r] = t < live ? __ldcg((const uint2 *)(at + t * 2 * D + 64 * c)) : make_uint2(0, 0);
        }
}

/* Asks for the rows of exact step i. */
template <int D>
static __device__ __forceinline__ void exact_ask(const decode_job &p, const row_span &row, int kv, int i,
                                                 exact_tile<D> &x, int lane)
{
    exact_ask_k<D>(p, row, kv, i, x, lane);
    if (exact_tile<D>::BOTH)
        exact_ask_v<D>(p, row, kv, i, x, lane);
}

/* The warp's exact steps, the rows of the first of which are under way; those of the next are asked for as soon as
 * there is room. */
template <int D, int PARTS_K, int PARTS_V>
static __device__ __forceinline__ void exact_ahead(const decode_job &p, const row_span &row, int kv, const share &mine,
                                                   exact_tile<D> &x, const uint32_t *q, state<D> &a, int lane)
{
    uint32_t w[PARTS_V][2];
    float s[1][4];
#pragma unroll 1
    for (int i = mine.at; i < mine.to; i++) {
        const int key = exact_key(row, i);
        s[0][0] = s[0][1] = s[0][2] = s[0][3] = 0.0f;
#pragma unroll
        for (int c = 0; c < D / 32; c++)
            scores_quad<PARTS_K>(s[0], x.k[2 * c], x.k[2 * c + 1], q + 4 * PARTS_K * c);
        if (i + 1 < mine.to)
            exact_ask_k<D>(p, row, kv, i + 1, x, lane);
        softmax_step<D, 1, PARTS_V>(p, a, s, w, 8.0f, row.pos - key, lane);
        if (!exact_tile<D>::BOTH)
            exact_ask_v<D>(p, row, kv, i, x, lane);
#pragma unroll
        for (int c = 0; c < D / 32; c++)
            sums_quad<PARTS_V>(a.o + 2 * c, x.v + 4 * c, x.v + 4 * c + 2, w);
        if (exact_tile<D>::BOTH && i + 1 < mine.to)
            exact_ask_v<D>(p, row, kv, i + 1, x, lane);
    }
}

/* One lane: brings a block to the L2. */
template <int D, int KIND>
static __device__ __forceinline__ void block_warm(const decode_side &s, const uint8_t *from, int half)
{
    if constexpr (is_page(KIND))
        page_warm<D, symbol_bits(KIND)>(from, half);
    else
        bulk_warm(from, s.block_bytes);
}

/* Before pdl_wait: brings what the warp will read to the L2, and the signs of rotations nearer. */
template <int D, int KIND_K, int KIND_V>
static __device__ __forceinline__ void whole_warm(const decode_job &p, const row_span &row, int kv, const share &mine,
                                                  const page_ids &pages, int lane)
{
    for (int i = mine.at; i < mine.to && !mine.exact; i++) {
        const uint8_t *k = block_from(pages, p.k, pages.k_at, i), *v = block_from(pages, p.v, pages.v_at, i);
        if (lane == 0) {
            block_warm<D, KIND_K>(p.k, k, half_of_page(i));
            block_warm<D, KIND_V>(p.v, v, half_of_page(i));
        }
    }
    if (mine.exact && mine.at + lane < mine.to) {
        bulk_warm(exact_from<D>(p, p.k, row, kv, mine.at + lane), TAIL_STEP * 2 * D);
        bulk_warm(exact_from<D>(p, p.v, row, kv, mine.at + lane), TAIL_STEP * 2 * D);
    }
    warm_signs<D / 32>(p.k.s.space, lane);
    warm_signs<D / 32>(p.v.s.space, lane);
}

/* New rows among the keys of the warp's exact steps: it stores them, for itself and for those who come later.
 * t: of the row's own position. */
template <int D, int KIND_K, int KIND_V>
static __device__ __forceinline__ void whole_store(const decode_job &p, const row_span &row, int kv, const share &mine,
                                                   turn<D / 32> t, int lane)
{
    constexpr int V = D / 32;
    const int to = min(exact_key(row, mine.to), row.pos + 1);
#pragma unroll 1
    for (int key = max(exact_key(row, mine.at), row.fresh); key < to; key++) {
        const int token = row.token - row.pos + key;
        const int64_t from = token * p.ld_rows + kv * D;
        const size_t at = (size_t)(key % KVANT_PAGE * D + lane * V);
        float k[V];
        if (p.ahead.pos)
            head_ready<V>(p.ahead, key == row.pos ? t : turn_at<V>(p.ahead, token, lane), p.ahead.k_norm,
                          p.ahead.k_eps, p.k_rows + from, k, lane);
        else
            head_load<V>(p.k_rows + from, k, lane);
        store_row<V>((uint16_t *)exact_rows(p, p.k, row.seq, key / KVANT_PAGE, kv) + at, k, KIND_K == KIND_BF16);
        head_load<V>(p.v_rows + from, k, lane);
        store_row<V>((uint16_t *)exact_rows(p, p.v, row.seq, key / KVANT_PAGE, kv) + at, k, KIND_V == KIND_BF16);
    }
    __syncwarp();
}

/* Asks for a side's blocks of the warp, as many as its slot holds. */
template <int D, int KIND>
static __device__ __forceinline__ void ask_first(const decode_side &s, const page_ids &pages, uint32_t head_at,
                                                 const share &mine, uint32_t slot, uint32_t bar)
{
    for (int i = 0; i < shape<D>::BLOCKS && mine.at + i < mine.to && !mine.exact; i++)
        side_ask<D, KIND, 1, ARCH_90, 0>(s, slot + (uint32_t)i * s.block_bytes,
                                         block_from(pages, s, head_at, mine.at + i), half_of_page(mine.at + i),
                                         bar + 16 * (uint32_t)i, true);
}

/* Heads first .. first + live - 1 of the unit's row by the block's warps: raw as they are, turned as the encoded pages
 * want them, where there are any. */
template <int D, int PARTS>
static __device__ __forceinline__ void whole_queries(const decode_job &p, const row_span &row, int first, int live,
                                                     const turn<D / 32> &t, uint16_t *raw, uint16_t *turned, int warp,
                                                     int lane)
{
    constexpr int V = D / 32;
    const float by = p.scale * PREP_LOG2E;
    for (int i = warp; i < live; i += p.warps) {
        const float *from = p.q + row.token * p.ldq + (first + i) * p.gq;
        float x[V];
        if (p.ahead.pos)
            head_ready<V>(p.ahead, t, p.ahead.q_norm, p.ahead.q_eps, from, x, lane);
        else
            head_load<V>(from, x, lane);
        warp_operands<V, PARTS>(blocks_of(p, row) > 0 ? p.k.s.space : (int)SPACE_REAL, x, by, by * side_scale(p.k.s),
                                raw + i * D, turned + i * D, lane);
    }
}

/* The warp's blocks of encoded pages, the first of which are under way. */
template <int D, int KIND_K, int KIND_V>
static __device__ __forceinline__ void coded_blocks(const decode_job &p, const row_span &row, const share &mine,
                                                    const page_ids &pages, const warp_room &r, const uint32_t *q,
                                                    state<D> &a, int lane)
{
    constexpr int SLOTS = shape<D>::BLOCKS;
    const int from = first_page(p, row.pos) * KVANT_PAGE;
#pragma unroll 1
    for (int i = mine.at; i < mine.to; i++) {
        const int n = i - mine.at, next = min(i + SLOTS, mine.to - 1);
        coded_step<D, KIND_K, KIND_V, 1>(p, room_part(p, r, n % SLOTS), a, q, from + i * (int)PACK_BLOCK, row.pos,
                                         (uint32_t)(n / SLOTS) & 1, i + SLOTS < mine.to,
                                         block_from(pages, p.k, pages.k_at, next),
                                         block_from(pages, p.v, pages.v_at, next), half_of_page(next), lane);
    }
}
#endif

/* Cluster: unit. */
template <int D, int KIND_K, int KIND_V>
static __global__ void __launch_bounds__(most_warps(D) * 32, 1) decode_whole(decode_job p)
{
#if ARCH_GROUPS
    extern __shared__ __align__(1024) uint8_t smem[];
    pdl_go();
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const uint32_t base = shared_at(smem);
    uint16_t *raw = (uint16_t *)(smem + BARS), *turned = raw + DECODE_HEADS * D; /* where others have their plan */
    const warp_room r = room_of<D, ARCH_90, is_page(KIND_K)>(p, smem, base, warp, lane);
    room_begin<ARCH_90, is_page(KIND_K)>(p, smem, r, lane);
    const int unit = (int)blockIdx.x / p.whole, in = unit % units_per_row(p);
    /* the batch is there since before the list's first op */
    const row_span row = span_of<D>(p, unit / units_per_row(p));
    const int kv = kv_of(p, in), begin = in % p.head_tiles * p.heads, live = min(p.heads, p.group - begin);
    const int first = kv * p.group + begin;
    constexpr bool SIGN = is_sign(KIND_K);
    const bool sketches = SIGN && p.desk && blocks_of(p, row) > 0;
    /* few steps: the first block takes them all, the others help it to sketch, if at all */
    const bool alone = p.whole == 1 || (SIGN && p.desk && blocks_of(p, row) + exact_of(row) <= p.warps);
    const int rank = alone ? 0 : (int)cluster_rank(), blocks = alone ? 1 : p.whole;
    const bool help = alone && p.whole > 1 && cluster_rank() > 0;
    if (help && !sketches)
        return;
    const share mine = help ? share{ 0, 0, 0, false } : share_of(p, row, rank * p.warps + warp, blocks * p.warps);
    const page_ids pages = pages_of(p, row, kv, mine, lane);
    if (row.steps > 0)
        whole_warm<D, KIND_K, KIND_V>(p, row, kv, mine, pages, lane);
    sketch_desk &desk = *(sketch_desk *)(smem + desk_at(p, base));
    if (sketches)
        desk_begin(p, desk, live);
    if (!help)
        room_tables<ARCH_90, is_page(KIND_K)>(p, smem, base, KIND_K == KIND_TRELLIS && KIND_V == KIND_TRELLIS);
    turn<D / 32> t = {};
    if (p.ahead.pos && row.steps > 0 && (warp < live || mine.exact))
        t = turn_at<D / 32>(p.ahead, row.token, lane);
    __syncthreads();
    pdl_wait();
    if (row.steps == 0)
        return;
    uint32_t q[QUERY_WORDS(D, KIND_K)];
    exact_tile<D> x;
    state<D> a;
    state_clear(a);
    ask_first<D, KIND_K>(p.k, pages, pages.k_at, mine, r.k_at, r.bar_k);
    if (p.k_rows && mine.exact)
        whole_store<D, KIND_K, KIND_V>(p, row, kv, mine, t, lane);
    if (mine.exact && mine.at < mine.to)
        exact_ask<D>(p, row, kv, mine.at, x, lane);
    if (!SIGN)
        whole_queries<D, parts_of(KIND_K)>(p, row, first, live, t, raw, turned, warp, lane);
    else if (p.desk)
        desk_queries(p, desk, row.token, first, live, raw, warp, lane);
    if (sketches)
        async_wait<0>();
    __syncthreads();
    ask_first<D, KIND_V>(p.v, pages, pages.v_at, mine, r.v_at, r.bar_v); /* behind the queries: these are first */
    const int64_t head = (int64_t)row.token * p.h + first;
    if (sketches)
        desk_products(p, desk, live, alone ? 1 : p.whole, warp, lane);
    if (help)
        return;
    if (sketches)
        desk_words(p, desk, live, warp, lane);
    if (SIGN && !mine.exact)
        load_sketch<KIND_K == KIND_SIGN>(p.desk ? desk.words[0] : p.sketch + head * SKETCH_WORDS, live, q, lane);
    else if (SIGN)
        load_q<D, 1>(p, p.desk ? raw : p.raw + head * D, 0, live, false, q, lane);
    else
        load_queries<D, KIND_K>(p, mine.exact ? raw : turned, raw, turned, 0, live,
                                is_mixed(p.k.kind) && !mine.exact, q, lane);
    if (mine.exact)
        exact_ahead<D, parts_of(KIND_K), parts_of(KIND_V)>(p, row, kv, mine, x, q, a, lane);
    else
        coded_blocks<D, KIND_K, KIND_V>(p, row, mine, pages, r, q, a, lane);
    piece_store<D>(p, a, (float *)r.slot_k, is_mixed(p.v.kind) && !mine.exact, lane);
    float *out = p.out + row.token * p.ldo + (int64_t)first * D;
    whole_join<D>(p, smem, base, first, live, mine.coded, out, blocks, rank, warp, lane);
#endif
}

bool decode_whole_ahead(const decode_job &p, const head_ahead &a)
{
    return !is_sign(p.k.kind) && ahead_fits(a, p.d);
}

int decode_whole_blocks(const decode_job &p, int max_pos)
{
    const int all = max_pos / KVANT_PAGE + 1, seen = (p.window + KVANT_PAGE - 2) / KVANT_PAGE + 1; /* pages of a row */
    const int steps = (seen < all ? seen : all) * (KVANT_PAGE / (int)PACK_BLOCK), units = p.n_rows * units_per_row(p);
    int n = is_sign(p.k.kind) && SKETCH_BLOCKS * units <= p.blocks ? SKETCH_BLOCKS : 1;
    if (units > p.blocks || p.slot_bytes < piece_size(p.d, p.heads) * sizeof(float))
        return 0;
    if ((is_page(p.k.kind) || is_page(p.v.kind)) && p.k.kind != p.v.kind) /* no kernels here */
        return 0;
    while (n < WHOLE_BLOCKS && 2 * n * units <= p.blocks && steps > n * p.warps)
        n *= 2;
    return steps <= WHOLE_STEPS(p.d) * n * p.warps ? n : 0;
}

template <int D, int KIND_K, int KIND_V> static void launch(cuda_device *d, const decode_job &p)
{
    cudaLaunchAttribute attr[2] = {};
    cudaLaunchConfig_t cfg = {};
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    attr[1].id = cudaLaunchAttributeClusterDimension;
    attr[1].val.clusterDim.x = (unsigned)p.whole;
    attr[1].val.clusterDim.y = attr[1].val.clusterDim.z = 1;
    cfg.gridDim = dim3((unsigned)(p.n_rows * units_per_row(p) * p.whole));
    cfg.blockDim = dim3((unsigned)p.warps * 32);
    cfg.dynamicSmemBytes = SMEM;
    cfg.stream = d->stream;
    cfg.attrs = attr;
    cfg.numAttrs = p.whole > 1 ? 2 : 1;
    cuda_smem(decode_whole<D, KIND_K, KIND_V>, SMEM);
    cudaLaunchKernelEx(&cfg, decode_whole<D, KIND_K, KIND_V>, p);
}

void decode_whole_run(cuda_device *d, const decode_job &p)
{
    KINDS(128, KIND_HALF, KIND_HALF);
    KINDS(128, KIND_TRELLIS, KIND_TRELLIS);
    KINDS(128, KIND_SIGN, KIND_LUT3_32);
    KINDS_PAGE_EACH(128);
    KINDS_PAGE_EACH(256);
    KINDS_ALL();
}
