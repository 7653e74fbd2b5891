/* encode_integers.cuh: q8_0 and q4_0's upstream for a tile: a record's largest value is worth the outermost integer
 * (formats/plain).  A lane has a record. */
#ifndef KVANT_CUDA_ENCODE_INTEGERS_CUH
#define KVANT_CUDA_ENCODE_INTEGERS_CUH

#include "devices/cuda/encode/encode_format.cuh"

/* The value of largest magnitude, the first of equals; NaN never. */
static __device__ __forceinline__ float enc_top_value(const float *x)
{
    float most = 0.0f, least = 0.0f;
#pragma unroll
    for (int k = 0; k < 32; k++) {
        most = fmaxf(most, x[k]);
        least = fminf(least, x[k]);
    }
    if (most != -least || most == 0.0f)
        return most > -least ? most : least;
    float top = most;
    for (int k = 31; k >= 0; k--)
        top = fabsf(x[k]) == most ? x[k] : top;
    return top;
}

/* A record's scale d and its inverse; the sum of values (BEST: of squares) in `sum`: NaN where a value is. */
typedef struct enc_integer_unit {
    float d, id, sum;
    bool ordinary;          /* no NaN, no value so great or small that sums or inverses are not ordinary */
} enc_integer_unit;

template <int F, bool BEST> static __device__ __forceinline__ enc_integer_unit enc_integer_unit_of(const float *x)
{
    float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, best = 0.0f;
#pragma unroll
    for (int k = 0; k < 32; k++) {
        sum[k % 4] = BEST ? fmaf(x[k], x[k], sum[k % 4]) : sum[k % 4] + x[k];
        best = fmaxf(best, fabsf(x[k]));
    }
    enc_integer_unit u;
    u.sum = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    u.d = enc_format<F>::bytes ? best / 127.0f : enc_top_value(x) / -8.0f;
    const bool huge = !(best > 1e-30f && best < 1e30f);
    u.id = !huge ? __fdividef(1.0f, u.d) : u.d != 0.0f ? 1.0f / u.d : 0.0f;
    u.ordinary = !huge && u.sum == u.sum;
    return u;
}

/* q4_0: trunc(min(max(v + 8.5, 0), 15)); q8_0: halves away from zero. */
template <int F> static __device__ __forceinline__ uint32_t enc_integer(float v, bool ordinary)
{
    if (enc_format<F>::bytes) {
        if (ordinary)
            return (uint32_t)__float2int_rz(v + copysignf(0x1.fffffep-2f, v)) & 255u;
        return v != v ? 0 : (uint32_t)(int)roundf(fminf(fmaxf(v, -127.0f), 127.0f)) & 255u;
    }
    if (ordinary)
        return __float_as_uint(__fadd_rd(fminf(v + 8.5f, 15.0f), 8388608.0f)) & 15u;
    return v != v ? 8u : (uint32_t)(int)fminf(fmaxf(v + 8.5f, 0.0f), 15.0f);
}

template <int F, bool ORDINARY>
static __device__ __forceinline__ void enc_integer_words(const float *x, float id, uint32_t *word)
{
    constexpr int bits = card<F>::bits, each = 32 / bits;
#pragma unroll
    for (int n = 0; n < enc_format<F>::words; n++) {
        word[n] = 0;
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int k = enc_format<F>::bytes ? 4 * n + i : enc_value_at<F>(n, i);
            word[n] |= enc_integer<F>(x[k] * id, ORDINARY) << bits * i;
        }
    }
}

/* ---- q8_0, `best` ---- */

/* The best of scales that need no level beyond the last; with less scale the largest value errs more than all others
 * may gain. */
template <int N>
static __device__ __forceinline__ float enc_try_bytes(const float *x, float id, const float (&scales)[N])
{
    float inv[N], sum[N];
#pragma unroll
    for (int s = 0; s < N; s++) {
        inv[s] = id * (1.0f / scales[s]);
        sum[s] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < 32; k++)
#pragma unroll
        for (int s = 0; s < N; s++) {
            const float v = fmaf(x[k], inv[s], ENC_MAGIC) - ENC_MAGIC, e = fmaf(x[k], inv[s], -v);
            sum[s] = fmaf(e, e, sum[s]);
        }
    float least = INFINITY, best = 1.0f;
#pragma unroll
    for (int s = 0; s < N; s++) {
        const float cost = sum[s] * (scales[s] * scales[s]);
        best = cost < least ? scales[s] : best;
        least = fminf(least, cost);
    }
    return best;
}

/* Codes and the scale that is stored. */
static __device__ __forceinline__ uint16_t enc_best_bytes(const float *x, const enc_integer_unit &u, uint32_t *word)
{
    constexpr float scales[4] = { 0.999f, 1.009f, 1.024f, 1.09f };
    const uint16_t near = enc_storable(enc_try_bytes(x, u.id, scales) * u.d);
    const float by = __fdividef(1.0f / 254.0f, enc_value(near));
    float yv = 0.0f;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        uint32_t c[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float y = x[4 * n + k];
            const float v = fmaf(__saturatef(fmaf(y, by, 0.5f)), 254.0f, ENC_MAGIC - 127.0f);
            yv = fmaf(y, v - ENC_MAGIC, yv);
            c[k] = __float_as_uint(v);
        }
        word[n] = __byte_perm(__byte_perm(c[0], c[1], 0x0040), __byte_perm(c[2], c[3], 0x0040), 0x5410);
    }
    return enc_unbiased_scale(u.sum / yv, near);
}

/* A lane's values; `out`: records one behind the other. */
template <int F, bool BEST> static __device__ __forceinline__ void enc_integers(const float *x, uint8_t *out)
{
    const enc_integer_unit u = enc_integer_unit_of<F, BEST>(x);
    uint32_t word[8];
    uint16_t scale = enc_half(u.d);
    if (!u.ordinary)
        enc_integer_words<F, false>(x, u.id, word);
    else if (BEST)
        scale = enc_best_bytes(x, u, word);
    else
        enc_integer_words<F, true>(x, u.id, word);
    enc_put_record<enc_format<F>::words>(out, scale, word);
}

#endif
