/* encode_tile.cuh: the coded formats, a tile at a time (tile_codes.cuh): the rules of encode.cuh.  Formats of 128
 * values: `best` only, encode_run.cuh has them upstream. */
#ifndef KVANT_CUDA_ENCODE_TILE_CUH
#define KVANT_CUDA_ENCODE_TILE_CUH

#include "devices/cuda/tile_best.cuh"

/* ---- the kinds ---- */

template <int F, bool BEST>
static __device__ __forceinline__ void tile_rms32(const tile_books &b, float *y, uint8_t *record)
{
    constexpr float signs[32] = { ROTATE_SIGNS32 };
    constexpr bool three = F == FMT_tbq3_0;
    float p[8], d, id;
    uint32_t word[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int k = 0; k < 32; k++)
        y[k] = signs[k] < 0.0f ? -y[k] : y[k];
    tile_steps<32>(y);
#pragma unroll
    for (int k = 0; k < 32; k++) {
        y[k] *= port_bits(0x3e3504f3u);
        p[k / 4] = fmaf(y[k], y[k], k % 4 ? p[k / 4] : 0.0f);
    }
    const float yy = tile_tree(p);
    enc_root(yy / 32.0f, &d, &id);
#pragma unroll
    for (int k = 0; k < 32; k++)
        y[k] *= id;
    uint16_t scale = enc_half(d);
    if constexpr (BEST) {
        scale = tile_best<F, three ? 3 : 4, !three>(b, y, d, scale, yy / d, word);
    } else {
#pragma unroll
        for (int n = 31; n >= 0; n--)
            tile_code<F, false, three ? 3 : 4>(b.codes, y[three ? n : tile_nibble_of(n)], &word[n / 8]);
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
        word[n] = d != 0.0f ? ~word[n] : 0;
    enc_put(record, scale);
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
static __device__ __forceinline__ void tile_q4_best(const tile_books &b, float *x, float d, float id, uint8_t *record)
{
    uint32_t word[4] = { 0, 0, 0, 0 };
    float yy = 0.0f, flip;
#pragma unroll
    for (int k = 0; k < 32; k++) {
        x[k] *= id;
        yy = fmaf(x[k], x[k], yy);
    }
    enc_put(record, tile_best_two<FMT_q4_0, true>(b, x, d, enc_half(d), yy * d, 0, word, &flip));
#pragma unroll
    for (int n = 0; n < 4; n++)
        tile_put(record + 2 + 4 * n, ~word[n]);
}

static __device__ __forceinline__ void tile_q8_best(float *x, float d, float id, uint8_t *record)
{
    uint32_t word[8];
    float yy = 0.0f;
#pragma unroll
    for (int k = 0; k < 32; k++) {
        x[k] *= id;
        yy = fmaf(x[k], x[k], yy);
    }
    enc_put(record, tile_best8(x, d, yy, word));
#pragma unroll
    for (int n = 0; n < 8; n++)
        tile_put(record + 2 + 4 * n, word[n]);
}

template <int F, bool BEST>
static __device__ __forceinline__ void tile_int(const tile_books &b, float *x, uint8_t *record)
{
    float most = 0.0f, least = 0.0f, sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 32; k++) {
        sum[k % 4] += x[k];             /* finite where no value is NaN and `best` is not huge */
        most = fmaxf(most, F == FMT_q8_0 ? fabsf(x[k]) : x[k]);
        least = F == FMT_q8_0 ? 0.0f : fminf(least, x[k]);
    }
    const float best = fmaxf(most, -least), top = F == FMT_q8_0 ? best : tile_top_value(x, best, most, least);
    const float d = F == FMT_q8_0 ? best / 127.0f : top / -8.0f;
    const float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    const bool huge = !(best > 1e-30f && best < 1e30f), ordinary = !huge && total == total;
    const float id = !huge ? __fdividef(1.0f, d) : d != 0.0f ? 1.0f / d : 0.0f;
    if (BEST && ordinary) {
        if constexpr (F == FMT_q8_0)
            tile_q8_best(x, d, id, record);
        else
            tile_q4_best(b, x, d, id, record);
        return;
    }
    enc_put(record, enc_half(d));
    if (ordinary)
        tile_integers<F, true>(x, id, record);
    else
        tile_integers<F, false>(x, id, record);
}

/* This lane's signs of a table of 128, eight at 8 k. */
static __device__ __forceinline__ void tile_signs(const float *table, int k, float *s)
{
    const float4 *at = (const float4 *)(table + 32 * k + 8 * (threadIdx.x % 4));
    const float4 a = at[0], b = at[1];
    s[0] = a.x, s[1] = a.y, s[2] = a.z, s[3] = a.w, s[4] = b.x, s[5] = b.y, s[6] = b.z, s[7] = b.w;
}

struct tile_table128 {
    float v[128];
};

static constexpr tile_table128 tile_scaled_signs()
{
    constexpr float signs[128] = { ROTATE_SIGNS2 };
    tile_table128 t = {};
    for (int i = 0; i < 128; i++)
        t.v[i] = signs[i] * 0x1.6a09e6p-4f;                 /* 1/sqrt(128), 0x3db504f3 */
    return t;
}

static __device__ const __align__(16) tile_table128 tile_signs2 = tile_scaled_signs();

/* y times `by`, then times the values of a table. */
static __device__ __forceinline__ void tile_times(float *y, const float *by, const float *table)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float s[8];
        tile_signs(table, k, s);
#pragma unroll
        for (int i = 0; i < 8; i++)
            y[8 * k + i] = by ? y[8 * k + i] * *by * s[i] : y[8 * k + i] * s[i];
    }
}

template <int F> static __device__ __forceinline__ void tile_norm128(const tile_books &b, float *y, uint8_t *row)
{
    const int q = threadIdx.x % 4;
    float inv;
    uint32_t word[4] = { 0, 0, 0, 0 };
    const float norm = tile_norm(y, &inv);
    tile_times(y, &inv, space_signs1);
    tile_butterfly(y);
    tile_times(y, NULL, tile_signs2.v);
    const uint16_t scale = tile_best<F, 4, false>(b, y, norm, enc_half(norm), norm, word);
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (F == FMT_turbo3) {
            enc_put(row + 14 * k + 2 + 2 * q, (uint16_t)tile_squeeze(~word[k] & 0x33333333u, 2));
            row[14 * k + 10 + q] = (uint8_t)tile_squeeze(~word[k] >> 2 & 0x11111111u, 1);
        } else {
            tile_put(row + 2 + 16 * k + 4 * q, ~word[k]);
        }
    if (F == FMT_turbo3)
        enc_put(row + 14 * q, scale);
    else if (q == 0)
        enc_put(row, scale);
}

/* q4_polar_r: the upstream codes of a unit, in word; the residual's bit. */
static __device__ __forceinline__ bool tile_polar_codes(const tile_books &b, const float *y, uint32_t *word)
{
    float p[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float level[8], s[8];
        word[k] = 0;
        tile_signs(fmt_c_signs, k, s);
#pragma unroll
        for (int i = 7; i >= 0; i--)
            level[i] = tile_code<FMT_q4_polar_r, true, 4>(b.codes, y[8 * k + i], &word[k]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            p[i / 4] = fmaf(y[8 * k + i] - level[i], s[i], p[i / 4]);
    }
    return tile_sum(p) > 0.0f;      /* NaN: not */
}

/* Bit k: this lane's value k has a negative sign in the residual. */
static __device__ __forceinline__ uint32_t tile_negative(void)
{
    uint32_t neg = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float s[8];
        tile_signs(fmt_c_signs, k, s);
#pragma unroll
        for (int i = 0; i < 8; i++)
            neg |= (__float_as_uint(s[i]) >> 31) << (8 * k + i);
    }
    return neg;
}

template <int F> static __device__ __forceinline__ void tile_polar128(const tile_books &b, float *y, uint8_t *row)
{
    const int q = threadIdx.x % 4;
    float inv;
    uint32_t word[4] = { 0, 0, 0, 0 };
    bool bit = false;
    const float d = tile_norm(y, &inv);
    uint16_t scale = enc_half(d);
#pragma unroll
    for (int k = 0; k < 32; k++)
        y[k] *= inv;
    tile_butterfly(y);
    if constexpr (F == FMT_q4_polar) {
        scale = tile_best<F, 4, false>(b, y, d, scale, 128.0f * d, word);
    } else {
        float flip;
        uint32_t other[4];
        const uint16_t found = tile_best_two<F, false>(b, y, d, scale, 128.0f * d, tile_negative(), word, &flip);
        bit = flip > 0.0f;
        if (__any_sync(0xffffffffu, flip == 0.0f)) {        /* zeros, NaN, Inf: as upstream */
            const bool upstream = tile_polar_codes(b, y, other);
            bit = flip == 0.0f ? upstream : bit;
#pragma unroll
            for (int k = 0; k < 4; k++)
                word[k] = flip == 0.0f ? other[k] : word[k];
        }
        scale = flip == 0.0f ? scale : found;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        tile_put(row + 2 + 16 * k + 4 * q, ~word[k]);
    tile_put(row + 66 + 4 * q, q == 0 && bit);
    if (q == 0)
        enc_put(row, scale);
}

/* A lane's 32 values, and the place of the tile's bytes (units one behind the other). */
template <int F, bool BEST>
static __device__ __forceinline__ void tile_encode(const tile_books &b, float *v, uint8_t *out)
{
    constexpr int kind = tile_format<F>::kind, bytes = tile_format<F>::unit_bytes;
    const int lane = threadIdx.x % 32;
    if constexpr (kind == ENC_INT)
        tile_int<F, BEST>(b, v, out + lane * (bytes / 4));
    else if constexpr (kind == ENC_RMS32)
        tile_rms32<F, BEST>(b, v, out + lane * (bytes / 4));
    else if constexpr (kind == ENC_NORM128)
        tile_norm128<F>(b, v, out + lane / 4 * bytes);
    else
        tile_polar128<F>(b, v, out + lane / 4 * bytes);
}

#endif
