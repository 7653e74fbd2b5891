/* decode_room.cuh: the shared memory of attn_decode.cu's kernel: barriers, books and plan, tables, slots of its warps.
 * Tables are 64 KB each on a 64 KB boundary; slots lie behind them, those that do not fit before them. */
#ifndef KVANT_CUDA_DECODE_ROOM_CUH
#define KVANT_CUDA_DECODE_ROOM_CUH

#include "devices/cuda/decode_plan.cuh"
#include "devices/cuda/space.cuh"

enum { SMEM = 227 * 1024, TABLE = 65536, BARS = 1024, MIRRORS = 960, TOTAL = 1008 };

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

static __host__ __device__ inline int tables(const decode_job &p)
{
    return book_tables(p) + (p.k.kind == KIND_TRELLIS) + (p.v.kind == KIND_TRELLIS);
}

/* Bytes before the slots: barriers, books, the plan. */
static __host__ __device__ inline uint32_t room_bytes(void)
{
    return BARS + 64 + DECODE_ROWS * (uint32_t)sizeof(row_span);
}

/* Offset of warp w's slots from `base` (a shared address), outside the tables; base + SMEM is the end. */
static __host__ __device__ inline uint32_t slot_at(const decode_job &p, uint32_t base, int w)
{
    const uint32_t bytes = (STEP_BLOCKS(p.d) * (p.k.block_bytes + p.v.block_bytes) + 127) & ~127u;
    const uint32_t from = ((base + room_bytes() + 127) & ~127u) - base;
    if (!tables(p))
        return from + (uint32_t)w * bytes;
    const uint32_t end = ((base + TABLE - 1) & ~(TABLE - 1u)) - base + TABLE * (uint32_t)tables(p);
    const uint32_t high = (SMEM - end) / bytes;
    return (uint32_t)w < high ? end + (uint32_t)w * bytes : from + ((uint32_t)w - high) * bytes;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

/* Fills `rows` rows of 128 bytes, `apart` bytes apart; eight threads write a row. */
template <typename F> static __device__ __forceinline__ void fill_rows(uint8_t *table, int rows, int apart, F value)
{
    for (int i = threadIdx.x; i < rows * 8; i += blockDim.x) {
        const uint32_t v = value(i / 8);
        *(uint4 *)(table + i / 8 * apart + i % 8 * 16) = make_uint4(v, v, v, v);
    }
}

/* The code books of both sides, 16 halves each, and what byte permutes read of them; before a barrier. */
static __device__ __forceinline__ void read_books(const decode_side &k, const decode_side &v, uint16_t (*book)[16],
                                                  uint8_t *mirror)
{
    const int which = threadIdx.x / 16, code = threadIdx.x % 16;
    if (which > 1)
        return;
    const decode_side &s = which ? v : k;
    book[which][code] = __half_as_ushort(__float2half_rn(lut_value(s.s.fmt, code)));
    mirror[threadIdx.x] = mirror_byte(s.s.fmt, s.kind == KIND_LUT3_32 ? 3 : 4, code);
}

static __device__ void fill_books(uint8_t *table, const decode_side &k, const decode_side &v,
                                  const uint16_t (*book)[16])
{
    for (int side = 0; side < 2; side++) {
        const int kind = side ? v.kind : k.kind, bits = kind == KIND_LUT3_32 ? 3 : 4, mask = (1 << bits) - 1;
        const uint16_t *from = book[side];
        if (kind <= KIND_LUT3_32)
            fill_rows(table + side * 128, 256, 256,
                      [=](int e) { return (uint32_t)from[e & mask] | (uint32_t)from[e >> bits & mask] << 16; });
    }
}

/* Entry e: the value of the state whose symbols, oldest first, are the three places of e (bits 0-2, 3-5, 6-8), above it
 * that of the places 1, 2, 0; two: in the next table that of 2, 0, 1 (trellis_value). */
static __device__ void fill_trellis(uint8_t *table, bool two)
{
    fill_rows(table, 512, 128, [](int e) { return pack_halves(fmt_c_tcq[e], fmt_c_tcq[e >> 3 | (e & 7) << 6]); });
    if (two)
        fill_rows(table + TABLE, 512, 128, [](int e) { return pack_halves(fmt_c_tcq[e >> 6 | (e & 63) << 3], 0.0f); });
}

#endif
#endif
