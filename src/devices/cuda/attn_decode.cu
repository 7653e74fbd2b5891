/* attn_decode.cu: decode attention on Hopper.  See attn_decode.cuh.
 *
 * K and V^T are the A operands of mma.m16n8k16 and the heads are its 8 columns.  Every warp has one slot of shared
 * memory for a step of K and one for V, filled by bulk copies: K is asked for again right after the scores, V right
 * after the sum, across units.  4-bit and 3-bit codes become pairs of halves by a table with a copy per lane: entry
 * e of lane l lies at 256*e + 4*l of a 64 KB aligned base, so one byte permute makes an address.  K's scales
 * multiply scores, V's the probabilities.  The maximum is lazy: sums are rescaled only when it grows by more than 8
 * (in log2). */
#include "devices/cuda/attn_decode.cuh"
#include "devices/cuda/decode_step.cuh"
#include "devices/cuda/prep.cuh"

enum { QUAD = 4, MAX_WARPS = 12, SMEM = 227 * 1024, TABLE = 65536, BARS = 512, MIRRORS = 448, SPANS = 192 };
#define STEP_BLOCKS(d) ((d) == 256 ? 1u : 2u)

/* ---- rows and units ---- */

static __device__ row_span span_of(const decode_job &p, int row)
{
    row_span o;
    if (p.by_seq) { /* only sequences with one token */
        o.seq = row;
        o.token = p.seqs.q0[row];
        if (p.seqs.q0[row + 1] - o.token != 1) {
            o.token = -1;
            return o;
        }
    } else {
        o.token = row;
        o.seq = row < p.seqs.n_seqs && p.seqs.q0[row] == row && p.seqs.q0[row + 1] > row ? row : seq_of(p.seqs, row);
    }
    o.pos = p.seqs.pos0[o.seq] + o.token - p.seqs.q0[o.seq];
    o.now = o.pos / KVANT_PAGE;
    o.encoded = o.now + 1;
    const bool tail = p.k.s.tail || p.v.s.tail;
    while (tail && o.encoded > 0 && o.now - o.encoded + 1 < p.tail_pages &&
           p.seqs.tail_table[(size_t)o.seq * p.seqs.stride + o.encoded - 1] >= 0)
        o.encoded--;
    return o;
}

/* Tables: the code books of both sides share one; the trellis' 512 entries, 128 bytes apart, take one. */
static __host__ __device__ inline int book_tables(const decode_job &p)
{
    return p.k.kind <= KIND_LUT3_32 || p.v.kind <= KIND_LUT3_32;
}

static __host__ __device__ inline int tables(const decode_job &p)
{
    return book_tables(p) + (p.k.kind == KIND_TRELLIS || p.v.kind == KIND_TRELLIS);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

/* Row `row` of exact page j as f16: the tail, or f16 pages. */
static __device__ __forceinline__ const uint8_t *exact_rows(const decode_job &p, const decode_side &s, int seq, int j,
                                                            int kv)
{
    const size_t at = (size_t)seq * p.seqs.stride + j;
    if (s.s.tail)
        return (const uint8_t *)side_tail_row(s.s, p.seqs.tail_table[at], p.h_kv, kv, 0);
    return side_row(s.s, p.seqs.table[at], kv, 0);
}

/* The place of a unit in the order slot, row, KV head, tile of its heads; a step between units in the same base. */
typedef struct place_of {
    int slot, row, kv, tile;
} place_of;

typedef struct unit {
    place_of at;
    int token, steps; /* steps of this warp; token -1: no more units */
    int ids;          /* lane i: page id of this warp's i-th page; slot 0: the sequence */
    int first, pos;   /* page number of its first page; position of the row */
} unit;

/* ---- the kernel ---- */

/* W values per head; mix: the trellis' order of values. */
template <int W>
static __device__ __forceinline__ void load_q(const decode_job &p, const uint16_t *from, const unit &u, bool mix,
                                              uint32_t *q, int lane)
{
    const int i = u.at.tile * p.heads + lane / 4;
    const bool live = lane / 4 < p.heads && i < p.group;
    const int64_t head = (int64_t)u.token * p.h + u.at.kv * p.group + (live ? i : 0);
    const uint4 *at = (const uint4 *)(from + head * W);
#pragma unroll
    for (int c = 0; c < W / 32; c++) {
        const uint4 v = live ? at[mix ? c / 4 * 16 + lane % 4 * 4 + c % 4 : 4 * c + lane % 4] : make_uint4(0, 0, 0, 0);
        q[4 * c] = v.x;
        q[4 * c + 1] = v.y;
        q[4 * c + 2] = v.z;
        q[4 * c + 3] = v.w;
    }
}

static __device__ __forceinline__ place_of place_number(const decode_job &p, int n)
{
    place_of o;
    o.tile = n % p.head_tiles;
    n /= p.head_tiles;
    o.kv = n % p.h_kv;
    n /= p.h_kv;
    o.row = n % p.n_rows;
    o.slot = n / p.n_rows;
    return o;
}

static __device__ __forceinline__ void place_add(const decode_job &p, place_of &a, const place_of &by)
{
    a.tile += by.tile;
    int carry = a.tile >= p.head_tiles;
    a.tile -= carry ? p.head_tiles : 0;
    a.kv += by.kv + carry;
    carry = a.kv >= p.h_kv;
    a.kv -= carry ? p.h_kv : 0;
    a.row += by.row + carry;
    carry = a.row >= p.n_rows;
    a.row -= carry ? p.n_rows : 0;
    a.slot += by.slot + carry;
}

/* The first unit from `at` on, `by` apart, that has something to read. */
template <int D>
static __device__ __forceinline__ unit unit_from(const decode_job &p, const row_span *spans, place_of at,
                                                 const place_of &by, int warp, int lane)
{
    unit o;
    o.token = -1;
    o.steps = 0;
    for (; at.slot < p.n_slot; place_add(p, at, by)) {
        const row_span s = at.row < SPANS ? spans[at.row] : span_of(p, at.row);
        const int first = (at.slot - 1) * DECODE_SPLIT_PAGES;
        if (s.token < 0 || (at.slot == 0 ? s.encoded > s.now : first >= s.encoded))
            continue;
        o.at = at;
        o.token = s.token;
        o.pos = s.pos;
        if (at.slot > 0) {
            const int left = min(s.encoded - first, (int)DECODE_SPLIT_PAGES) - warp;
            const int pages = left > 0 ? (left + QUAD - 1) / QUAD : 0;
            o.first = first + warp;
            o.steps = pages * shape<D>::PER_PAGE;
            o.ids = lane < pages ? p.seqs.table[(size_t)s.seq * p.seqs.stride + o.first + lane * QUAD] : 0;
        } else {
            o.first = s.encoded;
            o.ids = s.seq;
        }
        break;
    }
    return o;
}

static __device__ __forceinline__ int64_t unit_index(const decode_job &p, const place_of &u)
{
    return ((int64_t)(u.row * p.h_kv + u.kv) * p.head_tiles + u.tile) * p.n_slot + u.slot;
}

/* Asks for a block of step i of a unit: its K, or its V; the barriers of blocks are 16 bytes apart. */
template <int D> static __device__ __forceinline__ uint64_t step_page(const unit &u, int i)
{
    return (uint32_t)__shfl_sync(0xffffffffu, u.ids, i / shape<D>::PER_PAGE);
}

template <int D>
static __device__ __forceinline__ void ask(uint32_t slot, const decode_side &s, int kv, uint64_t page, int i, int block,
                                           uint32_t bar)
{
    const uint32_t in = (uint32_t)kv * (uint32_t)s.s.head_bytes +
                        (uint32_t)(i % shape<D>::PER_PAGE * shape<D>::BLOCKS + block) * s.block_bytes;
    bulk_copy(slot + (uint32_t)block * s.block_bytes, s.s.pages + page * (uint32_t)s.s.page_bytes + in, s.block_bytes,
              bar + (uint32_t)block * 16);
}

/* ---- a quad's four states to one, in the order of its warps ---- */

template <int D> struct rooms {
    static constexpr int STATE = (D / 4 + 4) * 32; /* floats of a stored state */
};

template <int D> static __device__ __forceinline__ void state_store(const state<D> &a, float *to, int lane)
{
    float4 *at = (float4 *)to + lane;
    at[0] = make_float4(a.m[0], a.m[1], a.l[0], a.l[1]);
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        at[32 * i + 32] = make_float4(a.o[i][0], a.o[i][1], a.o[i][2], a.o[i][3]);
}

/* Factors of a state and of another one that joins it; a gets the common maximum and weight. */
template <int D>
static __device__ __forceinline__ void state_meet(state<D> &a, float m0, float m1, float l0, float l1, float *mine,
                                                  float *theirs)
{
    const float m[2] = { m0, m1 }, l[2] = { l0, l1 };
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float top = fmaxf(a.m[i], m[i]);
        mine[i] = exp2_fast(a.m[i] - top);
        theirs[i] = exp2_fast(m[i] - top);
        a.m[i] = top;
        a.l[i] = fmaf(l[i], theirs[i], a.l[i] * mine[i]);
    }
}

template <int D> static __device__ __forceinline__ void state_join(state<D> &a, const state<D> &b)
{
    float mine[2], theirs[2];
    state_meet<D>(a, b.m[0], b.m[1], b.l[0], b.l[1], mine, theirs);
#pragma unroll
    for (int i = 0; i < D / 4; i++)
        a.o[i / 4][i % 4] = fmaf(b.o[i / 4][i % 4], theirs[i & 1], a.o[i / 4][i % 4] * mine[i & 1]);
}

template <int D> static __device__ __forceinline__ void state_join_room(state<D> &a, const float *from, int lane)
{
    const float4 *at = (const float4 *)from + lane, h = at[0];
    float mine[2], theirs[2];
    state_meet<D>(a, h.x, h.y, h.z, h.w, mine, theirs);
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const float4 o = at[32 * i + 32];
        a.o[i][0] = fmaf(o.x, theirs[0], a.o[i][0] * mine[0]);
        a.o[i][1] = fmaf(o.y, theirs[1], a.o[i][1] * mine[1]);
        a.o[i][2] = fmaf(o.z, theirs[0], a.o[i][2] * mine[0]);
        a.o[i][3] = fmaf(o.w, theirs[1], a.o[i][3] * mine[1]);
    }
}

template <int D>
static __device__ __forceinline__ void state_write(const decode_job &p, const unit &u, state<D> &a, int lane)
{
    const int64_t at = unit_index(p, u.at) * DECODE_HEADS;
    const bool mix = p.v.kind == KIND_TRELLIS && u.at.slot > 0; /* the trellis' order of values */
    const int head = lane % 4 * 2;
#pragma unroll
    for (int m = 4; m <= 16; m *= 2) {
        a.l[0] += __shfl_xor_sync(0xffffffffu, a.l[0], m);
        a.l[1] += __shfl_xor_sync(0xffffffffu, a.l[1], m);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (head + i >= p.heads)
            continue;
        if (lane / 4 == 0)
            *(float2 *)(p.ml + (at + head + i) * 2) = make_float2(a.m[i], a.l[i]);
        float4 *to = (float4 *)(p.part + (at + head + i) * D);
#pragma unroll
        for (int c = 0; c < D / 32; c++)
            to[mix ? c / 4 * 32 + lane / 4 * 4 + c % 4 : 8 * c + lane / 4] = make_float4(
                a.o[2 * c][i], a.o[2 * c][2 + i], a.o[2 * c + 1][i], a.o[2 * c + 1][2 + i]);
    }
}

/* One warp of the four, in turn, joins the states and writes; the others leave theirs in three rooms and go on.
 * full, empty: mbarriers of the rooms; n: units that the quad has finished. */
template <int D>
static __device__ __forceinline__ void quad_finish(const decode_job &p, const unit &u, const state<D> &a, float *room,
                                                   uint32_t full, uint32_t empty, uint32_t n, int warp, int lane)
{
    const int leader = (int)(n % QUAD);
    if (warp != leader) {
        if (n > 0)
            bar_wait(empty, (n - 1) & 1);
        state_store<D>(a, room + (warp < leader ? warp : warp - 1) * rooms<D>::STATE, lane);
        __syncwarp();
        if (lane == 0)
            bar_arrive(full);
        return;
    }
    state<D> b;
    state_clear<D>(b);
    if (n > 0)
        bar_wait(empty, (n - 1) & 1); /* keeps this warp from running two units ahead */
    bar_wait(full, n & 1);
#pragma unroll
    for (int i = 0; i < QUAD - 1; i++) {
        if (i == leader)
            state_join<D>(b, a);
        state_join_room<D>(b, room + i * rooms<D>::STATE, lane);
    }
    if (leader == QUAD - 1)
        state_join<D>(b, a);
    __syncwarp();
    if (lane == 0)
        bar_arrive(empty);
    state_write<D>(p, u, b, lane);
}

/* The exact pages of a row: warp w takes tokens 16w .. 16w + 15 of each. */
template <int D>
static __device__ __forceinline__ void tail_unit(const decode_job &p, const unit &u, state<D> &a, int warp, int lane)
{
    uint32_t q[D / 8], w[1][2];
    float s[1][4];
    load_q<D>(p, p.qraw, u, false, q, lane);
    for (int j = u.first; j <= u.pos / KVANT_PAGE; j++) {
        const int kv = u.at.kv, key = j * KVANT_PAGE + 16 * warp;
        if (key > u.pos)
            break;
        scores_half<D, 1>(s, exact_rows(p, p.k, u.ids, j, kv) + 32 * D * warp, q, lane);
        if (key + 15 > u.pos)
            mask_step<1>(s, key, u.pos, lane);
        softmax_step<D, 1>(a, s, w, 8.0f);
        sums_half<D, 1>(a.o, exact_rows(p, p.v, u.ids, j, kv) + 32 * D * warp, w, u.pos - key + 1, lane);
    }
}

/* Fills `rows` rows of 128 bytes, `apart` bytes apart; eight threads write a row. */
template <typename F> static __device__ __forceinline__ void fill_rows(uint8_t *table, int rows, int apart, F value)
{
    for (int i = threadIdx.x; i < rows * 8; i += blockDim.x) {
        const uint32_t v = value(i / 8);
        *(uint4 *)(table + i / 8 * apart + i % 8 * 16) = make_uint4(v, v, v, v);
    }
}

/* book: room for 16 halves. */
static __device__ void fill_books(uint8_t *table, const decode_side &k, const decode_side &v, uint16_t (*book)[16],
                                  uint8_t *mirror)
{
    const int which = threadIdx.x / 16, code = threadIdx.x % 16;
    if (which < 2)
        book[which][code] = __half_as_ushort(__float2half_rn(lut_value(which ? v.s.fmt : k.s.fmt, code)));
    __syncthreads();
    if (threadIdx.x < 32) {
        const decode_side &s = which ? v : k;
        mirror[threadIdx.x] = mirror_byte(s.s.fmt, s.kind == KIND_LUT3_32 ? 3 : 4, code);
    }
    for (int side = 0; side < 2; side++) {
        const int kind = side ? v.kind : k.kind, bits = kind == KIND_LUT3_32 ? 3 : 4, mask = (1 << bits) - 1;
        const uint16_t *from = book[side];
        if (kind <= KIND_LUT3_32)
            fill_rows(table + side * 128, 256, 256,
                      [=](int e) { return (uint32_t)from[e & mask] | (uint32_t)from[e >> bits & mask] << 16; });
    }
}

static __device__ void fill_trellis(uint8_t *table)
{
    fill_rows(table, 512, 128, [](int e) { return pack_halves(fmt_c_tcq[e], 0.0f); });
}

/* Compiled for a kind, or for any (KIND_COUNT): then the launch-uniform number chooses. */
#define CASE(KIND, is, number) (KIND == (number) || (KIND == KIND_COUNT && (is) == (number)))

template <int D, int KIND>
static __device__ __forceinline__ void scores(const decode_side &side, float (*s)[4], const uint8_t *slot,
                                              const uint32_t *q, uint32_t table, uint32_t mirror, int lane)
{
    if (KIND == KIND_SIGN)
        scores_sign(s, slot, q, lane);
    else if (D >= 128 && CASE(KIND, side.kind, KIND_TRELLIS))
        scores_trellis < D<128 ? 128 : D>(s, slot, q, table, lane);
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
        sums_trellis < D<128 ? 128 : D>(o, slot, p, table, lane);
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

/* Where a warp's slots lie: outside the tables. */
static __host__ __device__ inline size_t room_bytes(int d, int warps)
{
    return BARS + SPANS * sizeof(row_span) + (size_t)warps / QUAD * 3 * (d / 4 + 4) * 32 * sizeof(float);
}

/* Offset of warp w's slots from `base` (a shared address); base + SMEM is the end. */
static __host__ __device__ inline uint32_t slot_at(const decode_job &p, uint32_t base, int w)
{
    const uint32_t bytes = (STEP_BLOCKS(p.d) * (p.k.block_bytes + p.v.block_bytes) + 127) & ~127u,
                   low = (uint32_t)room_bytes(p.d, p.warps);
    const uint32_t from = ((base + low + 127) & ~127u) - base;
    if (!tables(p))
        return from + (uint32_t)w * bytes;
    const uint32_t end = ((base + TABLE - 1) & ~(TABLE - 1u)) - base + TABLE * (uint32_t)tables(p);
    const uint32_t high = (SMEM - end) / bytes;
    return (uint32_t)w < high ? end + (uint32_t)w * bytes : from + ((uint32_t)w - high) * bytes;
}

template <int D, int KIND_K, int KIND_V>
static __global__ void __launch_bounds__(D == 256 ? 256 : MAX_WARPS * 32, 1) decode_kernel(decode_job p)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr int WIDTH = KIND_K == KIND_SIGN ? 256 : D;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = warp / QUAD, in = warp % QUAD;
    const uint32_t base = shared_at(smem), table_at = (base + TABLE - 1) & ~(TABLE - 1u);
    row_span *spans = (row_span *)(smem + BARS);
    float *room = (float *)(smem + BARS + SPANS * sizeof(row_span)) + quad * 3 * rooms<D>::STATE;
    const uint32_t bar_k = base + (uint32_t)warp * 32, bar_v = bar_k + 8;
    const uint32_t full = base + MAX_WARPS * 32 + (uint32_t)quad * 16, empty = full + 8;
    uint8_t *slot_k = smem + slot_at(p, base, warp), *slot_v = slot_k + shape<D>::BLOCKS * p.k.block_bytes;
    const uint32_t trellis_at = table_at + TABLE * (uint32_t)book_tables(p), at = (uint32_t)lane * 4;
    const uint32_t table_k = p.k.kind == KIND_TRELLIS ? trellis_at + at : table_at + at;
    const uint32_t table_v = p.v.kind == KIND_TRELLIS ? trellis_at + at : table_at + 128 + at;
    const uint32_t at_k = shared_at(slot_k), at_v = shared_at(slot_v);
    const uint32_t mirror_at = base + MIRRORS;
    uint32_t phase = 0, done = 0;
    bool asked = false, have_q = false;

    pdl_go();
    if (lane == 0) {
        for (uint32_t i = 0; i < 4; i++)
            bar_init(bar_k + 8 * i, 1);
        if (in == 0) {
            bar_init(full, QUAD - 1);
            bar_init(empty, 1);
        }
        bar_publish();
    }
    for (int i = threadIdx.x; i < SPANS && i < p.n_rows; i += blockDim.x)
        spans[i] = span_of(p, i);
    if (book_tables(p))
        fill_books(smem + (table_at - base), p.k, p.v, (uint16_t(*)[16])(spans + SPANS), smem + MIRRORS);
    if (p.k.kind == KIND_TRELLIS || p.v.kind == KIND_TRELLIS)
        fill_trellis(smem + (trellis_at - base));
    __syncthreads();

    const place_of by = place_number(p, (int)(gridDim.x * blockDim.x / (QUAD * 32)));
    unit u = unit_from<D>(p, spans, place_number(p, (int)(blockIdx.x + quad * gridDim.x)), by, in, lane);
    uint32_t q[WIDTH / 8];
    while (u.token >= 0) {
        place_of then_at = u.at;
        place_add(p, then_at, by);
        const unit next = unit_from<D>(p, spans, then_at, by, in, lane);
        state<D> a;

        state_clear<D>(a);
        if (u.steps > 0 && !asked) {
            const uint64_t page = step_page<D>(u, 0);
            if (lane == 0) {
#pragma unroll
                for (int b = 0; b < shape<D>::BLOCKS; b++)
                    ask<D>(at_k, p.k, u.at.kv, page, 0, b, bar_k);
#pragma unroll
                for (int b = 0; b < shape<D>::BLOCKS; b++)
                    ask<D>(at_v, p.v, u.at.kv, page, 0, b, bar_v);
            }
        }
        asked = u.steps > 0 && next.steps > 0;
        if (done == 0)
            pdl_wait(); /* decode_prep has written the queries */
        if (u.at.slot == 0)
            tail_unit<D>(p, u, a, in, lane);
        else if (!have_q)
            load_q<WIDTH>(p, p.qp, u, p.k.kind == KIND_TRELLIS, q, lane);
        for (int i = 0; i < u.steps; i++) {
            float s[shape<D>::TILES][4];
            uint32_t w[shape<D>::TILES][2];
            const bool last = i + 1 == u.steps, more = !last || next.steps > 0;
            const int then = last ? 0 : i + 1;
            const uint64_t page = last ? step_page<D>(next, 0) : step_page<D>(u, then);

            const int kv = last ? next.at.kv : u.at.kv;

#pragma unroll
            for (int b = 0; b < shape<D>::BLOCKS; b++) {
                bar_wait(bar_k + b * 16, phase);
                scores<D, KIND_K>(p.k, s + 2 * b, slot_k + b * p.k.block_bytes, q, table_k, mirror_at, lane);
                __syncwarp();
                if (more && lane == 0)
                    ask<D>(at_k, p.k, kv, page, then, b, bar_k);
            }
            if (last && next.token >= 0)
                load_q<WIDTH>(p, p.qp, next, p.k.kind == KIND_TRELLIS, q, lane);
            const int key = (u.first + i / shape<D>::PER_PAGE * QUAD) * KVANT_PAGE +
                            i % shape<D>::PER_PAGE * shape<D>::STEP;
            if (key + shape<D>::STEP - 1 > u.pos)
                mask_step<shape<D>::TILES>(s, key, u.pos, lane);
            softmax_step<D, shape<D>::TILES>(a, s, w, 8.0f);
#pragma unroll
            for (int b = 0; b < shape<D>::BLOCKS; b++) {
                bar_wait(bar_v + b * 16, phase);
                sums<D, KIND_V>(p.v, a.o, slot_v + b * p.v.block_bytes, w + 2 * b, table_v, mirror_at + 16,
                                u.pos - key - PACK_BLOCK * b + 1, lane);
                __syncwarp();
                if (more && lane == 0)
                    ask<D>(at_v, p.v, kv, page, then, b, bar_v);
            }
            phase ^= 1;
        }
        have_q = u.steps > 0;
        quad_finish<D>(p, u, a, room, full, empty, done++, in, lane);
        u = next;
    }
#endif
}

/* ---- before: queries to halves; after: the merge ---- */

/* A warp per head, where the rotation is one of warp_rotate's. */
template <int V> static __global__ void __launch_bounds__(128) decode_prep_warp(decode_job p)
{
    const int i = (int)blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (i < p.n_rows && lane == 0)
        p.spans[i] = span_of(p, i);
    pdl_go();
    if (i >= p.seqs.n_tokens * p.h)
        return;
    const float by = p.scale * PREP_LOG2E;
    warp_prep<V>(p.k.s.space, p.q + (int64_t)(i / p.h) * p.ldq + (int64_t)(i % p.h) * p.gq, by, by * side_scale(p.k.s),
                 p.qraw + (size_t)i * p.d, p.qp + (size_t)i * p.d, lane);
}

static __global__ void decode_prep(decode_job p)
{
    __shared__ float x[KVANT_MAX_HEAD_DIM], y[2 * KVANT_MAX_HEAD_DIM];
    const float *from = p.q + (int64_t)(blockIdx.x / p.h) * p.ldq + (int64_t)(blockIdx.x % p.h) * p.gq;
    const bool sign = p.k.kind == KIND_SIGN;
    if (threadIdx.x == 0 && blockIdx.x < (unsigned)p.n_rows)
        p.spans[blockIdx.x] = span_of(p, blockIdx.x);
    pdl_go();
    const float by = p.scale * PREP_LOG2E, by_k = by * (sign ? port_bits(0x3ba06c99u) : side_scale(p.k.s));
    const size_t at = (size_t)blockIdx.x * p.d, at_k = (size_t)blockIdx.x * p.k.s.sdim;
    for (int j = threadIdx.x; j < p.d; j += blockDim.x) {
        x[j] = from[j];
        p.qraw[at + j] = query_half(x[j] * by);
    }
    space_prep(p.k.s, x, y);
    for (int j = threadIdx.x; j < p.k.s.sdim; j += blockDim.x) {
        const int kt = j / 32 * 2 + j % 8 / 4, t = j / 8 % 4; /* the order of scores_sign's operands */
        const int from_sign = 64 * t + 32 * (kt / 8) + 16 * (j % 2) + 2 * (kt % 8) + j % 4 / 2;
        p.qp[at_k + j] = query_half(y[sign ? from_sign : j] * by_k);
    }
}

enum { MERGE_MOST = 512 };

/* One block per (row, head): its slots in ascending order within each of threads*4/d groups, the groups in order. */
static __global__ void __launch_bounds__(MERGE_MOST) decode_merge(decode_job p)
{
    extern __shared__ float weight[]; /* [n_slot] */
    __shared__ __align__(16) float sum[MERGE_MOST * 4];
    __shared__ float acc[KVANT_MAX_HEAD_DIM], x[KVANT_MAX_HEAD_DIM], red[MERGE_MOST / 32];
    const int threads = (int)blockDim.x;
    const int row = blockIdx.x / p.h, head = blockIdx.x % p.h, i = head % p.group;
    const int tile = head / p.group * p.head_tiles + i / p.heads, h = i % p.heads;
    pdl_wait();
    const row_span s = p.spans[row];
    if (s.token < 0)
        return;
    const int n = 1 + (s.encoded + DECODE_SPLIT_PAGES - 1) / DECODE_SPLIT_PAGES, from = s.encoded > s.now;
    const int64_t at = (int64_t)(row * p.h_kv * p.head_tiles + tile) * p.n_slot * DECODE_HEADS + h;
    const int cols = p.d / 4, groups = threads / cols, col = threadIdx.x % cols, g = threadIdx.x / cols;
    float top = NOTHING, total = 0.0f;

    for (int k = from + threadIdx.x; k < n; k += threads)
        top = fmaxf(top, p.ml[(at + (int64_t)k * DECODE_HEADS) * 2]);
    top = warp_max(top);
    if (threadIdx.x % 32 == 0)
        red[threadIdx.x / 32] = top;
    __syncthreads();
    for (int k = 0; k < threads / 32; k++)
        top = fmaxf(top, red[k]);
    for (int k = from + threadIdx.x; k < n; k += threads)
        weight[k] = exp2f(p.ml[(at + (int64_t)k * DECODE_HEADS) * 2] - top);
    __syncthreads();
    for (int k = from + threadIdx.x; k < n; k += threads)
        total = fmaf(weight[k], p.ml[(at + (int64_t)k * DECODE_HEADS) * 2 + 1], total);
    total = warp_sum(total);
    if (threadIdx.x % 32 == 0)
        red[threadIdx.x / 32] = total;
    __syncthreads();
    total = 0.0f;
    for (int k = 0; k < threads / 32; k++)
        total += red[k];
    const float inv = 1.0f / total, by = inv * side_scale(p.v.s);

    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int k = 1 + g; k < n; k += groups) {
        const float4 o = *(const float4 *)(p.part + (at + (int64_t)k * DECODE_HEADS) * p.d + 4 * col);
        const float w = weight[k];
        v.x = fmaf(w, o.x, v.x);
        v.y = fmaf(w, o.y, v.y);
        v.z = fmaf(w, o.z, v.z);
        v.w = fmaf(w, o.w, v.w);
    }
    ((float4 *)sum)[threadIdx.x] = v;
    __syncthreads();
    for (int e = threadIdx.x; e < p.d; e += threads) {
        float y = 0.0f;
        for (int k = 0; k < groups; k++)
            y += sum[k * p.d + e];
        acc[e] = y * by;
    }
    space_finish(p.v.s, acc, x);
    for (int e = threadIdx.x; e < p.d; e += threads) {
        const float exact = from == 0 ? weight[0] * p.part[at * p.d + e] * inv : 0.0f;
        p.out[(int64_t)s.token * p.ldo + (int64_t)head * p.d + e] = x[e] + exact;
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
    p->seqs = cuda_seqs(&a->seqs);
    p->q = a->q;
    p->out = a->out;
    p->ldq = a->ldq;
    p->gq = a->gq;
    p->ldo = a->ldo;
    p->h = a->h;
    p->h_kv = a->h_kv;
    p->group = a->h / a->h_kv;
    p->heads = p->group < DECODE_HEADS ? p->group : DECODE_HEADS;
    p->head_tiles = (p->group + p->heads - 1) / p->heads;
    p->by_seq = a->seqs.n_tokens > a->seqs.n_seqs;
    p->n_rows = p->by_seq ? a->seqs.n_seqs : a->seqs.n_tokens;
    p->n_slot = a->max_pos / KVANT_SPLIT + 2;
    p->tail_pages = a->tail_pages;
    p->scale = a->scale;
    for (p->warps = p->d == 256 ? 8 : MAX_WARPS; p->warps > 0; p->warps -= QUAD) {
        const uint32_t base = 1024, bytes = STEP_BLOCKS(p->d) * (p->k.block_bytes + p->v.block_bytes);
        const bool table = tables(*p) > 0;
        uint32_t end = 0, low = 0;
        for (int w = 0; w < p->warps; w++) {
            const uint32_t at = slot_at(*p, base, w);
            if (table && at < TABLE)
                low = at + bytes > low ? at + bytes : low;
            end = at + bytes > end ? at + bytes : end;
        }
        if (end <= SMEM && base + low <= TABLE && room_bytes(p->d, p->warps) <= TABLE - base)
            return true;
    }
    return false;
}

size_t decode_scratch(const decode_job &p)
{
    const size_t rows = (size_t)p.seqs.n_tokens, units = (size_t)p.n_rows * p.h_kv * p.head_tiles * p.n_slot;
    return cuda_aligned(rows * p.h * p.k.s.sdim * 2) + cuda_aligned(rows * p.h * p.d * 2) +
           cuda_aligned(units * DECODE_HEADS * 8) + cuda_aligned(units * DECODE_HEADS * p.d * 4) +
           cuda_aligned((size_t)p.n_rows * sizeof(row_span));
}

static void place(decode_job *p, unsigned char *at)
{
    const size_t rows = (size_t)p->seqs.n_tokens, units = (size_t)p->n_rows * p->h_kv * p->head_tiles * p->n_slot;
    p->qp = (uint16_t *)at;
    at += cuda_aligned(rows * p->h * p->k.s.sdim * 2);
    p->qraw = (uint16_t *)at;
    at += cuda_aligned(rows * p->h * p->d * 2);
    p->ml = (float *)at;
    at += cuda_aligned(units * DECODE_HEADS * 8);
    p->part = (float *)at;
    at += cuda_aligned(units * DECODE_HEADS * p->d * 4);
    p->spans = (row_span *)at;
}

/* Launches a kernel that waits for the one before it by pdl_wait. */
static void launch_after(cuda_device *d, void (*kernel)(decode_job), unsigned blocks, unsigned threads, size_t smem,
                         const decode_job &p)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute a = {};
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
    c.gridDim = dim3(blocks);
    c.blockDim = dim3(threads);
    c.dynamicSmemBytes = smem;
    c.stream = d->stream;
    c.attrs = &a;
    c.numAttrs = 1;
    cudaLaunchKernelEx(&c, kernel, p);
}

template <int D, int KIND_K, int KIND_V> static void launch(cuda_device *d, const decode_job &p)
{
    cuda_smem(decode_kernel<D, KIND_K, KIND_V>, SMEM);
    launch_after(d, decode_kernel<D, KIND_K, KIND_V>, (unsigned)d->n_sm, (unsigned)p.warps * 32, SMEM, p);
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
    KINDS(128, KIND_SIGN, KIND_LUT3_32);
    KINDS(256, KIND_LUT4_32, KIND_LUT4_32);
    KINDS(256, KIND_LUT4_128, KIND_LUT4_128);
    KINDS(128, KIND_SIGN, KIND_COUNT);
    KINDS(64, KIND_COUNT, KIND_COUNT);
    KINDS(128, KIND_COUNT, KIND_COUNT);
    KINDS(256, KIND_COUNT, KIND_COUNT);
}

void decode_run(cuda_device *d, decode_job p)
{
    const unsigned heads = (unsigned)(p.seqs.n_tokens * p.h);
    place(&p, d->scratch);
    if (p.k.s.space == SPACE_SKETCH)
        decode_prep<<<heads, 64, 0, d->stream>>>(p);
    else if (p.d == 64)
        decode_prep_warp<2><<<(heads + 3) / 4, 128, 0, d->stream>>>(p);
    else if (p.d == 128)
        decode_prep_warp<4><<<(heads + 3) / 4, 128, 0, d->stream>>>(p);
    else
        decode_prep_warp<8><<<(heads + 3) / 4, 128, 0, d->stream>>>(p);
    choose(d, p);
    launch_after(d, decode_merge, (unsigned)(p.n_rows * p.h), p.n_slot > 100 ? MERGE_MOST : 128,
                 (size_t)p.n_slot * sizeof(float), p);
}
