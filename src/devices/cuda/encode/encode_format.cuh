/* encode_format.cuh: what the encoder core knows of a format, from its card; tables in shared memory; how codes become
 * bytes.
 *
 * A warp encodes a tile: 8 units of 128 values, four lanes to a unit; lane l has values 32 (l % 4) .. of unit l / 4.
 * Formats of records of 32 values then have a record to a lane, those with one scale for 128 values four lanes to it.
 *
 * Codes are collected in four words ("groups") of eight codes each, `bits` bits to a code, in the order in which they
 * lie in the record (enc_value_at). */
#ifndef KVANT_CUDA_ENCODE_FORMAT_CUH
#define KVANT_CUDA_ENCODE_FORMAT_CUH

#include "devices/cuda/encode/encode_math.cuh"
#include "devices/cuda/core/halves.cuh"
#include "cards/cuda.cuh"

enum { TILE_UNITS = 8, ENC_LINE = 128 };

template <int F> struct enc_format {
    typedef card<F> of;
    static constexpr bool plain = of::bits == 0, bytes = of::cls == CARD_INT8, book = of::n_levels > 0;
    /* The rule of the scale goes with the rotation; of integers the largest value is worth -8. */
    static constexpr bool ruled = of::space == SPACE_P32    ? of::norm == CARD_RMS
                                  : of::space == SPACE_R128 ? of::norm == CARD_CORRECTED
                                  : of::space == SPACE_H128 ? of::norm == CARD_LENGTH
                                                            : of::norm == CARD_LARGEST && of::level[0] == -8.0f;
    /* known: this core encodes it; searches: it has another encoder `best`. */
    static constexpr bool known = plain || bytes || (ruled && (of::n_levels == 8 || of::n_levels == 16));
    static constexpr bool searches = bytes || of::searched;
    static constexpr bool signs = of::space == SPACE_R128, residual = of::residual_at > 0;
    static constexpr bool planes = of::layout == CARD_PLANES_CODES, halves = of::layout == CARD_HALVES_CODES;
    /* lanes that share a scale; bytes of 128 values and of a lane's part; bits of a code in a group; a lane's words */
    static constexpr int lanes = of::space == SPACE_R128 || of::space == SPACE_H128 ? 4 : 1;
    static constexpr int unit_bytes = (int)GROUP_MAX / of::values * of::bytes, lane_bytes = unit_bytes / 4;
    static constexpr int code_bits = planes ? 4 : of::bits, words = bytes ? 8 : of::bits;
};

/* ---- the order of codes ---- */

/* Which of a lane's 32 values is code i of group g; the group of a value. */
template <int F> static __host__ __device__ constexpr int enc_value_at(int g, int i)
{
    return enc_format<F>::halves   ? 4 * g + i / 2 + (i % 2 ? 16 : 0)
           : enc_format<F>::planes ? g / 2 * 16 + 2 * i + g % 2
                                   : 8 * g + i;
}

template <int F> static __host__ __device__ constexpr int enc_group_of(int value)
{
    return enc_format<F>::halves ? value % 16 / 4 : enc_format<F>::planes ? value / 16 * 2 + value % 2 : value / 8;
}

/* `code` eight times. */
template <int F> static __host__ __device__ constexpr uint32_t enc_eight(uint32_t code)
{
    uint32_t word = 0;
    for (int i = 0; i < 8; i++)
        word += code << enc_format<F>::code_bits * i;
    return word;
}

/* ---- tables in shared memory ---- */

/* A line is 16 bytes eight times side by side, so that lanes do not meet in a bank, or four of 16 bytes, one for each
 * lane of a unit ("own" lines, which come first). */
struct __align__(16) enc_word4 {
    uint32_t w[4];
};

template <int OWN, int LINES> struct enc_lines {
    static constexpr int own_lines = OWN, lines = LINES, bytes = (OWN + LINES) * (int)ENC_LINE;
    enc_word4 own[OWN > 0 ? OWN : 1][4], line[LINES > 0 ? LINES : 1];
};

/* The block's copy, by threads that do not meet in a bank: reads are under way from load on. */
template <typename LINES, int THREADS> struct enc_copy {
    static constexpr int each = (LINES::lines + THREADS - 1) / THREADS, own_slots = 8 * LINES::own_lines;
    static_assert(own_slots <= THREADS);
    uint4 own, line[each > 0 ? each : 1];

    __device__ __forceinline__ void load(const LINES &from)
    {
        const int t = threadIdx.x;
#pragma unroll
        for (int k = 0; k < each; k++)
            if (THREADS * k + t < LINES::lines)
                line[k] = *(const uint4 *)&from.line[THREADS * k + t];
        if (t < own_slots)
            own = *(const uint4 *)&from.own[t / 8][t % 4];
    }

    __device__ __forceinline__ void store(uint8_t *room) const
    {
        const int t = threadIdx.x;
        uint8_t *to = room + ENC_LINE * LINES::own_lines;
#pragma unroll
        for (int k = 0; k < each; k++)
#pragma unroll
            for (int c = 0; c < 8; c++)
                if (THREADS * k + t < LINES::lines)
                    *(uint4 *)(to + ENC_LINE * (THREADS * k + t) + 16 * ((c + t) % 8)) = line[k];
        if (t < own_slots)
            ((uint4 *)room)[t] = own;
    }
};

/* Returns this lane's own line n. */
static __device__ __forceinline__ uint4 enc_own(const uint8_t *room, int n)
{
    return *(const uint4 *)(room + ENC_LINE * n + threadIdx.x % 4 * 16);
}

/* ---- codes to bytes, in shared memory ---- */

/* Two bits from each nibble of a word, one behind the other. */
static __device__ __forceinline__ uint32_t enc_squeeze(uint32_t x)
{
    x = (x | x >> 2) & 0x0f0f0f0fu;
    x = (x | x >> 4) & 0x00ff00ffu;
    return (x | x >> 8) & 0xffffu;
}

/* Groups of codes to the lane's words as the record has them. */
template <int F> static __device__ __forceinline__ void enc_merge(uint32_t *w)
{
    if constexpr (enc_format<F>::planes) {
        uint32_t high[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t even = w[2 * i], odd = w[2 * i + 1];
            high[i] = enc_squeeze((even >> 2 & 0x11111111u) | (odd >> 1 & 0x22222222u));
            w[i] = (even & 0x33333333u) | (odd << 2 & 0xccccccccu);
        }
        w[2] = high[0] | high[1] << 16;
    } else if constexpr (enc_format<F>::code_bits == 3) {
        w[0] |= w[1] << 24;
        w[1] = w[1] >> 8 | w[2] << 16;
        w[2] = w[2] >> 16 | w[3] << 8;
    }
}

/* Words one behind the other, `before` before them; even: two bytes of each in the next one. */
template <int N>
static __device__ __forceinline__ void enc_put_words(uint8_t *to, uint32_t before, const uint32_t *word, bool odd)
{
    const uint32_t select = odd ? 0x7654u : 0x5432u;
#pragma unroll
    for (int n = 0; n < N; n++)
        ((uint32_t *)to)[n] = __byte_perm(n ? word[n - 1] : before, word[n], select);
}

/* [scale][words]: a record to a lane; every other one begins between words. */
template <int N>
static __device__ __forceinline__ void enc_put_record(uint8_t *out, uint32_t scale, const uint32_t *word)
{
    const int lane = threadIdx.x % 32;
    const bool odd = lane & 1;
    uint8_t *to = out + (2 + 4 * N) * lane;
    enc_put_words<N>(to + (odd ? 2 : 0), scale << 16, word, odd);
    enc_put(to + (odd ? 0 : 4 * N), (uint16_t)(odd ? scale : word[N - 1] >> 16));
}

/* [scale][64 bytes][a byte, the residual's, and zeros]: 16 bytes of a unit to a lane; every other unit begins between
 * words, and its scale is in one with the end of the unit before. */
template <int F>
static __device__ __forceinline__ void enc_put_unit(uint8_t *out, uint32_t scale, const uint32_t *word, bool up)
{
    constexpr bool rest = card<F>::bytes > 66;
    const int lane = threadIdx.x % 32, q = lane % 4;
    const bool odd = lane & 4;
    uint8_t *row = out + lane / 4 * enc_format<F>::unit_bytes + (odd ? 2 : 0);
    const uint32_t before = __shfl_up_sync(0xffffffffu, word[3], 1);
    enc_put_words<4>(row + 16 * q, q ? before : scale << 16, word, odd);
    if (odd && q == 0)
        *(uint32_t *)(row - 4) = __byte_perm(rest ? 0 : before, scale, 0x5432);
    if (rest) {
        const uint32_t end = odd ? up : word[3] >> 16 | (uint32_t)up << 16;
        *(uint32_t *)(row + 64 + (4 * q + 4) % 16) = q == 3 ? end : 0;
    }
}

/* Groups of codes to the tile's bytes, units one behind the other. */
template <int F>
static __device__ __forceinline__ void enc_pack(uint8_t *out, uint32_t scale, uint32_t *word, bool up)
{
    enc_merge<F>(word);
    if constexpr (card<F>::values == 32)
        enc_put_record<enc_format<F>::words>(out, scale, word);
    else
        enc_put_unit<F>(out, scale, word, up);
}

/* ---- plain values ---- */

template <int F> static __device__ __forceinline__ uint16_t enc_short(float v)
{
    return card<F>::cls == CARD_BF16 ? f32_to_bf16(v) : enc_half(v);
}

/* Four values, aligned to their bytes; scale: e4m3's. */
template <int F> static __device__ __forceinline__ void enc_plain4(float scale, float *v, uint8_t *to)
{
    if constexpr (card<F>::cls == CARD_FLOAT8) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = scale != 1.0f ? v[k] / scale : v[k];
        *(uint32_t *)to = e4m3_four(v);
    } else if constexpr (card<F>::cls == CARD_NONE) {
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
    } else {
        *(ushort4 *)to = make_ushort4(enc_short<F>(v[0]), enc_short<F>(v[1]), enc_short<F>(v[2]), enc_short<F>(v[3]));
    }
}

/* The first `count` of them, anywhere. */
template <int F>
static __device__ __forceinline__ void enc_plain_some(float scale, float *v, uint8_t *to, int count)
{
    __align__(16) uint8_t four[16];
    enc_plain4<F>(scale, v, four);
    for (int k = 0; k < count * card<F>::bytes; k++)
        to[k] = four[k];
}

#endif
