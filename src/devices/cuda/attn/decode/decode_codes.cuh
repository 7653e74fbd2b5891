/* decode_codes.cuh: packed codes (pack.cuh) to operands of mma.m16n8k16, for attn_decode.cu. Tables lie in shared
 * memory with a copy per lane (decode_room.cuh). */
#ifndef KVANT_CUDA_DECODE_CODES_CUH
#define KVANT_CUDA_DECODE_CODES_CUH

#include "cards/decode.h"
#include "devices/cuda/core/halves.cuh"

/* Addresses in shared memory: where a block's own begins, and of ARCH_80 the first table (decode_room.cuh). */
enum { ROOM_FIRST = 1024, ROOM_TABLES = 10240 };

/* Addresses of tables count from here: 0 where tables lie on 64 KB; else a number that the instruction adds. */
template <int MAKE> static __device__ constexpr uint32_t tables_from(void)
{
    return MAKE == ARCH_90 ? 0 : ROOM_TABLES;
}

template <int MAKE> static __device__ __forceinline__ uint32_t look_up(uint32_t word, int byte, uint32_t table)
{
    uint32_t v;
    const uint32_t at = permute(word, table, 0x7604u | (uint32_t)byte << 4);
    asm("ld.shared.b32 %0, [%1 + %2];" : "=r"(v) : "r"(at), "n"(tables_from<MAKE>()));
    return v;
}

template <int MAKE>
static __device__ __forceinline__ void lut_operand(uint32_t *a, uint32_t word, uint32_t table)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = look_up<MAKE>(word, i, table);
}

/* How a book is read: 4 bits by the table alone, or with the fourth word of a quad by permutes; 3 bits likewise. */
enum book_kind { BOOK4, BOOK4_MIRROR, BOOK3_MIRROR };

/* The words of a quad at its block. */
template <int BOOK>
static __device__ __forceinline__ void lut_words(uint32_t *w, const uint8_t *block, int quad, int lane)
{
    if (BOOK == BOOK3_MIRROR) {
        const uint32_t *from = (const uint32_t *)block + quad * 96 + lane;
        w[0] = from[0];
        w[1] = from[32];
        w[2] = from[64];
    } else {
        const uint4 from = ((const uint4 *)block)[quad * 32 + lane];
        w[0] = from.x;
        w[1] = from.y;
        w[2] = from.z;
        w[3] = from.w;
    }
}

/* The operand of word i of a quad. */
template <int BOOK, int MAKE>
static __device__ __forceinline__ void lut_word(uint32_t *a, const uint32_t *w, int i, uint32_t table,
                                                const uint4 &mirror)
{
    if (i == 3 && BOOK == BOOK4_MIRROR)
        mirror_word4(a, w, mirror);
    else if (i == 3 && BOOK == BOOK3_MIRROR)
        mirror_word3(a, w, mirror);
    else
        lut_operand<MAKE>(a, w[i], table);
}

/* The mirror of a side, at its place in shared memory. */
static __device__ __forceinline__ uint4 load_mirror(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}

/* ---- residuals: every value of a record has one, of the same size; its sign is that of the record (the sign of the
 * packed scale: negative counts as +) times that of the value (cards/decode.h) ---- */

#define RESIDUAL port_bits(0x3d3504f3u) /* 0.5/sqrt(128) */

/* Signs of 32 values from number 32 * word on of a record: bits, 1 negative. */
static __device__ __forceinline__ uint32_t residual_signs(int word)
{
    constexpr float signs[] = { POLAR_SIGNS };
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 32; i++)
        bits |= (signs[32 * word + i] < 0.0f ? 1u : 0u) << i;
    return bits;
}

/* x, or -x where bit `bit` of signs is set. */
static __device__ __forceinline__ float residual_turn(float x, uint32_t signs, int bit)
{
    return __uint_as_float(__float_as_uint(x) ^ (signs << (31 - bit) & 0x80000000u));
}

/* Two bytes to two halves: signed integers, or e4m3. */
template <bool FLOAT8> static __device__ __forceinline__ uint32_t byte_pair(uint32_t word, int pair)
{
    if (FLOAT8)
        return e4m3_halves(word, pair);
    const uint32_t v = permute(word ^ 0x80808080u, 0x64646464u, pair ? 0x4342u : 0x4140u);
    const __half2 x = __hsub2(*(const __half2 *)&v, __float2half2_rn(1152.0f)); /* 1024 + code + 128 */
    return *(const uint32_t *)&x;
}

/* The operands of a quad of bytes: k-tiles (K) or m-tiles (V) 0 and 1. */
template <bool FLOAT8> static __device__ __forceinline__ void byte_operands(uint32_t a[2][4], const uint4 &w)
{
    const uint32_t words[4] = { w.x, w.y, w.z, w.w };
#pragma unroll
    for (int sub = 0; sub < 2; sub++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[sub][i] = byte_pair<FLOAT8>(words[2 * sub + (i & 1)], i / 2);
}

/* Bits `bit` .. of a stream, the first of them at bit 7. */
static __device__ __forceinline__ uint32_t stream_at(const uint32_t *x, int bit)
{
    const int at = bit - 7, word = at / 32, by = at % 32;
    return at < 0 ? x[0] << -at : by <= 16 ? x[word] >> by : __funnelshift_r(x[word], x[word + 1], by);
}

/* The bits of b in mask, the others of a. */
static __device__ __forceinline__ uint32_t mix_bits(uint32_t a, uint32_t b, uint32_t mask)
{
    uint32_t v;
    asm("lop3.b32 %0, %1, %2, %3, 0xd8;" : "=r"(v) : "r"(a), "r"(b), "r"(mask));
    return v;
}

/* The value of state i, symbols i .. i + 2 of 3 bits, in the lower half.  In the addresses of the three states that it
 * belongs to a symbol keeps its place, its number modulo 3; so states share shifts, and a state's symbols begin at the
 * first place, or the second (values in the upper halves of the entries), or the third: another table, or (TWO false) a
 * shift of its own. */
template <bool TWO, int MAKE>
static __device__ __forceinline__ uint32_t trellis_value(const uint32_t *x, int i, uint32_t table)
{
    constexpr uint32_t FROM = tables_from<MAKE>();
    uint32_t v, at = (stream_at(x, i / 3 * 9) & 0xff80u) | table;
    const uint32_t next = stream_at(x, i / 3 * 9 + 9);
    if (i % 3 == 1)
        asm("ld.shared.u16 %0, [%1 + %2];" : "=r"(v) : "r"(mix_bits(at, next, 0x0380u)), "n"(FROM + 2));
    else if (i % 3 == 2 && TWO)
        asm("ld.shared.u16 %0, [%1 + 65536];" : "=r"(v) : "r"(mix_bits(at, next, 0x1f80u)));
    else {
        if (i % 3 == 2)
            at = (stream_at(x, 3 * i) & 0xff80u) | table;
        asm("ld.shared.u16 %0, [%1 + %2];" : "=r"(v) : "r"(at), "n"(FROM));
    }
    return v;
}

/* Two values to the halves of a word; not on the unit that makes addresses. */
static __device__ __forceinline__ uint32_t trellis_pair(uint32_t a, uint32_t b)
{
    const __half2 high = __halves2half2(__ushort_as_half(0), __ushort_as_half(0x3c00));
    const __half2 v = __hfma2(__low2half2(*(const __half2 *)&b), high, *(const __half2 *)&a);
    return *(const uint32_t *)&v;
}

#endif
