/* encode.cuh: the encoders of the cache formats, a warp per 128 values, four neighbouring ones per lane.
 *
 * The rules are those of formats/<family>/<format>.c.  Rotations add in the references' order and give the same bits;
 * norms and the sums of the search are trees over the lanes where the references add one after another, so a code or a
 * scale may differ where it lies at a boundary, within rounding (class CODE).  NaN and Inf follow the references'
 * comparisons: whatever a row holds, no byte is undefined.
 *
 * A codebook lies in shared memory with one copy per lane, so that reading by code never waits: best of (scales of
 * search.c: seven around the start, two refits by least squares) costs ten passes over values in registers. */
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
    static constexpr int lanes = kind == ENC_NORM128 || kind == ENC_POLAR ? 32 : 8;    /* that share a scale */
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

template <int F> struct enc_tables {
    float c[enc_format<F>::levels][32], mid[enc_format<F>::levels][32];
};

template <int F> static __device__ void enc_tables_load(enc_tables<F> *t)
{
    constexpr int n = enc_format<F>::levels;
    if constexpr (n > 1)
        for (int i = threadIdx.x; i < n * 32; i += blockDim.x) {
            t->c[i / 32][i % 32] = enc_centroid<F>(i / 32);
            t->mid[i / 32][i % 32] = i / 32 < n - 1 ? enc_boundary<F>(i / 32) : 0.0f;
        }
}

/* ---- small pieces ---- */

static __device__ __forceinline__ uint16_t enc_half(float v)
{
    return v == v ? __half_as_ushort(__float2half_rn(v)) : f32_to_half(v);
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

/* Sum over the N lanes that share a scale. */
template <int N> static __device__ __forceinline__ float enc_sum(float v)
{
#pragma unroll
    for (int m = 1; m < N; m *= 2)
        v += __shfl_xor_sync(0xffffffffu, v, m);
    return v;
}

/* Unnormalised Hadamard over blocks of 4 N values. */
template <int N> static __device__ __forceinline__ void enc_butterfly(float *v)
{
    const float a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
    v[0] = a + c, v[2] = a - c, v[1] = b + d, v[3] = b - d;
#pragma unroll
    for (int m = 1; m < N; m *= 2)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float o = __shfl_xor_sync(0xffffffffu, v[k], m);
            v[k] = threadIdx.x & m ? o - v[k] : v[k] + o;
        }
}

/* ---- nearest codes ---- */

/* Number of boundaries <= t (NaN: all): three or four steps of a binary search. */
template <int F> static __device__ __forceinline__ int enc_code(const enc_tables<F> &t, float v)
{
    const int lane = threadIdx.x % 32;
    int k = 0;
#pragma unroll
    for (int step = enc_format<F>::levels / 2; step; step /= 2)
        k += v < t.mid[k + step - 1][lane] ? 0 : step;
    return k;
}

static __device__ __forceinline__ int enc_integer(float t, float lo, float hi)
{
    float r = t + 12582912.0f;         /* 1.5 * 2^23: rounds |t| < 2^22 to an integer */
    r -= 12582912.0f;
    r = r > lo ? r : lo;               /* NaN too */
    r = r > hi ? hi : r;
    return (int)r;
}

/* ---- least squares ---- */

typedef struct enc_fit {
    float yv, vv;
} enc_fit;

/* What a code decodes to before the scale; off: added to each (q4_polar_r). */
template <int F> static __device__ __forceinline__ float enc_level(const enc_tables<F> &t, int code)
{
    if constexpr (enc_format<F>::kind == ENC_INT)
        return (float)code;
    else
        return t.c[code][threadIdx.x % 32];
}

template <int F> static __device__ __forceinline__ int enc_pick(const enc_tables<F> &t, float v)
{
    if constexpr (F == FMT_q8_0)
        return enc_integer(v, -127.0f, 127.0f);
    else if constexpr (F == FMT_q4_0)
        return enc_integer(v, -8.0f, 7.0f);
    else
        return enc_code<F>(t, v);
}

template <int F>
static __device__ __forceinline__ enc_fit enc_assign(const enc_tables<F> &t, const float *y, float s, const float *off,
                                                     int *code)
{
    const float inv = 1.0f / s;
    enc_fit f = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 4; k++) {
        code[k] = enc_pick<F>(t, F == FMT_q4_polar_r ? y[k] * inv - off[k] : y[k] * inv);
        const float v = enc_level<F>(t, code[k]) + (F == FMT_q4_polar_r ? off[k] : 0.0f);
        f.yv = fmaf(y[k], v, f.yv);
        f.vv = fmaf(v, v, f.vv);
    }
    f.yv = enc_sum<enc_format<F>::lanes>(f.yv);
    f.vv = enc_sum<enc_format<F>::lanes>(f.vv);
    return f;
}

template <int F>
static __device__ __forceinline__ float enc_error(const enc_tables<F> &t, const float *y, uint16_t scale,
                                                  const float *off, const int *code)
{
    const float s = enc_value(scale);
    float err = 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float e = y[k] - s * (enc_level<F>(t, code[k]) + (F == FMT_q4_polar_r ? off[k] : 0.0f));
        err = fmaf(e, e, err);
    }
    return enc_sum<enc_format<F>::lanes>(err);
}

/* search.c, with sums over lanes.  Leaves code and scale where nothing is better; returns their error. */
template <int F>
static __device__ float enc_search(const enc_tables<F> &t, const float *y, float guess, const float *off, int *code,
                                   uint16_t *scale)
{
    const float factors[7] = { 0.78f, 0.84f, 0.9f, 0.96f, 1.02f, 1.09f, 1.17f };
    const bool any = fabsf(guess) > 0.0f && fabsf(guess) <= 1e30f;     /* else nothing to search */
    float gain = 0.0f, s = 1.0f;
    int found[4];
    if (__all_sync(0xffffffffu, !any))
        return 0.0f;
#pragma unroll
    for (int i = 0; i < 7; i++) {
        const enc_fit f = enc_assign<F>(t, y, guess * factors[i], off, found);
        const float g = f.yv * f.yv / f.vv;
        if (f.vv > 0.0f && g > gain) {
            gain = g;
            s = f.yv / f.vv;
        }
    }
    const enc_fit f = enc_assign<F>(t, y, enc_value(enc_storable(s)), off, found);
    const uint16_t h = enc_storable(f.vv > 0.0f ? f.yv / f.vv : s);
    enc_assign<F>(t, y, enc_value(h), off, found);
    const float before = enc_error<F>(t, y, *scale, off, code), after = enc_error<F>(t, y, h, off, found);
    const bool take = any && (after < before || (!isfinite(before) && isfinite(after)));
#pragma unroll
    for (int k = 0; k < 4; k++)
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
template <int F>
static __device__ uint16_t enc_unbiased(const enc_tables<F> &t, const float *y, const float *off, const int *code,
                                        uint16_t scale)
{
    float yy = 0.0f, yv = 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        yy = fmaf(y[k], y[k], yy);
        yv = fmaf(y[k], enc_level<F>(t, code[k]) + (F == FMT_q4_polar_r ? off[k] : 0.0f), yv);
    }
    yy = enc_sum<enc_format<F>::lanes>(yy);
    yv = enc_sum<enc_format<F>::lanes>(yv);
    return enc_unbiased_scale(yy / yv, scale);
}

/* ---- packing: lane l of a record of 8 lanes holds values 4 l .. ---- */

/* [scale][16 bytes]: code j low nibble of byte j, code j + 16 the high one. */
static __device__ __forceinline__ void enc_pack_nibbles32(uint8_t *record, uint16_t scale, const int *code)
{
    const int l = threadIdx.x % 8;
    const uint32_t mine = (uint32_t)(code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24);
    const uint32_t high = __shfl_down_sync(0xffffffffu, mine, 4), word = mine | high << 4;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    if (l < 4) {
        enc_put(record + 2 + 4 * l, (uint16_t)word);
        enc_put(record + 4 + 4 * l, (uint16_t)(word >> 16));
    }
}

static __device__ __forceinline__ void enc_pack_q8(uint8_t *record, uint16_t scale, const int *code)
{
    const int l = threadIdx.x % 8;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    enc_put(record + 2 + 4 * l, (uint16_t)((code[0] & 255) | (code[1] & 255) << 8));
    enc_put(record + 4 + 4 * l, (uint16_t)((code[2] & 255) | (code[3] & 255) << 8));
}

/* [scale][96 bits]: code j at bits 3 j. */
static __device__ __forceinline__ void enc_pack_tbq3(uint8_t *record, uint16_t scale, const int *code)
{
    const int l = threadIdx.x % 8;
    const uint32_t mine = (uint32_t)(code[0] | code[1] << 3 | code[2] << 6 | code[3] << 9);
    const uint32_t word = mine | __shfl_down_sync(0xffffffffu, mine, 1) << 12;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    if (l % 2 == 0)
        for (int b = 0; b < 3; b++)
            record[2 + 3 * (l / 2) + b] = (uint8_t)(word >> 8 * b);
}

/* [norm][low two bits of each code][high bits], a record per 32 values. */
static __device__ __forceinline__ void enc_pack_turbo3(uint8_t *record, uint16_t scale, const int *code)
{
    const int l = threadIdx.x % 8;
    const uint32_t high = (uint32_t)(code[0] >> 2 | code[1] >> 2 << 1 | code[2] >> 2 << 2 | code[3] >> 2 << 3);
    const uint32_t pair = high | __shfl_down_sync(0xffffffffu, high, 1) << 4;
    if (l == 0)
        enc_put(record, scale);
    record[2 + l] = (uint8_t)((code[0] & 3) | (code[1] & 3) << 2 | (code[2] & 3) << 4 | (code[3] & 3) << 6);
    if (l % 2 == 0)
        record[10 + l / 2] = (uint8_t)pair;
}

/* [scale][64 bytes]: value 2 i the low nibble of byte i. */
static __device__ __forceinline__ void enc_pack_nibbles128(uint8_t *row, uint16_t scale, const int *code)
{
    const int lane = threadIdx.x % 32;
    if (lane == 0)
        enc_put(row, scale);
    enc_put(row + 2 + 2 * lane, (uint16_t)(code[0] | code[1] << 4 | code[2] << 8 | code[3] << 12));
}

/* ---- the kinds ---- */

template <int F> static __device__ __forceinline__ uint16_t enc_short(float v)
{
    return F == FMT_bf16 ? f32_to_bf16(v) : enc_half(v);
}

template <int F>
static __device__ __forceinline__ void enc_plain(float scale, const float *v, uint8_t *row, int g, int count)
{
    constexpr int bytes = F == FMT_f32 ? 4 : F == FMT_f8_e4m3 ? 1 : 2;
    const int i = 4 * (threadIdx.x % 32);
    uint8_t *to = row + (g + i) * bytes;
    if (i + 4 <= count && ((uintptr_t)to & (4 * bytes - 1)) == 0) {
        if (F == FMT_f32)
            *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
        else if (F == FMT_f8_e4m3)
            *(uchar4 *)to = make_uchar4(f32_to_e4m3_dev(v[0] / scale), f32_to_e4m3_dev(v[1] / scale),
                                        f32_to_e4m3_dev(v[2] / scale), f32_to_e4m3_dev(v[3] / scale));
        else
            *(ushort4 *)to =
                make_ushort4(enc_short<F>(v[0]), enc_short<F>(v[1]), enc_short<F>(v[2]), enc_short<F>(v[3]));
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (i + k >= count)
            return;
        if (F == FMT_f32)
            ((float *)to)[k] = v[k];
        else if (F == FMT_f8_e4m3)
            to[k] = f32_to_e4m3_dev(v[k] / scale);
        else
            ((uint16_t *)to)[k] = enc_short<F>(v[k]);
    }
}

template <int F>
static __device__ __forceinline__ void enc_int(const enc_tables<F> &t, int encoder, const float *x, uint8_t *record)
{
    float best = 0.0f, top = 0.0f;
    int code[4];
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
    const float d = F == FMT_q8_0 ? best / 127.0f : top / -8.0f, id = d != 0.0f ? 1.0f / d : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float v = x[k] * id;
        if (F == FMT_q8_0)
            code[k] = v != v ? 0 : (int)roundf(fminf(fmaxf(v, -127.0f), 127.0f));
        else
            code[k] = v != v ? 0 : (int)fminf(fmaxf(v + 8.5f, 0.0f), 15.0f) - 8;
    }
    uint16_t scale = enc_half(d);
    if (encoder == KVANT_ENCODER_BEST) {
        enc_search<F>(t, x, d, NULL, code, &scale);
        if (F == FMT_q4_0)
            enc_search<F>(t, x, -d, NULL, code, &scale);   /* the codes are not symmetric */
        scale = enc_unbiased<F>(t, x, NULL, code, scale);
    }
    if constexpr (F == FMT_q8_0) {
        enc_pack_q8(record, scale, code);
    } else {
        const int nibbles[4] = { code[0] + 8, code[1] + 8, code[2] + 8, code[3] + 8 };
        enc_pack_nibbles32(record, scale, nibbles);
    }
}

template <int F>
static __device__ __forceinline__ void enc_rms32(const enc_tables<F> &t, int encoder, float *y, uint8_t *record)
{
    float s = 0.0f;
    int code[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        y[k] *= space_signs32[4 * (threadIdx.x % 8) + k];
    enc_butterfly<8>(y);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        y[k] *= port_bits(0x3e3504f3u);
        s = fmaf(y[k], y[k], s);
    }
    const float d = sqrtf(enc_sum<8>(s) / 32.0f), id = d != 0.0f ? 1.0f / d : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++)
        code[k] = d != 0.0f ? enc_code<F>(t, y[k] * id) : 0;
    uint16_t scale = enc_half(d);
    if (encoder == KVANT_ENCODER_BEST) {
        enc_search<F>(t, y, d, NULL, code, &scale);
        scale = enc_unbiased<F>(t, y, NULL, code, scale);
    }
    if (F == FMT_tbq3_0)
        enc_pack_tbq3(record, scale, code);
    else
        enc_pack_nibbles32(record, scale, code);
}

template <int F>
static __device__ __forceinline__ void enc_norm128(const enc_tables<F> &t, int encoder, float *y, uint8_t *row)
{
    const int lane = threadIdx.x % 32;
    float s = 0.0f, r = 0.0f;
    int code[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        s = fmaf(y[k], y[k], s);
    const float norm = sqrtf(enc_sum<32>(s)), inv = norm > 1e-10f ? 1.0f / norm : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++)
        y[k] = y[k] * inv * space_signs1[4 * lane + k];
    enc_butterfly<32>(y);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        y[k] = y[k] * port_bits(0x3db504f3u) * space_signs2[4 * lane + k];
        code[k] = enc_code<F>(t, y[k]);
        const float c = enc_level<F>(t, code[k]);
        r = fmaf(c, c, r);
    }
    const float rn = sqrtf(enc_sum<32>(r));
    uint16_t scale = enc_half(rn > 1e-10f ? norm / rn : norm);
    if (encoder == KVANT_ENCODER_BEST) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            y[k] *= norm;
        enc_search<F>(t, y, norm, NULL, code, &scale);
        scale = enc_unbiased<F>(t, y, NULL, code, scale);
    }
    if (F == FMT_turbo3)
        enc_pack_turbo3(row + lane / 8 * 14, scale, code);
    else
        enc_pack_nibbles128(row, scale, code);
}

template <int F>
static __device__ __forceinline__ void enc_polar128(const enc_tables<F> &t, int encoder, float *y, uint8_t *row)
{
    const int lane = threadIdx.x % 32;
    float s = 0.0f, p = 0.0f, off[4];
    int code[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        s = fmaf(y[k], y[k], s);
    const float d = sqrtf(enc_sum<32>(s)), inv = d > 1e-10f ? 1.0f / d : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++)
        y[k] *= inv;
    enc_butterfly<32>(y);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        code[k] = enc_code<F>(t, y[k]);
        p = fmaf(y[k] - enc_level<F>(t, code[k]), fmt_c_signs[4 * lane + k], p);
    }
    bool bit = F == FMT_q4_polar_r && enc_sum<32>(p) > 0.0f;
    uint16_t scale = enc_half(d);
    if (encoder == KVANT_ENCODER_BEST) {
        int other[4];
        uint16_t other_scale = scale;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            y[k] *= d;
            other[k] = code[k];
            off[k] = (bit ? port_bits(0x3d3504f3u) : -port_bits(0x3d3504f3u)) * fmt_c_signs[4 * lane + k];
        }
        const float err = enc_search<F>(t, y, d, off, code, &scale);
        if (F == FMT_q4_polar_r) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                off[k] = -off[k];
            if (enc_search<F>(t, y, d, off, other, &other_scale) < err) {
                bit = !bit;
                scale = other_scale;
#pragma unroll
                for (int k = 0; k < 4; k++)
                    code[k] = other[k];
            } else {
#pragma unroll
                for (int k = 0; k < 4; k++)
                    off[k] = -off[k];
            }
        }
        scale = enc_unbiased<F>(t, y, off, code, scale);
    }
    enc_pack_nibbles128(row, scale, code);
    if (lane < 8)
        enc_put(row + 66 + 2 * lane, (uint16_t)(lane == 0 && bit));
}

/* One unit of 128 values v (four per lane) from value g of a row on; `left` values to the row's end, padded to the
 * format's group; count of them are the row's own. */
template <int F>
static __device__ __forceinline__ void enc_unit(const enc_tables<F> &t, int encoder, float scale, float *v,
                                                uint8_t *row, int g, int left, int count)
{
    constexpr int kind = enc_format<F>::kind;
    constexpr int bytes = F == FMT_q8_0 ? 34 : F == FMT_tbq3_0 ? 14 : 18;
    const int lane = threadIdx.x % 32;
    if constexpr (kind == ENC_PLAIN) {
        enc_plain<F>(scale, v, row, g, count);
    } else if constexpr (kind == ENC_INT || kind == ENC_RMS32) {
        uint8_t *record = 4 * lane < left ? row + (g / 32 + lane / 8) * bytes : NULL;
        if constexpr (kind == ENC_INT)
            enc_int<F>(t, encoder, v, record);
        else
            enc_rms32<F>(t, encoder, v, record);
    } else if constexpr (kind == ENC_NORM128) {
        enc_norm128<F>(t, encoder, v, row + g / 128 * (F == FMT_turbo3 ? 56 : 66));
    } else {
        enc_polar128<F>(t, encoder, v, row + g / 128 * 82);
    }
}

#endif
