/* encode_tile.cuh: the formats of records of 32 values, a tile at a time (tile_codes.cuh): the rules of encode.cuh. */
#ifndef KVANT_CUDA_ENCODE_TILE_CUH
#define KVANT_CUDA_ENCODE_TILE_CUH

#include "devices/cuda/encode/tile_best.cuh"

/* ---- the kinds ---- */

static __device__ __forceinline__ float tile_squares(const float *y)
{
    float p[8];
#pragma unroll
    for (int k = 0; k < 32; k++)
        p[k / 4] = fmaf(y[k], y[k], k % 4 ? p[k / 4] : 0.0f);
    return tile_tree(p);
}

static __device__ __forceinline__ void tile_scale(float *y, float by)
{
#pragma unroll
    for (int k = 0; k < 32; k++)
        y[k] *= by;
}

/* A rotated record's codes and scale.  y is sqrt(32) times what it should be, but where its squares are too much for a
 * float so. */
template <int F, int BITS>
static __device__ __forceinline__ uint16_t tile_rms32_best(const rec_books &b, float *y, uint32_t *word, float *d)
{
    float yy = tile_squares(y) * (1.0f / 1024.0f), by = port_bits(0x3e3504f3u), sum = 0x1.6a09e6p+7f, id;
    if (!(yy < INFINITY)) {
        tile_scale(y, by);
        yy = tile_squares(y) / 32.0f;
        by = 1.0f;
        sum = 32.0f;
    }
    enc_root(yy, d, &id);
    return rec_best<F, BITS>(b, y, id * by, *d, *d * sum, word);
}

template <int F, int BITS>
static __device__ __forceinline__ uint16_t tile_rms32_upstream(uint32_t base, float *y, uint32_t *word, float *d)
{
    float id;
    tile_scale(y, port_bits(0x3e3504f3u));
    enc_root(tile_squares(y) / 32.0f, d, &id);
    tile_scale(y, id);
#pragma unroll
    for (int n = 31; n >= 0; n--)
        tile_code<F, BITS>(base, y[BITS == 4 ? tile_nibble_of(n) : n], &word[n / 8]);
    return enc_half(*d);
}

template <int F, bool BEST, typename BOOKS>
static __device__ __forceinline__ void tile_rms32(const BOOKS &b, float *y, uint8_t *record)
{
    constexpr float signs[32] = { ROTATE_SIGNS32 };
    constexpr bool three = F == FMT_tbq3_0;
    float d;
    uint32_t word[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int k = 0; k < 32; k++)
        y[k] = signs[k] < 0.0f ? -y[k] : y[k];
    lane_steps<32>(y);
    if constexpr (BEST)
        enc_put(record, tile_rms32_best<F, three ? 3 : 4>(b, y, word, &d));
    else
        enc_put(record, tile_rms32_upstream<F, three ? 3 : 4>(b, y, word, &d));
#pragma unroll
    for (int n = 0; n < 4; n++)
        word[n] = d != 0.0f ? ~word[n] : 0;
    if (three) {
        tile_put(record + 2, (word[0] & 0xffffffu) | word[1] << 24);
        tile_put(record + 6, (word[1] >> 8 & 0xffffu) | word[2] << 16);
        tile_put(record + 10, (word[2] >> 16 & 0xffu) | word[3] << 8);
    } else {
#pragma unroll
        for (int n = 0; n < 4; n++)
            tile_put(record + 2 + 4 * n, word[n]);
    }
}

/* The value of largest magnitude, the first of equals; NaN never. */
static __device__ __forceinline__ float tile_top_value(const float *x, float best, float most, float least)
{
    if (best == 0.0f)
        return 0.0f;
    if (most == -least) {
        for (int k = 31; k >= 0; k--)
            most = fabsf(x[k]) == best ? x[k] : most;
        return most;
    }
    return most > -least ? most : least;
}

/* q4_0: trunc(min(max(v + 8.5, 0), 15)), q8_0: halves away from zero; as enc_int has them. */
template <int F> static __device__ __forceinline__ uint32_t tile_integer(float v, bool tame)
{
    if (F == FMT_q8_0) {
        if (tame)
            return (uint32_t)__float2int_rz(v + copysignf(0x1.fffffep-2f, v)) & 255u;
        return v != v ? 0 : (uint32_t)(int)roundf(fminf(fmaxf(v, -127.0f), 127.0f)) & 255u;
    }
    if (tame)
        return __float_as_uint(__fadd_rd(fminf(v + 8.5f, 15.0f), 8388608.0f)) & 15u;
    return v != v ? 8u : (uint32_t)(int)fminf(fmaxf(v + 8.5f, 0.0f), 15.0f);
}

template <int F, bool TAME>
static __device__ __forceinline__ void tile_integers(const float *x, float id, uint8_t *record)
{
#pragma unroll
    for (int n = 0; n < 8; n++) {
        uint32_t c[4], word;
#pragma unroll
        for (int k = 0; k < 4; k++)
            c[k] = tile_integer<F>(x[4 * n + k] * id, TAME);
        word = c[0] | c[1] << 8 | c[2] << 16 | c[3] << 24;
        if (F == FMT_q8_0) {
            tile_put(record + 2 + 4 * n, word);
        } else if (n < 4) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                word |= tile_integer<F>(x[16 + 4 * n + k] * id, TAME) << (8 * k + 4);
            tile_put(record + 2 + 4 * n, word);
        }
    }
}

/* Codes and scale of the search. */
template <int F, typename BOOKS>
static __device__ __forceinline__ void tile_int_best(const BOOKS &b, const float *x, float d, float id, float xx,
                                                     bool ordinary, uint8_t *record)
{
    uint32_t word[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    float found = 1.0f;
    if constexpr (F == FMT_q4_0)
        found = rec_scale<F>(b, x, id);     /* all lanes together */
    if (!ordinary)
        return;
    enc_put(record, F == FMT_q8_0 ? tile_best8(x, d, id, xx, word) : rec_best4(x, found * d, xx, word));
#pragma unroll
    for (int n = 0; n < (F == FMT_q8_0 ? 8 : 4); n++)
        tile_put(record + 2 + 4 * n, F == FMT_q8_0 ? word[n] : ~word[n]);
}

template <int F, bool BEST, typename BOOKS>
static __device__ __forceinline__ void tile_int(const BOOKS &b, float *x, uint8_t *record)
{
    float most = 0.0f, least = 0.0f, sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 32; k++) {
        /* Finite where no value is NaN and `best` is not huge; BEST: that, or infinite. */
        sum[k % 4] = BEST ? fmaf(x[k], x[k], sum[k % 4]) : sum[k % 4] + x[k];
        most = fmaxf(most, F == FMT_q8_0 ? fabsf(x[k]) : x[k]);
        least = F == FMT_q8_0 ? 0.0f : fminf(least, x[k]);
    }
    const float best = fmaxf(most, -least), top = F == FMT_q8_0 ? best : tile_top_value(x, best, most, least);
    const float d = F == FMT_q8_0 ? best / 127.0f : top / -8.0f;
    const float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    const bool huge = !(best > 1e-30f && best < 1e30f), ordinary = !huge && total == total;
    const float id = !huge ? __fdividef(1.0f, d) : d != 0.0f ? 1.0f / d : 0.0f;
    if constexpr (BEST)
        tile_int_best<F>(b, x, d, id, total, ordinary, record);
    if (BEST && ordinary)
        return;
    enc_put(record, enc_half(d));
    if (ordinary)
        tile_integers<F, true>(x, id, record);
    else
        tile_integers<F, false>(x, id, record);
}

/* A lane's 32 values, and the place of the tile's bytes (units one behind the other). */
template <int F, bool BEST, typename BOOKS>
static __device__ __forceinline__ void tile_encode(const BOOKS &b, float *v, uint8_t *out)
{
    constexpr int kind = tile_format<F>::kind, bytes = tile_format<F>::unit_bytes;
    const int lane = threadIdx.x % 32;
    if constexpr (kind == ENC_INT)
        tile_int<F, BEST>(b, v, out + lane * (bytes / 4));
    else
        tile_rms32<F, BEST>(b, v, out + lane * (bytes / 4));
}

#endif
