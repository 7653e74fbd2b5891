/* encode.cuh: the encoders of the cache formats: eight lanes per 128 values, four rows at once in a warp.
 *
 * The rules are those of formats/<family>/<format>.c.  Rotations add in the references' order and give the same bits;
 * norms and the sums of the search are trees over the lanes where the references add one after another, so a code or a
 * scale may differ where it lies at a boundary, within rounding (class CODE).  NaN and Inf follow the references'
 * comparisons: whatever a row holds, no byte is undefined.
 *
 * A codebook lies across the lanes of a warp, read by shuffles.  best (search.c: the best of seven scales around the
 * start, refitted twice by least squares) judges scales by levels of a half's precision; codes and errors use the
 * book's. */
#ifndef KVANT_CUDA_ENCODE_CUH
#define KVANT_CUDA_ENCODE_CUH

#define static static __device__
#include "base/half.h"
#undef static
#include "devices/cuda/space.cuh"
#include "formats/polar/polar_tables.inc"
#include "formats/turbo/turbo_tables.inc"

/* ---- what a format is made of ---- */

enum enc_kind { ENC_PLAIN, ENC_INT, ENC_RMS32, ENC_NORM128, ENC_POLAR };

template <int F> struct enc_format {
    static constexpr int kind = F == FMT_q8_0 || F == FMT_q4_0                          ? ENC_INT
                                : F == FMT_tbq4_0 || F == FMT_tbq3_0 || F == FMT_turbo4 ? ENC_RMS32
                                : F == FMT_turbo3 || F == FMT_turbo4_66                 ? ENC_NORM128
                                : F == FMT_q4_polar || F == FMT_q4_polar_r              ? ENC_POLAR
                                                                                        : ENC_PLAIN;
    static constexpr int levels = F == FMT_tbq3_0 || F == FMT_turbo3          ? 8
                                  : kind == ENC_PLAIN || kind == ENC_INT ? 1
                                                                         : 16;
};

static __device__ const float enc_tbq4[16] = { TBQ4_CENTROIDS }, enc_tbq3[8] = { TBQ3_CENTROIDS };
static __device__ const float enc_turbo4[16] = { TURBO4_CENTROIDS }, enc_turbo4_mid[15] = { TURBO4_MIDPOINTS };
static __device__ const float enc_turbo3[8] = { TURBO3_CENTROIDS }, enc_turbo3_mid[7] = { TURBO3_MIDPOINTS };
static __device__ const float enc_turbo66[16] = { TURBO4_66_CENTROIDS }, enc_turbo66_mid[15] = { TURBO4_66_MIDPOINTS };
static __device__ const float enc_polar[16] = { POLAR_CENTROIDS }, enc_polar_mid[15] = { POLAR_BOUNDARIES };

/* Centroid k; first[m], between m and m + 1: the format's own boundary, else the midpoint that the search uses. */
template <int F> static __device__ __forceinline__ float enc_centroid(int k)
{
    return F == FMT_tbq4_0       ? enc_tbq4[k]
           : F == FMT_tbq3_0     ? enc_tbq3[k]
           : F == FMT_turbo4     ? enc_turbo4[k]
           : F == FMT_turbo3     ? enc_turbo3[k]
           : F == FMT_turbo4_66  ? enc_turbo66[k]
                                 : enc_polar[k];
}

template <int F> static __device__ __forceinline__ float enc_boundary(int m)
{
    if (F == FMT_turbo4)
        return enc_turbo4_mid[m];
    if (F == FMT_turbo3)
        return enc_turbo3_mid[m];
    if (F == FMT_turbo4_66)
        return enc_turbo66_mid[m];
    if (F == FMT_q4_polar || F == FMT_q4_polar_r)
        return enc_polar_mid[m];
    return 0.5f * (enc_centroid<F>(m) + enc_centroid<F>(m + 1));
}

/* Bins of the code search: bin k holds values v with rint(v * enc_bins) = k - 16, and at most one boundary, which lies
 * 0.14 of a bin or more from the bin's ends: the rounding of the product never leads past it. */
template <int F> static __device__ __forceinline__ constexpr float enc_bins()
{
    return F == FMT_tbq3_0      ? 5.78f
           : F == FMT_turbo3    ? 44.7f
           : F == FMT_turbo4_66 ? 72.09f
           : F == FMT_q4_polar || F == FMT_q4_polar_r ? 6.25f
                                                      : 6.374f;
}

/* What lane k of a warp keeps for all: bin k's boundary, the code below it and the levels on both sides of it (halves:
 * enough to choose among scales), and centroid k. */
typedef struct enc_book {
    float mid, level;
    int base;
    uint32_t sides;
} enc_book;

template <int F> static __device__ __forceinline__ enc_book enc_book_make(void)
{
    constexpr int n = enc_format<F>::levels;
    const int lane = threadIdx.x % 32;
    enc_book b = { -INFINITY, 0.0f, -1, 0 };
    if constexpr (n > 1) {
        const float low = (float)lane - 16.5f;
#pragma unroll
        for (int m = 0; m < n - 1; m++) {
            const float mid = enc_boundary<F>(m), at = mid * enc_bins<F>();
            b.base += at < low;
            b.mid = at >= low && at < low + 1.0f ? mid : b.mid;
        }
        b.base += b.mid > -INFINITY;    /* a boundary inside: the code below it; none: code base + 1 for all */
#pragma unroll
        for (int k = 0; k < n; k++) {
            const uint32_t h = __half_as_ushort(__float2half_rn(enc_centroid<F>(k)));
            b.level = lane == k ? enc_centroid<F>(k) : b.level;
            b.sides |= k == b.base ? h : k == b.base + 1 ? h << 16 : 0;
        }
    }
    return b;
}

/* ---- small pieces ---- */

static __device__ __forceinline__ uint16_t enc_half(float v)
{
    const uint32_t u = __float_as_uint(v);
    const uint16_t nan = (uint16_t)((u >> 16 & 0x8000u) | 0x7e00u | (u >> 13 & 0x1ffu));
    return v == v ? __half_as_ushort(__float2half_rn(v)) : nan;
}

/* Rows and records of two-byte scales lie at even addresses. */
static __device__ __forceinline__ void enc_put(uint8_t *to, uint16_t v)
{
    *(uint16_t *)to = v;
}

/* e4m3 as f8_e4m3.c rounds it: to nearest even, saturated at 448, NaN kept. */
static __device__ __forceinline__ uint8_t f32_to_e4m3_dev(float v)
{
    const uint32_t u = __float_as_uint(v), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (a >= 0x43e00000u)
        return (uint8_t)(sign | 0x7eu);
    if (a < 0x3c800000u)
        return (uint8_t)(sign | (__float_as_uint(__uint_as_float(a) + 16384.0f) - 0x46800000u));
    return (uint8_t)(sign | (((a + 0x7ffffu + (a >> 20 & 1u)) >> 20) - (120u << 3)));
}

/* A scale as it will be stored: never zero and never infinite. */
static __device__ __forceinline__ uint16_t enc_storable(float s)
{
    const uint16_t h = enc_half(s);
    if ((h & 0x7fff) == 0)
        return (uint16_t)(h | 1);
    return (h & 0x7c00) == 0x7c00 ? (uint16_t)((h & 0x8000) | 0x7bff) : h;
}

static __device__ __forceinline__ float enc_value(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

/* sqrt(m) and its inverse, a few units in the last place: they move a code or a scale at a boundary only. */
static __device__ __forceinline__ void enc_root(float m, float *root, float *inverse)
{
    if (m > 1e-30f && m < 1e30f) {
        *inverse = rsqrtf(m);
        *root = m * *inverse;
    } else {
        *root = sqrtf(m);
        *inverse = *root != 0.0f ? 1.0f / *root : 0.0f;
    }
}

/* Sum over the N lanes of a unit. */
template <int N> static __device__ __forceinline__ float enc_sum(float v)
{
#pragma unroll
    for (int m = 1; m < N; m *= 2)
        v += __shfl_xor_sync(0xffffffffu, v, m);
    return v;
}

/* Unnormalised Hadamard over 32 values: four neighbouring ones in each of 8 lanes. */
static __device__ __forceinline__ void enc_butterfly32(float *v)
{
    const float a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
    v[0] = a + c, v[2] = a - c, v[1] = b + d, v[3] = b - d;
#pragma unroll
    for (int m = 1; m < 8; m *= 2) {
        const float sign = threadIdx.x & m ? -1.0f : 1.0f;
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = fmaf(v[k], sign, __shfl_xor_sync(0xffffffffu, v[k], m)); /* one rounding: the sum or difference */
    }
}

/* The same over 128: value 32 j + 4 l + k in v[4 j + k] of lane l. */
static __device__ __forceinline__ void enc_butterfly128(float *v)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        enc_butterfly32(v + 4 * j);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float a = v[k] + v[4 + k], b = v[k] - v[4 + k], c = v[8 + k] + v[12 + k], d = v[8 + k] - v[12 + k];
        v[k] = a + c, v[8 + k] = a - c, v[4 + k] = b + d, v[12 + k] = b - d;
    }
}

/* ---- nearest codes ---- */

#define ENC_MAGIC 12582912.0f              /* 1.5 * 2^23: adding it rounds |t| < 2^22 to an integer */

/* Bin 1 .. 31 in the low bits, which is what a shuffle looks at; beyond: the last ones, NaN: 31.  All lanes of the warp
 * take part in the functions that read the book. */
static __device__ __forceinline__ int enc_bin(float v, float bins)
{
    const float from_top = __saturatef(fmaf(v, -bins / 30.0f, 0.5f));
    return __float_as_int(fmaf(from_top, -30.0f, ENC_MAGIC + 31.0f));
}

/* Number of boundaries <= v (NaN: all). */
static __device__ __forceinline__ int enc_code(const enc_book &b, float v, float bins)
{
    const int bin = enc_bin(v, bins), base = __shfl_sync(0xffffffffu, b.base, bin);
    return v < __shfl_sync(0xffffffffu, b.mid, bin) ? base : base + 1;
}

/* The nearest integer that has a code. */
template <int F> static __device__ __forceinline__ float enc_clamped(float t)
{
    constexpr float lo = F == FMT_q8_0 ? -127.0f : -8.0f, hi = F == FMT_q8_0 ? 127.0f : 7.0f;
    float r = t + ENC_MAGIC;
    r -= ENC_MAGIC;
    r = r > lo ? r : lo;               /* NaN too */
    return r > hi ? hi : r;
}

/* ---- least squares ---- */

typedef struct enc_fit {
    float yv, vv;
} enc_fit;

/* What a code decodes to before the scale. */
template <int F> static __device__ __forceinline__ float enc_level(const enc_book &b, int code)
{
    if constexpr (enc_format<F>::kind == ENC_INT)
        return (float)code;
    else
        return __shfl_sync(0xffffffffu, b.level, code);
}

/* q4_polar_r adds this to each level; bit k of neg: its sign. */
template <int F> static __device__ __forceinline__ float enc_offset(uint32_t neg, int k)
{
    return F == FMT_q4_polar_r ? port_bits(0x3d3504f3u | (neg >> k & 1u) << 31) : 0.0f;
}

template <int F> static __device__ __forceinline__ int enc_pick(const enc_book &b, float v)
{
    if constexpr (enc_format<F>::kind == ENC_INT)
        return __float_as_int(enc_clamped<F>(v) + ENC_MAGIC) - __float_as_int(ENC_MAGIC);
    else
        return enc_code(b, v, enc_bins<F>());
}

/* Codes of the N values at scale s, four to a word. */
template <int F, int N>
static __device__ __forceinline__ void enc_assign(const enc_book &b, const float *y, float s, uint32_t neg,
                                                  uint32_t *code)
{
    const float inv = 1.0f / s;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float t = F == FMT_q4_polar_r ? y[k] * inv - enc_offset<F>(neg, k) : y[k] * inv;
        const uint32_t c = (uint32_t)enc_pick<F>(b, t) & 255u;
        code[k / 4] = k % 4 == 0 ? c : code[k / 4] | c << 8 * (k % 4);
    }
}

/* What the nearest code decodes to, to a half's precision. */
template <int F> static __device__ __forceinline__ float enc_nearest(const enc_book &b, float v)
{
    float level;
    if constexpr (enc_format<F>::kind == ENC_INT) {
        level = enc_clamped<F>(v);
    } else {
        const int bin = enc_bin(v, enc_bins<F>());
        const uint32_t sides = __shfl_sync(0xffffffffu, b.sides, bin);
        const bool below = v < __shfl_sync(0xffffffffu, b.mid, bin);
        level = enc_value((uint16_t)(below ? sides : sides >> 16));
    }
    return level;
}

/* One step of the sum over the 8 lanes of a unit that leaves lane l with the sum of entry l. */
template <int H> static __device__ __forceinline__ void enc_fold(float *x)
{
    const bool upper = threadIdx.x & H;
#pragma unroll
    for (int i = 0; i < H; i++) {
        const float mine = upper ? x[i + H] : x[i], other = upper ? x[i] : x[i + H];
        x[i] = mine + __shfl_xor_sync(0xffffffffu, other, H);
    }
}

/* The best of the seven scales around the guess, refitted: lane l of the 8 judges factor l. */
template <int F, int N>
static __device__ __forceinline__ float enc_start(const enc_book &b, const float *y, float guess, uint32_t neg)
{
    const float factors[7] = { 0.78f, 0.84f, 0.9f, 0.96f, 1.02f, 1.09f, 1.17f };
    const float inv = 1.0f / guess;
    float yv[8], vv[8];
    yv[7] = vv[7] = 0.0f;
#pragma unroll
    for (int i = 0; i < 7; i++) {
        const float by = inv * (1.0f / factors[i]);
        yv[i] = vv[i] = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float off = enc_offset<F>(neg, k);
            const float v = enc_nearest<F>(b, F == FMT_q4_polar_r ? y[k] * by - off : y[k] * by) + off;
            yv[i] = fmaf(y[k], v, yv[i]);
            vv[i] = fmaf(v, v, vv[i]);
        }
    }
    enc_fold<4>(yv), enc_fold<4>(vv);
    enc_fold<2>(yv), enc_fold<2>(vv);
    enc_fold<1>(yv), enc_fold<1>(vv);
    float gain = vv[0] > 0.0f ? yv[0] * yv[0] / vv[0] : 0.0f, s = yv[0] / vv[0];
    if (!(gain > 0.0f)) {
        gain = 0.0f;
        s = 1.0f;
    }
#pragma unroll
    for (int m = 1; m < 8; m *= 2) {   /* the first of equals */
        const float g = __shfl_xor_sync(0xffffffffu, gain, m), o = __shfl_xor_sync(0xffffffffu, s, m);
        if (g > gain || (g == gain && (threadIdx.x & m))) {
            gain = g;
            s = o;
        }
    }
    return s;
}

/* Sums for a refit at scale s. */
template <int F, int N>
static __device__ __forceinline__ enc_fit enc_look(const enc_book &b, const float *y, float s, uint32_t neg)
{
    const float inv = 1.0f / s;
    enc_fit f = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float off = enc_offset<F>(neg, k);
        const float v = enc_nearest<F>(b, F == FMT_q4_polar_r ? y[k] * inv - off : y[k] * inv) + off;
        f.yv = fmaf(y[k], v, f.yv);
        f.vv = fmaf(v, v, f.vv);
    }
    f.yv = enc_sum<8>(f.yv);
    f.vv = enc_sum<8>(f.vv);
    return f;
}

/* Code k of those of enc_assign. */
template <int F> static __device__ __forceinline__ int enc_byte(const uint32_t *code, int k)
{
    return enc_format<F>::kind == ENC_INT ? (int8_t)(code[k / 4] >> 8 * (k % 4)) : code[k / 4] >> 8 * (k % 4) & 255u;
}

template <int F, int N>
static __device__ __forceinline__ float enc_error(const enc_book &b, const float *y, uint16_t scale, uint32_t neg,
                                                  const uint32_t *code)
{
    const float s = enc_value(scale);
    float err = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float e = y[k] - s * (enc_level<F>(b, enc_byte<F>(code, k)) + enc_offset<F>(neg, k));
        err = fmaf(e, e, err);
    }
    return enc_sum<8>(err);
}

/* search.c, with sums over lanes.  Leaves code and scale where nothing is better; returns their error. */
template <int F, int N>
static __device__ __forceinline__ float enc_search(const enc_book &b, const float *y, float guess, uint32_t neg,
                                                   uint32_t *code, uint16_t *scale)
{
    const bool any = fabsf(guess) > 0.0f && fabsf(guess) <= 1e30f;     /* else nothing to search */
    uint32_t found[N / 4];
    if (__all_sync(0xffffffffu, !any))
        return 0.0f;
    const float s = enc_start<F, N>(b, y, guess, neg);
    const enc_fit f = enc_look<F, N>(b, y, enc_value(enc_storable(s)), neg);
    const uint16_t h = enc_storable(f.vv > 0.0f ? f.yv / f.vv : s);
    enc_assign<F, N>(b, y, enc_value(h), neg, found);
    const float before = enc_error<F, N>(b, y, *scale, neg, code), after = enc_error<F, N>(b, y, h, neg, found);
    const bool take = any && (after < before || (!isfinite(before) && isfinite(after)));
#pragma unroll
    for (int k = 0; k < N / 4; k++)
        code[k] = take ? found[k] : code[k];
    *scale = take ? h : *scale;
    return take ? after : before;
}

static __device__ __forceinline__ uint16_t enc_unbiased_scale(float s, uint16_t scale)
{
    const uint16_t h = isfinite(s) ? enc_half(s) : 0;
    return (h & 0x7fff) == 0 || (h & 0x7c00) == 0x7c00 ? scale : h;
}

/* search_unbiased of search.c: the scale that makes <y, decoded> = <y, y>. */
template <int F, int N>
static __device__ __forceinline__ uint16_t enc_unbiased(const enc_book &b, const float *y, uint32_t neg,
                                                        const uint32_t *code, uint16_t scale)
{
    float yy = 0.0f, yv = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) {
        yy = fmaf(y[k], y[k], yy);
        yv = fmaf(y[k], enc_level<F>(b, enc_byte<F>(code, k)) + enc_offset<F>(neg, k), yv);
    }
    yy = enc_sum<8>(yy);
    yv = enc_sum<8>(yv);
    return enc_unbiased_scale(yy / yv, scale);
}

/* ---- packing: lane l of a record of 8 lanes holds values 4 l .. of each 32, a byte each in a word ---- */

/* [scale][16 bytes]: code j low nibble of byte j, code j + 16 the high one. */
static __device__ __forceinline__ void enc_pack_nibbles32(uint8_t *record, uint16_t scale, uint32_t code)
{
    const int l = threadIdx.x % 8;
    const uint32_t word = code | __shfl_down_sync(0xffffffffu, code, 4) << 4;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    if (l < 4) {
        enc_put(record + 2 + 4 * l, (uint16_t)word);
        enc_put(record + 4 + 4 * l, (uint16_t)(word >> 16));
    }
}

static __device__ __forceinline__ void enc_pack_q8(uint8_t *record, uint16_t scale, uint32_t code)
{
    const int l = threadIdx.x % 8;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    enc_put(record + 2 + 4 * l, (uint16_t)code);
    enc_put(record + 4 + 4 * l, (uint16_t)(code >> 16));
}

/* Fields of `bits` bits from each byte of a word, one behind the other. */
static __device__ __forceinline__ uint32_t enc_squeeze(uint32_t code, int bits)
{
    const uint32_t m = (1u << bits) - 1u;
    return (code & m) | (code >> 8 & m) << bits | (code >> 16 & m) << 2 * bits | (code >> 24 & m) << 3 * bits;
}

/* [scale][96 bits]: code j at bits 3 j. */
static __device__ __forceinline__ void enc_pack_tbq3(uint8_t *record, uint16_t scale, uint32_t code)
{
    const int l = threadIdx.x % 8;
    const uint32_t mine = enc_squeeze(code, 3), word = mine | __shfl_down_sync(0xffffffffu, mine, 1) << 12;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    if (l % 2 == 0)
        for (int b = 0; b < 3; b++)
            record[2 + 3 * (l / 2) + b] = (uint8_t)(word >> 8 * b);
}

/* [norm][low two bits of each code][high bits], a record per 32 values. */
static __device__ __forceinline__ void enc_pack_turbo3(uint8_t *record, uint16_t scale, uint32_t code)
{
    const int l = threadIdx.x % 8;
    const uint32_t high = enc_squeeze(code >> 2, 1), pair = high | __shfl_down_sync(0xffffffffu, high, 1) << 4;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    record[2 + l] = (uint8_t)enc_squeeze(code, 2);
    if (l % 2 == 0)
        record[10 + l / 2] = (uint8_t)pair;
}

/* [scale][64 bytes]: value 2 i the low nibble of byte i. */
static __device__ __forceinline__ void enc_pack_nibbles128(uint8_t *row, uint16_t scale, const uint32_t *code)
{
    const int l = threadIdx.x % 8;
    if (!row)
        return;
    if (l == 0)
        enc_put(row, scale);
#pragma unroll
    for (int j = 0; j < 4; j++)
        enc_put(row + 2 + 16 * j + 2 * l, (uint16_t)enc_squeeze(code[j], 4));
}

/* ---- the kinds ---- */

template <int F> static __device__ __forceinline__ uint16_t enc_short(float v)
{
    return F == FMT_bf16 ? f32_to_bf16(v) : enc_half(v);
}

template <int F, bool FULL>
static __device__ __forceinline__ void enc_plain(float scale, float *v, uint8_t *to, int count)
{
    constexpr int bytes = F == FMT_f32 ? 4 : F == FMT_f8_e4m3 ? 1 : 2;
    if (F == FMT_f8_e4m3 && scale != 1.0f) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = v[k] / scale;
    }
    if (FULL || (count >= 4 && ((uintptr_t)to & (4 * bytes - 1)) == 0)) {
        if (F == FMT_f32)
            *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
        else if (F == FMT_f8_e4m3)
            *(uchar4 *)to = make_uchar4(f32_to_e4m3_dev(v[0]), f32_to_e4m3_dev(v[1]), f32_to_e4m3_dev(v[2]),
                                        f32_to_e4m3_dev(v[3]));
        else
            *(ushort4 *)to =
                make_ushort4(enc_short<F>(v[0]), enc_short<F>(v[1]), enc_short<F>(v[2]), enc_short<F>(v[3]));
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k >= count)
                return;
            if (F == FMT_f32)
                ((float *)to)[k] = v[k];
            else if (F == FMT_f8_e4m3)
                to[k] = f32_to_e4m3_dev(v[k]);
            else
                ((uint16_t *)to)[k] = enc_short<F>(v[k]);
        }
    }
}

template <int F, bool BEST>
static __device__ __forceinline__ void enc_int(const enc_book &t, const float *x, uint8_t *record)
{
    float best = 0.0f, top = 0.0f;
    uint32_t code = 0;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (fabsf(x[k]) > best) {
            best = fabsf(x[k]);
            top = x[k];
        }
#pragma unroll
    for (int m = 1; m < 8; m *= 2) {   /* the first of equals: lower lanes win */
        const float b = __shfl_xor_sync(0xffffffffu, best, m), o = __shfl_xor_sync(0xffffffffu, top, m);
        if (b > best || (b == best && (threadIdx.x & m))) {
            best = b;
            top = o;
        }
    }
    const float d = F == FMT_q8_0 ? best / 127.0f : top / -8.0f;
    const float id = best > 1e-30f && best < 1e30f ? __fdividef(1.0f, d) : d != 0.0f ? 1.0f / d : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float v = x[k] * id;
        const int c = v != v                ? 0
                      : F == FMT_q8_0 ? (int)roundf(fminf(fmaxf(v, -127.0f), 127.0f))
                                            : (int)fminf(fmaxf(v + 8.5f, 0.0f), 15.0f) - 8;
        code |= ((uint32_t)c & 255u) << 8 * k;
    }
    uint16_t scale = enc_half(d);
    if (BEST) {
        enc_search<F, 4>(t, x, d, 0, &code, &scale);
        if (F == FMT_q4_0)
            enc_search<F, 4>(t, x, -d, 0, &code, &scale);  /* the codes are not symmetric */
        scale = enc_unbiased<F, 4>(t, x, 0, &code, scale);
    }
    if constexpr (F == FMT_q8_0)
        enc_pack_q8(record, scale, code);
    else
        enc_pack_nibbles32(record, scale, __vadd4(code, 0x08080808u));
}

template <int F, bool BEST>
static __device__ __forceinline__ void enc_rms32(const enc_book &t, float *y, uint8_t *record)
{
    const float4 signs = ((const float4 *)space_signs32)[threadIdx.x % 8];
    float s = 0.0f;
    uint32_t code = 0;
    y[0] *= signs.x, y[1] *= signs.y, y[2] *= signs.z, y[3] *= signs.w;
    enc_butterfly32(y);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        y[k] *= port_bits(0x3e3504f3u);
        s = fmaf(y[k], y[k], s);
    }
    float d, id;
    enc_root(enc_sum<8>(s) / 32.0f, &d, &id);
#pragma unroll
    for (int k = 0; k < 4; k++)
        code |= (uint32_t)enc_code(t, y[k] * id, enc_bins<F>()) << 8 * k;
    code = d != 0.0f ? code : 0;
    uint16_t scale = enc_half(d);
    if (BEST) {
        enc_search<F, 4>(t, y, d, 0, &code, &scale);
        scale = enc_unbiased<F, 4>(t, y, 0, &code, scale);
    }
    if (F == FMT_tbq3_0)
        enc_pack_tbq3(record, scale, code);
    else
        enc_pack_nibbles32(record, scale, code);
}

/* The norm of 128 values, and its inverse (0 for a norm of nearly nothing). */
static __device__ __forceinline__ float enc_norm(const float *y, float *inverse)
{
    float norm;
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < 16; k++)
        s = fmaf(y[k], y[k], s);
    enc_root(enc_sum<8>(s), &norm, inverse);
    *inverse = norm > 1e-10f ? *inverse : 0.0f;
    return norm;
}

/* y *= k, then times the signs of a table of 128. */
static __device__ __forceinline__ void enc_signs(float *y, float k, const float *table)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float4 s = ((const float4 *)table)[8 * j + threadIdx.x % 8];
        y[4 * j] = y[4 * j] * k * s.x, y[4 * j + 1] = y[4 * j + 1] * k * s.y;
        y[4 * j + 2] = y[4 * j + 2] * k * s.z, y[4 * j + 3] = y[4 * j + 3] * k * s.w;
    }
}

template <int F> static __device__ __forceinline__ void enc_codes(const enc_book &t, const float *y, uint32_t *code)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        code[j] = 0;
#pragma unroll
    for (int k = 0; k < 16; k++)
        code[k / 4] |= (uint32_t)enc_code(t, y[k], enc_bins<F>()) << 8 * (k % 4);
}

template <int F, bool BEST>
static __device__ __forceinline__ void enc_norm128(const enc_book &t, float *y, uint8_t *row)
{
    float r = 0.0f, inv, rn, by;
    uint32_t code[4];
    const float norm = enc_norm(y, &inv);
    enc_signs(y, inv, space_signs1);
    enc_butterfly128(y);
    enc_signs(y, port_bits(0x3db504f3u), space_signs2);
    enc_codes<F>(t, y, code);
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const float c = enc_level<F>(t, enc_byte<F>(code, k));
        r = fmaf(c, c, r);
    }
    enc_root(enc_sum<8>(r), &rn, &by);
    uint16_t scale = enc_half(rn > 1e-10f ? norm * by : norm);
    if (BEST) {
#pragma unroll
        for (int k = 0; k < 16; k++)
            y[k] *= norm;
        enc_search<F, 16>(t, y, norm, 0, code, &scale);
        scale = enc_unbiased<F, 16>(t, y, 0, code, scale);
    }
    if (F == FMT_turbo3)
#pragma unroll
        for (int j = 0; j < 4; j++)
            enc_pack_turbo3(row ? row + 14 * j : NULL, scale, code[j]);
    else
        enc_pack_nibbles128(row, scale, code);
}

/* Bit 4 j + k: the sign of value 32 j + 4 l + k is negative. */
static __device__ __forceinline__ uint32_t enc_polar_signs(void)
{
    uint32_t neg = 0;
#pragma unroll
    for (int k = 0; k < 16; k++)
        neg |= (fmt_c_signs[32 * (k / 4) + 4 * (threadIdx.x % 8) + k % 4] < 0.0f ? 1u : 0u) << k;
    return neg;
}

template <int F, bool BEST>
static __device__ __forceinline__ void enc_polar128(const enc_book &t, float *y, uint8_t *row)
{
    uint32_t code[4];
    const uint32_t neg = F == FMT_q4_polar_r ? enc_polar_signs() : 0;
    float inv;
    const float d = enc_norm(y, &inv);
#pragma unroll
    for (int k = 0; k < 16; k++)
        y[k] *= inv;
    enc_butterfly128(y);
    enc_codes<F>(t, y, code);
    bool bit = false;
    if (F == FMT_q4_polar_r) {
        float p = 0.0f;
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const float e = y[k] - enc_level<F>(t, enc_byte<F>(code, k));
            p = neg >> k & 1u ? p - e : p + e;
        }
        bit = enc_sum<8>(p) > 0.0f;
    }
    uint16_t scale = enc_half(d);
    if (BEST) {
#pragma unroll
        for (int k = 0; k < 16; k++)
            y[k] *= d;
        uint32_t other[4] = { code[0], code[1], code[2], code[3] };
        uint16_t other_scale = scale;
        const float err = enc_search<F, 16>(t, y, d, bit ? neg : ~neg, code, &scale);
        if (F == FMT_q4_polar_r && enc_search<F, 16>(t, y, d, bit ? ~neg : neg, other, &other_scale) < err) {
            bit = !bit;
            scale = other_scale;
#pragma unroll
            for (int j = 0; j < 4; j++)
                code[j] = other[j];
        }
        scale = enc_unbiased<F, 16>(t, y, bit ? neg : ~neg, code, scale);
    }
    enc_pack_nibbles128(row, scale, code);
    if (row)
        enc_put(row + 66 + 2 * (threadIdx.x % 8), (uint16_t)(threadIdx.x % 8 == 0 && bit));
}

/* One unit of 128 values of a row from value g on: value 32 j + 4 l + k in v[4 j + k] of lane l of its 8; count of them
 * are the row's own, padded to `left` with zeros.  A warp has four units; row NULL: nothing to store.  FULL: count is
 * 128, and rows of plain values are aligned. */
template <int F, bool BEST, bool FULL>
static __device__ __forceinline__ void enc_unit(const enc_book &t, float scale, float *v, uint8_t *row, int g, int left,
                                                int count)
{
    constexpr int kind = enc_format<F>::kind;
    constexpr int bytes = F == FMT_q8_0 ? 34 : F == FMT_tbq3_0 ? 14 : 18;
    constexpr int wide = F == FMT_f32 ? 4 : F == FMT_f8_e4m3 ? 1 : 2;
    if constexpr (kind == ENC_NORM128) {
        enc_norm128<F, BEST>(t, v, row ? row + g / 128 * (F == FMT_turbo3 ? 56 : 66) : NULL);
    } else if constexpr (kind == ENC_POLAR) {
        enc_polar128<F, BEST>(t, v, row ? row + g / 128 * 82 : NULL);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = 32 * j + 4 * (threadIdx.x % 8);
            uint8_t *record = row && (FULL || 32 * j < left) ? row + (g / 32 + j) * bytes : NULL;
            if constexpr (kind == ENC_INT)
                enc_int<F, BEST>(t, v + 4 * j, record);
            else if constexpr (kind == ENC_RMS32)
                enc_rms32<F, BEST>(t, v + 4 * j, record);
            else if (row)
                enc_plain<F, FULL>(scale, v + 4 * j, row + (g + i) * wide, count - i);
        }
    }
}

#endif
