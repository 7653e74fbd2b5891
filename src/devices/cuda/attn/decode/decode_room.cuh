/* decode_room.cuh: the shared memory of attn_decode.cu's kernel: barriers and plan, tables, slots of its warps.
 * Tables are 64 KB each.  ARCH_90: on a 64 KB boundary; slots lie behind them, those that do not fit before them.
 * ARCH_80: right behind the plan, where the instruction adds it to the address (tables_from); then slots. */
#ifndef KVANT_CUDA_DECODE_ROOM_CUH
#define KVANT_CUDA_DECODE_ROOM_CUH

#include "cards/cuda.cuh"
#include "devices/cuda/attn/decode/decode_plan.cuh"
#include "devices/cuda/core/page.cuh"

enum { SMEM = 227 * 1024, TABLE = 65536, BARS = 1024, MIRRORS = 960, SUMS = 992 };

/* Warps of a block.  An H200 reads slower with more of them, though 16 and 12 need no more registers than there are:
 * turbo4_66 at 32 sequences of 32768 tokens 300 us instead of 289, head_dim 256 at 16 sequences 138 instead of 120. */
static __host__ __device__ constexpr int most_warps(int d)
{
    return d == 256 ? 8 : 12;
}

#define STEP_BLOCKS(d) ((d) == 256 ? 1u : 2u)
/* Tables: the code books of both sides share one; the trellis' 512 entries, 128 bytes apart, take one,
 * two where both sides have it (fill_trellis). */
static __host__ __device__ inline int book_tables(const decode_job &p)
{
    return p.k.kind <= KIND_LUT3_32 || p.v.kind <= KIND_LUT3_32;
}

/* One for each format of page scope, behind the others: the number of the first; how many. */
static __host__ __device__ inline int page_table(const decode_job &p)
{
    return book_tables(p) + (p.k.kind == KIND_TRELLIS || p.v.kind == KIND_TRELLIS);
}

static __host__ __device__ inline int page_tables(const decode_job &p)
{
    return is_page(p.k.kind) + (is_page(p.v.kind) && p.v.kind != p.k.kind);
}

static __host__ __device__ inline int tables(const decode_job &p)
{
    return book_tables(p) + (p.k.kind == KIND_TRELLIS) + (p.v.kind == KIND_TRELLIS) + page_tables(p);
}

/* Bytes before the slots: barriers, mirrors, the plan. */
static __host__ __device__ inline uint32_t room_bytes(void)
{
    return BARS + DECODE_ROWS * (uint32_t)sizeof(row_span);
}

/* Offset of warp w's slots from `base` (a shared address), outside the tables; base + SMEM is the end. */
template <int MAKE = ARCH_90>
static __host__ __device__ inline uint32_t slot_at(const decode_job &p, uint32_t base, int w)
{
    if (MAKE == ARCH_80)
        return p.slots_from + (uint32_t)w * p.slot_bytes;
    const uint32_t from = ((base + room_bytes() + 127) & ~127u) - base;
    if (!tables(p))
        return from + (uint32_t)w * p.slot_bytes;
    const uint32_t end = ((base + TABLE - 1) & ~(TABLE - 1u)) - base + TABLE * (uint32_t)tables(p);
    return (uint32_t)w < p.slots_high ? end + (uint32_t)w * p.slot_bytes
                                      : from + ((uint32_t)w - p.slots_high) * p.slot_bytes;
}

/* Places the slots; base: where shared memory begins. */
static inline bool room_fits(decode_job *p)
{
    const uint32_t base = ROOM_FIRST, low = ((base + room_bytes() + 127) & ~127u) - base;
    const uint32_t n = (uint32_t)p->warps, table = TABLE * (uint32_t)tables(*p);
    p->slot_bytes = (STEP_BLOCKS(p->d) * (p->k.block_bytes + p->v.block_bytes) + 127) & ~127u;
    if (!table)
        return low + n * p->slot_bytes <= SMEM;
    const uint32_t high = (SMEM - (TABLE - base + table)) / p->slot_bytes;
    p->slots_high = high < n ? high : n;
    return low + (n - p->slots_high) * p->slot_bytes <= TABLE - base;
}

/* As room_fits, for ARCH_80, in `most` bytes: two trellises share their tables.  Sets the warps. */
static inline bool room_fits_80(decode_job *p, size_t most)
{
    const int n = page_table(*p) + page_tables(*p);
    static_assert((int)ROOM_FIRST + (int)BARS + DECODE_ROWS * sizeof(row_span) == (size_t)ROOM_TABLES);
    p->slot_bytes = (p->k.block_bytes + p->v.block_bytes + 127) & ~127u;
    p->slots_from = room_bytes() + TABLE * (uint32_t)n;
    const int fit = p->slots_from < most ? (int)((most - p->slots_from) / p->slot_bytes) : 0;
    p->warps = fit < most_warps(p->d) ? fit : most_warps(p->d);
    if (p->warps > 4)
        p->warps &= ~3; /* as many on each of a multiprocessor's four parts */
    return fit > 0;
}

/* ---- code books, made on the host: to read them costs a block its first microsecond ---- */

/* The value of each code of a format with 4-bit or 3-bit codes. */
static inline const float *book_of(int fmt)
{
    static const float *const books[] = {
#define CARD_FORMAT(name, ...) card<FMT_##name>::level,
#include "cards/lists.inc"
#undef CARD_FORMAT
    };
    return books[fmt];
}

/* The book as halves, and its mirror: byte b is the upper (b < 8) or lower half of magnitude b % 8 of the codes with
 * positive values (mirror_pairs). */
static inline void fill_book(decode_side *s)
{
    if (s->kind > KIND_LUT3_32)
        return;
    const float *book = book_of(s->s.fmt);
    const int half = s->kind == KIND_LUT3_32 ? 4 : 8;
    for (int c = 0; c < 2 * half; c++) {
        const __half_raw v = __float2half_rn(book[c]);
        s->book[c] = v.x;
    }
    for (int b = 0; b < 16; b++) {
        const uint32_t v = s->book[half + b % half];
        s->mirror[b / 4] |= (b < 8 ? v >> 8 : v & 255) << b % 4 * 8;
    }
}

/* Fills `rows` rows of 128 bytes (a multiple of 32), `apart` bytes apart; a lane makes every 32nd value, eight write a
 * row. */
template <typename F> static __device__ __forceinline__ void fill_rows(uint8_t *table, int rows, int apart, F value)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int first = threadIdx.x - lane; first < rows; first += blockDim.x) {
        const uint32_t own = value(first + lane);
        uint8_t *to = table + (first + lane / 8) * apart + lane % 8 * 16;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t v = __shfl_sync(0xffffffffu, own, 4 * i + lane / 8);
            *(uint4 *)(to + 4 * i * apart) = make_uint4(v, v, v, v);
        }
    }
}

static __device__ __forceinline__ void fill_books(uint8_t *table, const decode_job &p)
{
#pragma unroll 1
    for (int side = 0; side < 2; side++, table += 128) {
        const decode_side &s = side ? p.v : p.k;
        const int bits = s.kind == KIND_LUT3_32 ? 3 : 4, mask = (1 << bits) - 1;
        if (s.kind <= KIND_LUT3_32)
            fill_rows(table, 256, 256,
                      [&](int e) { return (uint32_t)s.book[e & mask] | (uint32_t)s.book[e >> bits & mask] << 16; });
    }
}

/* Entry e: the value of state e of a format of page scope. */
static __device__ void fill_page(uint8_t *table, int kind)
{
    const float *book = page_books[kind - KIND_PAGE2];
    fill_rows(table, PAGE_STATES, 128, [=](int e) { return pack_halves(book[e], 0.0f); });
}

/* Brings what fill_page reads nearer. */
static __device__ __forceinline__ void warm_page(int kind)
{
    if (threadIdx.x < sizeof page_books[0] / 128)
        warm_line((const char *)page_books[kind - KIND_PAGE2] + threadIdx.x * 128);
}

/* Brings what fill_trellis reads nearer. */
static __device__ __forceinline__ void warm_trellis(void)
{
    if (threadIdx.x < sizeof fmt_c_turbo3_tcq_codebook / 128)
        asm volatile("prefetch.global.L1 [%0];" ::"l"((const char *)fmt_c_turbo3_tcq_codebook + threadIdx.x * 128));
}

/* Entry e: the value of the state whose symbols, oldest first, are the three places of e (bits 0-2, 3-5, 6-8), above it
 * that of the places 1, 2, 0; two: in the next table that of 2, 0, 1 (trellis_value). */
static __device__ void fill_trellis(uint8_t *table, bool two)
{
    fill_rows(table, 512, 128, [](int e) {
        return pack_halves(fmt_c_turbo3_tcq_codebook[e], fmt_c_turbo3_tcq_codebook[e >> 3 | (e & 7) << 6]);
    });
    if (two)
        fill_rows(table + TABLE, 512, 128,
                  [](int e) { return pack_halves(fmt_c_turbo3_tcq_codebook[e >> 6 | (e & 63) << 3], 0.0f); });
}

#endif
