/* encode_search.cuh: the encoder `best`, formats/search.c by the eight lanes of a unit. */
#ifndef KVANT_CUDA_ENCODE_SEARCH_CUH
#define KVANT_CUDA_ENCODE_SEARCH_CUH

#include "devices/cuda/encode/encode_book.cuh"

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
    const uint16_t h = __half_as_ushort(__float2half_rn(s));
    return (h & 0x7fffu) - 1u < 0x7bffu ? h : scale;    /* not 0, Inf or NaN */
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

#endif
