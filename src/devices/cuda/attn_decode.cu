/* attn_decode.cu: decode attention on Hopper.  See attn_decode.cuh.
 *
 * K and V^T are the A operands of mma.m16n8k16 and the heads are its 8 columns.  Every warp has one slot of shared
 * memory for a step of K and one for V, filled by bulk copies: K is asked for again right after the scores, V right
 * after the sum, across units.  4-bit and 3-bit codes become pairs of halves by a table with a copy per lane: entry
 * e of lane l lies at 256*e + 4*l of a 64 KB aligned base, so one byte permute makes an address.  K's scales
 * multiply scores, V's the probabilities.  The maximum is lazy: sums are rescaled only when it grows by more than 8
 * (in log2). */
#include "devices/cuda/attn_decode.cuh"
#include "devices/cuda/decode_merge.cuh"
#include "devices/cuda/decode_room.cuh"

/* Words of a head's sketch: 8 for each bit of its values, then twice their unit, minus their sum. */
enum { SKETCH_WORDS = 8 * SKETCH_BITS + 4 };

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

/* Asks for a block of the rows at `from`; the barriers of blocks are 16 bytes apart. */
static __device__ __forceinline__ void ask(uint32_t slot, const uint8_t *from, uint32_t bytes, int block, uint32_t bar)
{
    warp_copy(slot + (uint32_t)block * bytes, from + (uint32_t)block * bytes, bytes, bar + (uint32_t)block * 16);
}

/* Words of a lane's queries: operands; of sketches see scores_sign. */
#define QUERY_WORDS(D, SIGN) ((SIGN) ? 2 * SKETCH_BITS + 4 : (D) / 8)

template <bool EVEN>
static __device__ __forceinline__ void load_sketch(const uint32_t *from, int live, uint32_t *q, int lane)
{
    const int head = EVEN ? lane / 4 % 4 : lane / 4, odd = EVEN ? lane / 16 : 0;
    const uint32_t *mine = from + head * SKETCH_WORDS + lane % 4 * 2;
#pragma unroll
    for (int b = 0; b < SKETCH_BITS; b++) {
        const int bit = EVEN ? 2 * b + odd : b;
        const uint2 v = head < live && bit < SKETCH_BITS ? *(const uint2 *)(mine + 8 * bit) : make_uint2(0, 0);
        q[2 * b] = v.x;
        q[2 * b + 1] = v.y;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        q[2 * SKETCH_BITS + i] = lane % 4 * 2 + i % 2 < live
                                     ? from[(lane % 4 * 2 + i % 2) * SKETCH_WORDS + 8 * SKETCH_BITS + i / 2]
                                     : 0;
}

/* Operands of a unit's queries; mixed: in the trellis' order of values. */
template <int D>
static __device__ __forceinline__ void load_q(const decode_job &p, const uint16_t *from, int head, int live, bool mixed,
                                              uint32_t *q, int lane)
{
    const uint4 *at = (const uint4 *)(from + (int64_t)(head + lane / 4) * D);
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
        const uint4 v = lane / 4 < live ? at[mixed ? c / 4 * 16 + lane % 4 * 4 + c % 4 : 4 * c + lane % 4]
                                        : make_uint4(0, 0, 0, 0);
        q[4 * c] = v.x;
        q[4 * c + 1] = v.y;
        q[4 * c + 2] = v.z;
        q[4 * c + 3] = v.w;
    }
}

/* Exact steps i .. to - 1 of a unit. */
template <int D>
static __device__ __forceinline__ void exact_steps(const decode_job &p, const row_span &row, const spot &s, int i,
                                                   int to, const uint32_t *q, state<D> &a, int lane)
{
    uint32_t w[1][2];
    float x[1][4];
#pragma unroll 1
    for (; i < to; i++) {
        const int kv = kv_of(p, s.in), key = row.encoded * KVANT_PAGE + i * TAIL_STEP;
        const int j = key / KVANT_PAGE, in = key % KVANT_PAGE * 2 * D;
        const uint8_t *k = exact_rows(p, p.k, row.seq, j, kv) + in, *v = exact_rows(p, p.v, row.seq, j, kv) + in;
        scores_half<D, 1>(x, k, q, lane);
        if (key + TAIL_STEP - 1 > row.pos)
            mask_step<1>(x, key, row.pos, lane);
        softmax_step<D, 1>(a, x, w, 8.0f);
        sums_half<D, 1>(a.o, v, w, row.pos - key + 1, lane);
    }
}

/* Compiled for a kind, or for any (KIND_COUNT): then the launch-uniform number chooses. */
#define CASE(KIND, is, number) (KIND == (number) || (KIND == KIND_COUNT && (is) == (number)))

template <int D, int KIND>
static __device__ __forceinline__ void scores(const decode_side &side, float (*s)[4], const uint8_t *slot,
                                              const uint32_t *q, uint32_t table, uint32_t mirror, int lane)
{
    if (is_sign(KIND))
        scores_sign<KIND == KIND_SIGN>(s, slot, q, lane);
    else if (D >= 128 && CASE(KIND, side.kind, KIND_TRELLIS))
        scores_trellis<D<128 ? 128 : D, KIND == KIND_TRELLIS>(s, slot, q, table, lane);
    else if (CASE(KIND, side.kind, KIND_LUT4_32))
        scores_lut<D, BOOK4_MIRROR, 32>(s, slot, q, table, mirror, lane);
    else if (D >= 128 && CASE(KIND, side.kind, KIND_LUT4_128))
        scores_lut<D, BOOK4_MIRROR, D >= 128 ? 128 : 32>(s, slot, q, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_BOOK4_32))
        scores_lut<D, BOOK4, 32>(s, slot, q, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_LUT3_32))
        scores_lut<D, BOOK3_MIRROR, 32>(s, slot, q, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_INT8))
        scores_byte<D, false>(s, slot, q, lane);
    else if (CASE(KIND, side.kind, KIND_FLOAT8))
        scores_byte<D, true>(s, slot, q, lane);
    else if (CASE(KIND, side.kind, KIND_HALF))
        scores_half<D, 2>(s, slot, q, lane);
}

template <int D, int KIND>
static __device__ __forceinline__ void sums(const decode_side &side, float (*o)[4], const uint8_t *slot,
                                            const uint32_t (*p)[2], uint32_t table, uint32_t mirror, int live, int lane)
{
    if (D >= 128 && CASE(KIND, side.kind, KIND_TRELLIS))
        sums_trellis<D<128 ? 128 : D, KIND == KIND_TRELLIS>(o, slot, p, table, lane);
    else if (CASE(KIND, side.kind, KIND_LUT4_32))
        sums_lut<D, BOOK4_MIRROR, 32>(o, slot, p, table, mirror, lane);
    else if (D >= 128 && CASE(KIND, side.kind, KIND_LUT4_128))
        sums_lut<D, BOOK4_MIRROR, D >= 128 ? 128 : 32>(o, slot, p, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_BOOK4_32))
        sums_lut<D, BOOK4, 32>(o, slot, p, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_LUT3_32))
        sums_lut<D, BOOK3_MIRROR, 32>(o, slot, p, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_INT8))
        sums_byte<D, false>(o, slot, p, lane);
    else if (CASE(KIND, side.kind, KIND_FLOAT8))
        sums_byte<D, true>(o, slot, p, lane);
    else if (CASE(KIND, side.kind, KIND_HALF))
        sums_half<D, 2>(o, slot, p, live, lane);
}
#endif

template <int D, int KIND_K, int KIND_V>
static __global__ void __launch_bounds__(most_warps(D) * 32, 1) decode_kernel(decode_job p)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    extern __shared__ __align__(1024) uint8_t smem[];
    /* blocks that are waited for together: more to interleave; measured better but for 3-bit codes */
    constexpr int WAIT = KIND_K == KIND_LUT3_32 ? 1 : shape<D>::BLOCKS;
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); /* so the compiler knows that a warp has one */
    const uint32_t base = shared_at(smem), table_at = (base + TABLE - 1) & ~(TABLE - 1u);
    row_span *spans = (row_span *)(smem + BARS);
    const plan t = { spans, (int *)(smem + SUMS) };
    const uint32_t bar_k = base + (uint32_t)warp * 32, bar_v = bar_k + 8;
    uint8_t *slot_k = smem + slot_at(p, base, warp), *slot_v = slot_k + shape<D>::BLOCKS * p.k.block_bytes;
    const uint32_t trellis_at = table_at + TABLE * (uint32_t)book_tables(p), at_lane = (uint32_t)lane * 4;
    const uint32_t table_k = p.k.kind == KIND_TRELLIS ? trellis_at + at_lane : table_at + at_lane;
    const uint32_t table_v = p.v.kind == KIND_TRELLIS ? trellis_at + at_lane : table_at + 128 + at_lane;
    const uint32_t at_k = shared_at(slot_k), at_v = shared_at(slot_v);
    const uint32_t mirror_at = base + MIRRORS;
    uint32_t phase = 0;

    if (lane < 4)
        bar_init(bar_k + 8 * (uint32_t)lane, 1);
    bar_publish();
    if (threadIdx.x < 8)
        ((uint32_t *)(smem + MIRRORS))[threadIdx.x] = (threadIdx.x < 4 ? p.k : p.v).mirror[threadIdx.x % 4];
    plan_rows<D>(p, spans, (int *)(smem + SUMS));
    pdl_go();
    __syncthreads();
    const stretches cuts = stretches_of(p, plan_total(p, t));
    const int mine = cuts.joined ? (int)blockIdx.x * p.warps + warp : warp * (int)gridDim.x + (int)blockIdx.x;
    int at = cut(cuts, mine);
    const int hi = cut(cuts, mine + 1);
    bool join = false;

    uint32_t q[QUERY_WORDS(D, is_sign(KIND_K))];
    state<D> a;
    spot s;
    feed f;
    f.at = at;
    f.hi = hi;
    feed_seek<D>(p, t, f, lane);
    if (f.at < hi) {
        const uint8_t *from_k = feed_from<D>(f, p.k, f.k_at), *from_v = feed_from<D>(f, p.v, f.v_at);
#pragma unroll
        for (int i = 0; i < shape<D>::BLOCKS; i++)
            ask(at_k, from_k, p.k.block_bytes, i, bar_k);
#pragma unroll
        for (int i = 0; i < shape<D>::BLOCKS; i++)
            ask(at_v, from_v, p.v.block_bytes, i, bar_v);
    }
    if (book_tables(p)) /* while the first copies are under way */
        fill_books(smem + (table_at - base), p);
    if (p.k.kind == KIND_TRELLIS || p.v.kind == KIND_TRELLIS)
        fill_trellis(smem + (trellis_at - base), KIND_K == KIND_TRELLIS && KIND_V == KIND_TRELLIS);
    __syncthreads();
    pdl_wait(); /* the queries; everything else was there when the kernel that makes them began */
    while (at < hi) {
        s = spot_of(p, t, at, lane);
        const row_span row = spans[s.row];
        const int part = at >= s.exact, to = min(part ? s.end : s.exact, hi);
        const int first = s.in % p.head_tiles * p.heads, live = min(p.heads, p.group - first);
        const int head = row.token * p.h + kv_of(p, s.in) * p.group + first;
        state_clear(a);
        if (is_sign(KIND_K) && !part)
            load_sketch<KIND_K == KIND_SIGN>(p.sketch + (int64_t)head * SKETCH_WORDS, live, q, lane);
        else
            load_q<D>(p, part ? p.raw : p.turned, head, live, p.k.kind == KIND_TRELLIS && !part, q, lane);
        if (part) {
            exact_steps<D>(p, row, s, exact_at(p, s, at), exact_at(p, s, to), q, a, lane);
            at = to;
        }
        for (; at < to; at++) {
            float x[shape<D>::TILES][4];
            uint32_t w[shape<D>::TILES][2];
            feed_next<D>(p, t, f, lane);
            const bool more = f.at < hi;
            const uint8_t *from_k = feed_from<D>(f, p.k, f.k_at), *from_v = feed_from<D>(f, p.v, f.v_at);
#pragma unroll
            for (int i = 0; i < shape<D>::BLOCKS; i += WAIT) {
#pragma unroll
                for (int j = i; j < i + WAIT; j++)
                    bar_wait(bar_k + j * 16, phase);
#pragma unroll
                for (int j = i; j < i + WAIT; j++)
                    scores<D, KIND_K>(p.k, x + 2 * j, slot_k + j * p.k.block_bytes, q, table_k, mirror_at, lane);
                __syncwarp();
#pragma unroll
                for (int j = i; j < i + WAIT && more; j++)
                    ask(at_k, from_k, p.k.block_bytes, j, bar_k);
            }
            const int key = (at - s.first) * shape<D>::STEP;
            if (key + shape<D>::STEP - 1 > row.pos)
                mask_step<shape<D>::TILES>(x, key, row.pos, lane);
            softmax_step<D, shape<D>::TILES>(a, x, w, 8.0f);
#pragma unroll
            for (int i = 0; i < shape<D>::BLOCKS; i += WAIT) {
#pragma unroll
                for (int j = i; j < i + WAIT; j++)
                    bar_wait(bar_v + j * 16, phase);
#pragma unroll
                for (int j = i; j < i + WAIT; j++)
                    sums<D, KIND_V>(p.v, a.o, slot_v + j * p.v.block_bytes, w + 2 * j, table_v, mirror_at + 16,
                                    row.pos - key - PACK_BLOCK * j + 1, lane);
                __syncwarp();
#pragma unroll
                for (int j = i; j < i + WAIT && more; j++)
                    ask(at_v, from_v, p.v.block_bytes, j, bar_v);
            }
            phase ^= 1;
        }
        join = block_joins(p, t, s); /* the same for all warps of the block */
        float *piece = p.pieces + (size_t)(mine + 2 * unit_of(p, s) + part) * piece_size(D, p.heads);
        piece_store<D>(p, a, join ? (float *)slot_k : piece, p.v.kind == KIND_TRELLIS && !part, lane);
    }
    if (join)
        block_join<D>(p, smem, base, p.pieces + (size_t)(mine - warp + 2 * unit_of(p, s)) * piece_size(D, p.heads));
#endif
}

/* ---- before: sketches of queries (others: prep.cuh) ---- */

enum { SKETCH_HEADS = 4, SKETCH_DIM = 128, SKETCH_VALUES = 256 };

/* Sketches of SKETCH_HEADS (token, head)s by a block: a thread has one value of each, a warp a word of each bit. */
static __global__ void __launch_bounds__(SKETCH_VALUES) decode_sketch(decode_job p)
{
    __shared__ float x[SKETCH_DIM][SKETCH_HEADS], most[SKETCH_HEADS][8];
    __shared__ int sums[SKETCH_HEADS][8];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = (int)blockIdx.x * SKETCH_HEADS;
    const int n = min(SKETCH_HEADS, p.seqs.n_tokens * p.h - first);
    const float *column = p.k.s.param + threadIdx.x;
    float y[SKETCH_HEADS] = { 0.0f };
    pdl_wait();
    pdl_go();
    for (int i = threadIdx.x; i < SKETCH_HEADS * SKETCH_DIM; i += SKETCH_VALUES) {
        const int k = i / SKETCH_DIM, j = i % SKETCH_DIM, head = first + k;
        const float v = k < n ? p.q[head / p.h * p.ldq + head % p.h * p.gq + j] : 0.0f;
        x[j][k] = v;
        if (k < n)
            p.raw[(size_t)head * SKETCH_DIM + j] = query_half(v * p.scale * PREP_LOG2E);
    }
    __syncthreads();
#pragma unroll 32
    for (int i = 0; i < SKETCH_DIM; i++)
        for (int k = 0; k < SKETCH_HEADS; k++)
            y[k] += x[i][k] * column[i * SKETCH_VALUES];
    for (int k = 0; k < SKETCH_HEADS; k++) {
        const float top = warp_max(fabsf(y[k]));
        if (lane == 0)
            most[k][warp] = top;
    }
    __syncthreads();
    for (int k = 0; k < n; k++) {
        uint32_t *to = p.sketch + (size_t)(first + k) * SKETCH_WORDS;
        const float unit = fmaxf(warp_max(most[k][lane % 8]), 1e-30f) / ((1 << (SKETCH_BITS - 1)) - 1);
        const int v = __float2int_rn(y[k] / unit), sum = __reduce_add_sync(0xffffffffu, v);
        for (int b = 0; b < SKETCH_BITS; b++) {
            const uint32_t bits = __ballot_sync(0xffffffffu, v >> b & 1);
            if (lane == b)
                to[8 * b + warp] = bits;
        }
        if (lane == 0)
            sums[k][warp] = sum;
        y[k] = unit * p.scale * PREP_LOG2E * port_bits(0x3ba06c99u);
    }
    __syncthreads();
    for (int k = 0; k < n; k++)
        if (threadIdx.x == k) {
            uint32_t *to = p.sketch + (size_t)(first + k) * SKETCH_WORDS;
            int sum = 0;
            for (int i = 0; i < 8; i++)
                sum += sums[k][i];
            ((float *)to)[8 * SKETCH_BITS] = 2.0f * y[k];
            ((float *)to)[8 * SKETCH_BITS + 1] = -y[k] * (float)sum;
        }
}

/* ---- the host's side ---- */

static int kind_of(const side_dev &s, int role)
{
    pack_shape shape;
    switch (cuda_pack_class(s.fmt)) {
    case PACK_HALF: return KIND_HALF;
    case PACK_NONE: return -1;
    }
    if (!s.layout || !cuda_pack_shape(&s, role, &shape))
        return -1;
    switch (shape.cls) {
    case PACK_SYM4: return shape.rec == 128 ? KIND_LUT4_128 : KIND_LUT4_32;
    case PACK_LUT4: return shape.rec == 32 ? KIND_BOOK4_32 : -1;
    case PACK_LUT3: return KIND_LUT3_32;
    case PACK_INT8: return KIND_INT8;
    case PACK_TRELLIS: return KIND_TRELLIS;
    case PACK_SIGN: return KIND_SIGN;
    default: return KIND_FLOAT8;
    }
}

static bool side_fits(const side_dev &s, int role, int d, decode_side *out)
{
    pack_shape shape;
    out->s = s;
    out->kind = kind_of(s, role);
    if (out->kind < 0 || s.d != d || s.dp != d || ((s.page_bytes | s.head_bytes | (uintptr_t)s.pages) & 15))
        return false;
    if (out->kind == KIND_HALF)
        out->block_bytes = (uint32_t)(PACK_BLOCK * 2 * d);
    else
        out->block_bytes = cuda_pack_shape(&s, role, &shape) ? (uint32_t)shape.block_bytes : 0;
    return out->kind == KIND_HALF || s.tail;
}

bool decode_shape(const cuda_device *d, const kvant_attn_args *a, const side_dev &k, const side_dev &v, decode_job *p)
{
    memset(p, 0, sizeof *p);
    if (d->major != 9 || a->compute == KVANT_COMPUTE_F32 || a->d_k != a->d_v)
        return false;
    p->d = a->d_k;
    if ((p->d != 64 && p->d != 128 && p->d != 256) || !side_fits(k, PACK_K, p->d, &p->k) ||
        !side_fits(v, PACK_V, p->d, &p->v))
        return false;
    static_cast<attn_call &>(*p) = cuda_attn_call(a);
    p->group = a->h / a->h_kv;
    p->heads = p->group < DECODE_HEADS ? p->group : DECODE_HEADS;
    p->head_tiles = (p->group + p->heads - 1) / p->heads;
    if (p->k.kind == KIND_SIGN && p->heads > 4)
        p->k.kind = KIND_SIGN8;
    p->by_seq = a->seqs.n_tokens > a->seqs.n_seqs;
    p->n_rows = p->by_seq ? a->seqs.n_seqs : a->seqs.n_tokens;
    p->blocks = d->n_sm;
    fill_book(&p->k);
    fill_book(&p->v);
    p->exact_cost = p->d == 256 ? 2 : 1;
    for (p->warps = most_warps(p->d); p->warps > 0; p->warps -= 4)
        if (room_fits(p)) {
            p->share = (uint32_t)((1ull << 32) / ((uint64_t)p->blocks * p->warps));
            return true;
        }
    return false;
}

/* Where a unit has pieces of four blocks or more, and a slot has room for one. */
static bool joins(const decode_job &p)
{
    return p.blocks >= 4 * p.n_rows * units_per_row(p) && p.slot_bytes >= piece_size(p.d, p.heads) * sizeof(float);
}

/* Lays a launch's scratch out from `at` on (NULL: only counts); returns its bytes. */
static size_t place(decode_job *p, unsigned char *at)
{
    const size_t rows = p->n_rows < DECODE_ROWS ? (size_t)p->n_rows : DECODE_ROWS;
    const size_t pieces = (size_t)p->blocks * p->warps + 2 * rows * p->h_kv * p->head_tiles;
    const size_t heads = (size_t)p->seqs.n_tokens * p->h, raw = cuda_aligned(heads * p->d * 2);
    const size_t made = is_sign(p->k.kind) ? cuda_aligned(heads * SKETCH_WORDS * 4) : raw;
    p->raw = (uint16_t *)at;
    p->turned = (uint16_t *)(at + raw);
    p->sketch = (uint32_t *)(at + raw);
    p->pieces = (float *)(at + raw + made);
    return raw + made + cuda_aligned(pieces * piece_size(p->d, p->heads) * sizeof(float));
}

size_t decode_scratch(decode_job p)
{
    return place(&p, NULL);
}

/* Threads of a merging block: 7 pieces for each group of them, at least 4 groups. */
static int merge_threads(const decode_job &p)
{
    const int pieces = p.blocks * p.warps / (p.n_rows * units_per_row(p)) + 2, groups = (pieces + 6) / 7;
    const int most = 1024 / MERGE_LANES(p.d) < 32 ? 1024 / MERGE_LANES(p.d) : 32; /* a lane of merge_finish for each */
    return MERGE_LANES(p.d) * (groups <= 4 ? 4 : groups < most ? (groups + 3) / 4 * 4 : most);
}

template <int D, int KIND_K, int KIND_V> static void launch(cuda_device *d, const decode_job &p)
{
    const int threads = merge_threads(p);
    const size_t bytes = merge_bytes(D, threads);
    const dim3 merges((unsigned)p.heads, (unsigned)units_per_row(p), (unsigned)p.n_rows);
    cuda_smem(decode_kernel<D, KIND_K, KIND_V>, SMEM);
    cuda_launch(d, decode_kernel<D, KIND_K, KIND_V>, dim3((unsigned)p.blocks), (unsigned)p.warps * 32, SMEM, p);
    cuda_smem(decode_merge<D>, bytes);
    cuda_launch(d, decode_merge<D>, merges, (unsigned)threads, bytes, p);
}

#define KINDS(D, K, V)                                                                                                 \
    if (p.d == D && (K == KIND_COUNT || p.k.kind == K) && (V == KIND_COUNT || p.v.kind == V))                          \
    return launch<D, K, V>(d, p)

static void choose(cuda_device *d, const decode_job &p)
{
    KINDS(128, KIND_LUT4_32, KIND_LUT4_32);
    KINDS(128, KIND_LUT4_128, KIND_LUT4_128);
    KINDS(128, KIND_LUT3_32, KIND_LUT3_32);
    KINDS(128, KIND_TRELLIS, KIND_TRELLIS);
    KINDS(128, KIND_HALF, KIND_HALF);
    KINDS(128, KIND_SIGN, KIND_LUT3_32);
    KINDS(128, KIND_SIGN8, KIND_LUT3_32);
    KINDS(256, KIND_LUT4_32, KIND_LUT4_32);
    KINDS(256, KIND_LUT4_128, KIND_LUT4_128);
    KINDS(128, KIND_SIGN, KIND_COUNT);
    KINDS(128, KIND_SIGN8, KIND_COUNT);
    KINDS(64, KIND_COUNT, KIND_COUNT);
    KINDS(128, KIND_COUNT, KIND_COUNT);
    KINDS(256, KIND_COUNT, KIND_COUNT);
}

void decode_run(cuda_device *d, decode_job p)
{
    const int rows = p.n_rows;
    place(&p, d->scratch);
    if (is_sign(p.k.kind)) {
        const dim3 blocks(cuda_blocks((int64_t)p.seqs.n_tokens * p.h, SKETCH_HEADS));
        cuda_launch(d, decode_sketch, blocks, SKETCH_VALUES, 0, p);
    } else {
        const prep_job prep = { p.q,   p.raw,    p.turned, p.by_seq ? p.seqs.q0 : NULL, p.ldq, p.gq, rows * p.h,
                                p.h, p.scale * PREP_LOG2E, p.k.s };
        prep_run(d, p.d, prep);
    }
    for (p.row0 = 0; p.row0 < rows; p.row0 += DECODE_ROWS) {
        p.n_rows = rows - p.row0 < DECODE_ROWS ? rows - p.row0 : (int)DECODE_ROWS;
        p.join = joins(p);
        choose(d, p);
    }
}
