/* decode_warp.cuh: what a warp of the decode kernels has in its block's shared memory, and one step of its work.
 *
 * K and V^T are the A operands of mma.m16n8k16 and the heads are its 8 columns.  Every warp has one slot of shared
 * memory for a step of K and one for V: K is asked for again right after the scores, V right after the sum.  4-bit and
 * 3-bit codes become pairs of halves by a table with a copy per lane: entry e of lane l lies at 256*e + 4*l, so one
 * byte permute makes an address.  K's scales multiply scores, V's the probabilities.
 * The maximum is lazy: sums are rescaled only when it grows by more than 8 (in log2). */
#ifndef KVANT_CUDA_DECODE_WARP_CUH
#define KVANT_CUDA_DECODE_WARP_CUH

#include "devices/cuda/attn/decode/decode_merge.cuh"
#include "devices/cuda/attn/decode/decode_page.cuh"
#include "devices/cuda/attn/decode/decode_room.cuh"

/* Words of a head's sketch: 8 for each bit of its values, then twice their unit and their sum. */
enum { SKETCH_WORDS = 8 * SKETCH_BITS + 4 };

/* Words of a lane's queries: operands; of sketches see scores_sign. */
#define QUERY_WORDS(D, KIND)                                                                                           \
    (is_sign(KIND) ? 2 * SKETCH_BITS + 4 : (D) / 8 * parts_of(KIND) + ((KIND) == KIND_LUT4_RESIDUAL ? (D) / 64 : 0))

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
    for (int i = 0; i < 2; i++) {
        const uint32_t *end = from + (lane % 4 * 2 + i) * SKETCH_WORDS + 8 * SKETCH_BITS;
        const float twice = lane % 4 * 2 + i < live ? __uint_as_float(end[0]) : 0.0f;
        const int sum = lane % 4 * 2 + i < live ? (int)end[1] : 0;
        q[2 * SKETCH_BITS + i] = __float_as_uint(twice);
        q[2 * SKETCH_BITS + 2 + i] = __float_as_uint(-0.5f * twice * (float)sum);
    }
}

/* Operands of a unit's queries, one of PARTS parts; mixed: in the trellis' order of values. */
template <int D, int PARTS>
static __device__ __forceinline__ void load_q(const decode_job &p, const uint16_t *from, int head, int live, bool mixed,
                                              uint32_t *q, int lane)
{
    const uint4 *at = (const uint4 *)(from + (int64_t)(head + lane / 4) * D);
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
        const uint4 v = lane / 4 < live ? at[mixed ? c / 4 * 16 + lane % 4 * 4 + c % 4 : 4 * c + lane % 4]
                                        : make_uint4(0, 0, 0, 0);
        q[4 * PARTS * c] = v.x;
        q[4 * PARTS * c + 1] = v.y;
        q[4 * PARTS * c + 2] = v.z;
        q[4 * PARTS * c + 3] = v.w;
    }
}

/* Puts the operands of add_signed for a lane's heads behind the queries' operands. */
template <int D> static __device__ __forceinline__ void residual_queries(uint32_t *q, int lane)
{
#pragma unroll
    for (int r = 0; r < D / 128; r++) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const uint32_t pair = q[16 * r + i], signs = residual_signs(i / 4) >> lane % 4 * 8;
            sum += residual_turn(low_half(pair), signs, i % 4 * 2);
            sum += residual_turn(high_half(pair), signs, i % 4 * 2 + 1);
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        sum *= -RESIDUAL;
#pragma unroll
        for (int i = 0; i < 2; i++)
            q[D / 8 + 2 * r + i] = __float_as_uint(__shfl_sync(0xffffffffu, sum, lane % 4 * 8 + 4 * i));
    }
}

/* Loads both parts, raw and turned, where keys are bf16; else one of them. */
template <int D, int KIND>
static __device__ __forceinline__ void load_queries(const decode_job &p, const uint16_t *one, const uint16_t *raw,
                                                    const uint16_t *turned, int head, int live, bool mixed, uint32_t *q,
                                                    int lane)
{
    if (parts_of(KIND) == 1) {
        load_q<D, 1>(p, one, head, live, mixed, q, lane);
        if (KIND == KIND_LUT4_RESIDUAL)
            residual_queries<D>(q, lane);
    } else {
        load_q<D, 2>(p, raw, head, live, false, q, lane);
        load_q<D, 2>(p, turned, head, live, false, q + 4, lane);
    }
}

/* Exact steps i .. to - 1 of a unit. */
template <int D, int PARTS_K, int PARTS_V>
static __device__ __forceinline__ void exact_steps(const decode_job &p, const row_span &row, const spot &s, int i,
                                                   int to, const uint32_t *q, state<D> &a, int lane)
{
    uint32_t w[PARTS_V][2];
    float x[1][4];
#pragma unroll 1
    for (; i < to; i++) {
        const int kv = kv_of(p, s.in), key = row.encoded * KVANT_PAGE + i * TAIL_STEP;
        const int j = key / KVANT_PAGE, in = key % KVANT_PAGE * 2 * D;
        const uint8_t *k = exact_rows(p, p.k, row.seq, j, kv) + in, *v = exact_rows(p, p.v, row.seq, j, kv) + in;
        scores_rows<D, 1, PARTS_K>(x, k, q, lane);
        softmax_step<D, 1, PARTS_V>(p, a, x, w, 8.0f, row.pos - key, lane);
        sums_rows<D, 1, PARTS_V>(a.o, v, w, row.pos - key + 1, lane);
    }
}

/* Compiled for a kind, or for any (KIND_COUNT) of one part: then the launch-uniform number chooses. */
#define CASE(KIND, is, number) (KIND == (number) || (KIND == KIND_COUNT && (is) == (number)))

template <int D, int KIND, int MAKE>
static __device__ __forceinline__ void scores(const decode_side &side, float (*s)[4], const uint8_t *slot,
                                              const uint32_t *q, uint32_t table, uint32_t mirror, int lane)
{
    if (is_sign(KIND))
        scores_sign<KIND == KIND_SIGN>(s, slot, q, lane);
    else if (D >= 128 && CASE(KIND, side.kind, KIND_TRELLIS))
        scores_trellis<D<128 ? 128 : D, MAKE == ARCH_90 && KIND == KIND_TRELLIS, MAKE>(s, slot, q, table, lane);
    else if (CASE(KIND, side.kind, KIND_LUT4_32))
        scores_lut<D, MAKE, BOOK4_MIRROR, 32>(s, slot, q, table, mirror, lane);
    else if (D >= 128 && CASE(KIND, side.kind, KIND_LUT4_128))
        scores_lut<D, MAKE, BOOK4_MIRROR, D >= 128 ? 128 : 32>(s, slot, q, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_BOOK4_32))
        scores_lut<D, MAKE, BOOK4, 32>(s, slot, q, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_LUT3_32))
        scores_lut<D, MAKE, BOOK3_MIRROR, 32>(s, slot, q, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_INT8))
        scores_byte<D, false>(s, slot, q, lane);
    else if (CASE(KIND, side.kind, KIND_FLOAT8))
        scores_byte<D, true>(s, slot, q, lane);
    else if (CASE(KIND, side.kind, KIND_HALF))
        scores_rows<D, 2, 1>(s, slot, q, lane);
    else if (KIND == KIND_BF16)
        scores_rows<D, 2, 2>(s, slot, q, lane);
    else if (D >= 128 && KIND == KIND_LUT4_RESIDUAL)
        scores_lut<D, MAKE, BOOK4_MIRROR, D >= 128 ? 128 : 32, true>(s, slot, q, table, mirror, lane);
}

template <int D, int KIND, int MAKE>
static __device__ __forceinline__ void sums(const decode_side &side, float (*o)[4], const uint8_t *slot,
                                            const uint32_t (*p)[2], uint32_t table, uint32_t mirror, int live, int lane,
                                            float (*residual)[4])
{
    if (D >= 128 && CASE(KIND, side.kind, KIND_TRELLIS))
        sums_trellis<D<128 ? 128 : D, MAKE == ARCH_90 && KIND == KIND_TRELLIS, MAKE>(o, slot, p, table, lane);
    else if (CASE(KIND, side.kind, KIND_LUT4_32))
        sums_lut<D, MAKE, BOOK4_MIRROR, 32>(o, slot, p, table, mirror, lane);
    else if (D >= 128 && CASE(KIND, side.kind, KIND_LUT4_128))
        sums_lut<D, MAKE, BOOK4_MIRROR, D >= 128 ? 128 : 32>(o, slot, p, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_BOOK4_32))
        sums_lut<D, MAKE, BOOK4, 32>(o, slot, p, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_LUT3_32))
        sums_lut<D, MAKE, BOOK3_MIRROR, 32>(o, slot, p, table, mirror, lane);
    else if (CASE(KIND, side.kind, KIND_INT8))
        sums_byte<D, false>(o, slot, p, lane);
    else if (CASE(KIND, side.kind, KIND_FLOAT8))
        sums_byte<D, true>(o, slot, p, lane);
    else if (CASE(KIND, side.kind, KIND_HALF))
        sums_rows<D, 2, 1>(o, slot, p, live, lane);
    else if (KIND == KIND_BF16)
        sums_rows<D, 2, 2>(o, slot, p, live, lane);
    else if (D >= 128 && KIND == KIND_LUT4_RESIDUAL)
        sums_lut<D, MAKE, BOOK4_MIRROR, D >= 128 ? 128 : 32, true>(o, slot, p, table, mirror, lane, residual);
}

/* A warp's barriers, slots and tables; *_at: shared addresses. */
typedef struct warp_room {
    uint32_t bar_k, bar_v; /* of the slot's first block; attn_whole.cu has another two 16 bytes on */
    uint8_t *slot_k, *slot_v;
    uint32_t k_at, v_at, table_k, table_v, mirror;
} warp_room;

static __device__ __forceinline__ uint32_t tables_at(uint32_t base)
{
    return (base + TABLE - 1) & ~(TABLE - 1u);
}

/* PAGES: perhaps of page scope. */
template <int D, int MAKE, bool PAGES>
static __device__ __forceinline__ warp_room room_of(const decode_job &p, uint8_t *smem, uint32_t base, int warp,
                                                    int lane)
{
    const uint32_t first = MAKE == ARCH_90 ? tables_at(base) : 0; /* from tables_from on */
    const uint32_t table = first + (uint32_t)lane * 4, trellis = table + TABLE * (uint32_t)book_tables(p);
    warp_room r;
    r.bar_k = base + (uint32_t)warp * 32;
    r.bar_v = r.bar_k + 8;
    r.slot_k = smem + slot_at<MAKE>(p, base, warp);
    r.slot_v = r.slot_k + shape<D, MAKE>::BLOCKS * p.k.block_bytes;
    r.table_k = p.k.kind == KIND_TRELLIS ? trellis : table;
    r.table_v = p.v.kind == KIND_TRELLIS ? trellis : table + 128;
    if (PAGES && is_page(p.k.kind))
        r.table_k = table + TABLE * (uint32_t)page_table(p);
    if (PAGES && is_page(p.v.kind))
        r.table_v = table + TABLE * (uint32_t)(page_table(p) + page_tables(p) - 1);
    r.k_at = shared_at(r.slot_k);
    r.v_at = shared_at(r.slot_v);
    r.mirror = base + MIRRORS;
    return r;
}

/* All threads, before a barrier: barriers of the block's warps, what byte permutes read. */
template <int MAKE, bool PAGES>
static __device__ __forceinline__ void room_begin(const decode_job &p, uint8_t *smem, const warp_room &r, int lane)
{
    if constexpr (MAKE == ARCH_90) {
        if (lane < 4)
            bar_init(r.bar_k + 8 * (uint32_t)lane, 1);
        bar_publish();
    }
    if (p.k.kind == KIND_TRELLIS || p.v.kind == KIND_TRELLIS)
        warm_trellis();
    if (PAGES && is_page(p.k.kind))
        warm_page(p.k.kind);
    if (PAGES && is_page(p.v.kind))
        warm_page(p.v.kind);
    if (threadIdx.x < 8)
        ((uint32_t *)(smem + MIRRORS))[threadIdx.x] = (threadIdx.x < 4 ? p.k : p.v).mirror[threadIdx.x % 4];
}

/* All threads, before a barrier: the tables; two: both sides are trellises. */
template <int MAKE, bool PAGES>
static __device__ __forceinline__ void room_tables(const decode_job &p, uint8_t *smem, uint32_t base, bool two)
{
    uint8_t *at = smem + (MAKE == ARCH_90 ? tables_at(base) - base : room_bytes());
    if (book_tables(p))
        fill_books(at, p);
    if (p.k.kind == KIND_TRELLIS || p.v.kind == KIND_TRELLIS)
        fill_trellis(at + TABLE * book_tables(p), two);
    if (!PAGES)
        return;
    at += TABLE * page_table(p);
    if (is_page(p.k.kind))
        fill_page(at, p.k.kind);
    if (is_page(p.v.kind) && p.v.kind != p.k.kind)
        fill_page(at + TABLE * (page_tables(p) - 1), p.v.kind);
}

/* ---- rows on their way: ARCH_90 counts bytes at a slot's barrier; with ARCH_80 what is asked for at once is a group
 * of copies, also where that is nothing, and the groups of K and V take turns ---- */

/* Bytes of a block where the kernel knows the kind: a copy without a loop. */
template <int D, int KIND> static __host__ __device__ constexpr uint32_t block_bytes_of(void)
{
    constexpr uint32_t all = PACK_BLOCK * D, scale = PACK_BLOCK * 2;
    switch (KIND) {
    case KIND_LUT4_32: return all / 2 + scale * (D / 32);
    case KIND_LUT4_128:
    case KIND_LUT4_RESIDUAL: return all / 2 + scale * (D / 128);
    case KIND_LUT3_32: return all / 8 * 3 + scale * (D / 32);
    case KIND_INT8: return all + scale * (D / 32);
    case KIND_FLOAT8: return all;
    case KIND_HALF:
    case KIND_BF16: return 2 * all;
    case KIND_TRELLIS: return (1600 + scale) * (D / 128);
    case KIND_SIGN:
    case KIND_SIGN8: return 1024 + scale;
    default: return 0;
    }
}

/* BYTES: block_bytes_of the kind. */
template <int MAKE, uint32_t BYTES>
static __device__ __forceinline__ void rows_ask(uint32_t to, const uint8_t *from, uint32_t bytes, uint32_t bar,
                                                bool some)
{
    if constexpr (MAKE == ARCH_90) {
        if (some)
            warp_copy(to, from, bytes, bar);
    } else {
        if (some)
            warp_async<BYTES>(to, from, bytes);
        async_commit();
    }
}

template <int MAKE> static __device__ __forceinline__ void rows_wait(uint32_t bar, uint32_t phase)
{
    if constexpr (MAKE == ARCH_90)
        bar_wait(bar, phase);
    else {
        async_wait<1>();
        __syncwarp();
    }
}

/* Asks for BLOCKS blocks of a side from `from` on, where the first one's codes begin; half: which of its page it is;
 * BYTES: as rows_ask has them. */
template <int D, int KIND, int BLOCKS, int MAKE, uint32_t BYTES>
static __device__ __forceinline__ void side_ask(const decode_side &s, uint32_t to, const uint8_t *from, int half,
                                                uint32_t bar, bool some)
{
    if constexpr (!is_page(KIND))
        rows_ask<MAKE, BYTES>(to, from, BLOCKS * s.block_bytes, bar, some);
    else {
        if (some)
            page_ask<D, symbol_bits(KIND), BLOCKS, MAKE>(to, from, half, bar);
        if (MAKE != ARCH_90)
            async_commit();
    }
}

/* Asks for a step's rows of both sides. */
template <int D, int KIND_K, int KIND_V, int MAKE>
static __device__ __forceinline__ void step_ask(const decode_job &p, const warp_room &r, const uint8_t *k,
                                                const uint8_t *v, int half, bool some)
{
    side_ask<D, KIND_K, shape<D, MAKE>::BLOCKS, MAKE, 0>(p.k, r.k_at, k, half, r.bar_k, some);
    side_ask<D, KIND_V, shape<D, MAKE>::BLOCKS, MAKE, 0>(p.v, r.v_at, v, half, r.bar_v, some);
}

/* The step of BLOCKS blocks that begins at token `key` of a row at pos: waits for its rows, asks for the next ones
 * (more: from next_k, next_v, which are half next_half of their page), adds to the sums. */
template <int D, int KIND_K, int KIND_V, int BLOCKS, int MAKE = ARCH_90>
static __device__ __forceinline__ void coded_step(const decode_job &p, const warp_room &r, state<D> &a,
                                                  const uint32_t *q, int key, int pos, uint32_t phase, bool more,
                                                  const uint8_t *next_k, const uint8_t *next_v, int next_half,
                                                  int lane)
{
    /* where instructions limit, not memory: those of softmax and sums are mixed if no wait is between them */
    constexpr bool SOON = is_mixed(KIND_V) || KIND_V == KIND_LUT3_32 || KIND_V == KIND_LUT4_128 ||
                          KIND_V == KIND_LUT4_RESIDUAL;
    constexpr int TILES = BLOCKS * PACK_BLOCK / 16, PARTS = parts_of(KIND_V);
    const int half = BLOCKS == 1 ? key / PACK_BLOCK % 2 : 0;
    float x[TILES][4];
    uint32_t w[PARTS * TILES][2];
    float residual[(D + 127) / 128][4] = {};
    rows_wait<MAKE>(r.bar_k, phase);
    if constexpr (is_page(KIND_K))
        scores_page<D, symbol_bits(KIND_K), BLOCKS, MAKE>(x, r.slot_k, half, q, r.table_k, lane);
#pragma unroll
    for (int i = 0; i < BLOCKS && !is_page(KIND_K); i++)
        scores<D, KIND_K, MAKE>(p.k, x + 2 * i, r.slot_k + i * p.k.block_bytes, q, r.table_k, r.mirror, lane);
    __syncwarp();
    side_ask<D, KIND_K, BLOCKS, MAKE, block_bytes_of<D, KIND_K>()>(p.k, r.k_at, next_k, next_half, r.bar_k, more);
    if (SOON)
        rows_wait<MAKE>(r.bar_v, phase);
    softmax_step<D, TILES, PARTS>(p, a, x, w, 8.0f, pos - key, lane);
    if (!SOON)
        rows_wait<MAKE>(r.bar_v, phase);
    if constexpr (is_page(KIND_V))
        sums_page<D, symbol_bits(KIND_V), BLOCKS, MAKE>(a.o, r.slot_v, half, w, r.table_v, lane);
#pragma unroll
    for (int i = 0; i < BLOCKS && !is_page(KIND_V); i++)
        sums<D, KIND_V, MAKE>(p.v, a.o, r.slot_v + i * p.v.block_bytes, w + 2 * PARTS * i, r.table_v, r.mirror + 16,
                        pos - key - PACK_BLOCK * i + 1, lane, residual);
    __syncwarp();
    side_ask<D, KIND_V, BLOCKS, MAKE, block_bytes_of<D, KIND_V>()>(p.v, r.v_at, next_v, next_half, r.bar_v, more);
    if (KIND_V == KIND_LUT4_RESIDUAL)
        residual_add<D>(a.o, residual, lane);
}

/* ---- the host's choice of a kernel: launch<D, K, V>(d, p), of each file, where p has these kinds; KIND_COUNT: any of
 * one part ---- */

#define KINDS(D, K, V)                                                                                                 \
    if (p.d == D && (K == KIND_COUNT || kernel_kind(p.k) == K) && (V == KIND_COUNT || kernel_kind(p.v) == V))          \
    return launch<D, K, V>(d, p)

#define KINDS_ANY_V(D, K)                                                                                              \
    KINDS(D, K, KIND_BF16);                                                                                            \
    KINDS(D, K, KIND_COUNT)

#define KINDS_ANY(D)                                                                                                   \
    KINDS_ANY_V(D, KIND_BF16);                                                                                         \
    KINDS_ANY_V(D, KIND_COUNT)

/* The pairs with kernels of their own for speed. */
#define KINDS_FAST()                                                                                                   \
    KINDS(128, KIND_LUT4_32, KIND_LUT4_32);                                                                            \
    KINDS(128, KIND_LUT4_128, KIND_LUT4_128);                                                                          \
    KINDS(128, KIND_LUT3_32, KIND_LUT3_32);                                                                            \
    KINDS(128, KIND_TRELLIS, KIND_TRELLIS);                                                                            \
    KINDS(128, KIND_INT8, KIND_INT8);                                                                                  \
    KINDS(128, KIND_FLOAT8, KIND_FLOAT8);                                                                              \
    KINDS(128, KIND_HALF, KIND_HALF);                                                                                  \
    KINDS(128, KIND_SIGN, KIND_LUT3_32);                                                                               \
    KINDS(128, KIND_SIGN8, KIND_LUT3_32);                                                                              \
    KINDS(256, KIND_LUT4_32, KIND_LUT4_32);                                                                            \
    KINDS(256, KIND_LUT4_128, KIND_LUT4_128)

/* Kernels of page scope: one format, two, one beside any of one part. */
#define KINDS_PAGE_EACH(D)                                                                                             \
    KINDS(D, KIND_PAGE2, KIND_PAGE2);                                                                                  \
    KINDS(D, KIND_PAGE3, KIND_PAGE3);                                                                                  \
    KINDS(D, KIND_PAGE4, KIND_PAGE4)

#define KINDS_PAGE_MIX(D)                                                                                              \
    KINDS(D, KIND_PAGE2, KIND_PAGE3);                                                                                  \
    KINDS(D, KIND_PAGE2, KIND_PAGE4);                                                                                  \
    KINDS(D, KIND_PAGE3, KIND_PAGE2);                                                                                  \
    KINDS(D, KIND_PAGE3, KIND_PAGE4);                                                                                  \
    KINDS(D, KIND_PAGE4, KIND_PAGE2);                                                                                  \
    KINDS(D, KIND_PAGE4, KIND_PAGE3)

#define KINDS_PAGE_ANY(D)                                                                                              \
    KINDS(D, KIND_PAGE2, KIND_COUNT);                                                                                  \
    KINDS(D, KIND_PAGE3, KIND_COUNT);                                                                                  \
    KINDS(D, KIND_PAGE4, KIND_COUNT);                                                                                  \
    KINDS(D, KIND_COUNT, KIND_PAGE2);                                                                                  \
    KINDS(D, KIND_COUNT, KIND_PAGE3);                                                                                  \
    KINDS(D, KIND_COUNT, KIND_PAGE4)

#define KINDS_PAGE(D)                                                                                                  \
    KINDS_PAGE_EACH(D);                                                                                                \
    KINDS_PAGE_MIX(D);                                                                                                 \
    KINDS_PAGE_ANY(D)

/* Every pair needs these kernels too, behind the ones above. */
#define KINDS_ALL()                                                                                                    \
    KINDS(128, KIND_LUT4_RESIDUAL, KIND_LUT4_RESIDUAL);                                                                \
    KINDS(256, KIND_LUT4_RESIDUAL, KIND_LUT4_RESIDUAL);                                                                \
    KINDS_ANY_V(128, KIND_SIGN);                                                                                       \
    KINDS_ANY_V(128, KIND_SIGN8);                                                                                      \
    KINDS_ANY(64);                                                                                                     \
    KINDS_ANY(128);                                                                                                    \
    KINDS_ANY(256)

#endif
