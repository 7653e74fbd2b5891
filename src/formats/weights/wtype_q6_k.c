/* wtype_q6_k.c: Q6_K weights.
 * Block of 256 values, 210 bytes: u8 ql[128] | u8 qh[64] | i8 sc[16] | f16 d.
 * Half H (128 values), l in 0..31, with ql' = ql + 64H, qh' = qh + 32H, sc' = sc + 8H:
 *   value l      : (ql'[l] & 15    | (qh'[l]      & 3) << 4) - 32, scale sc'[l/16]
 *   value l + 32 : (ql'[l+32] & 15 | (qh'[l] >> 2 & 3) << 4) - 32, scale sc'[l/16 + 2]
 *   value l + 64 : (ql'[l] >> 4    | (qh'[l] >> 4 & 3) << 4) - 32, scale sc'[l/16 + 4]
 *   value l + 96 : (ql'[l+32] >> 4 | (qh'[l] >> 6)     << 4) - 32, scale sc'[l/16 + 6]
 * So sub-block k (16 values in order) has scale sc[k].   x = d * sc * q.
 *
 * The encoder is a search, not part of the format: per sub-block a scan of scales with a least-squares refit
 * weighted by x^2, then the best of the neighbouring 8-bit scales, then one refit of d. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, SUB = 16, SUBS = 16, BYTES = 210, QH = 128, SC = 192, D = 208, STEPS = 21 };

void wtype_q6_k_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src + D));
        for (int i = 0; i < N; i++) {
            const int half = i / 128, l = i % 32, quarter = i % 128 / 32;
            const int lo = src[64 * half + l + 32 * (quarter & 1)] >> 4 * (quarter >> 1) & 15;
            const int hi = src[QH + 32 * half + l] >> 2 * quarter & 3;
            const float scale = d * (float)(int8_t)src[SC + i / SUB]; /* exact: 11 + 7 bits */
            dst[i] = scale * (float)((lo | hi << 4) - 32);
        }
    }
}

static int code_of(float x, float inv)
{
    return wtype_clamp_round(x * inv, -32, 31);
}

static float inverse(float a)
{
    return a != 0.0f ? 1.0f / a : 0.0f;
}

static double error_of(const float *x, float a)
{
    const float inv = inverse(a);
    double err = 0;

    for (int i = 0; i < SUB; i++) {
        const float e = a * (float)code_of(x[i], inv) - x[i];
        err += (double)(x[i] * x[i] * e * e);
    }
    return err;
}

/* Real-valued scale of one sub-block; its sign puts the largest value on -32, which is one step further than 31. */
static float fit_sub(const float *x)
{
    float peak = 0.0f, best_a = 0.0f;
    double best = INFINITY;

    for (int i = 0; i < SUB; i++)
        if (fabsf(x[i]) > fabsf(peak))
            peak = x[i];
    for (int t = 0; t < STEPS && peak != 0.0f; t++) {
        const float inv = -(31.0f + 0.1f * (float)t) / peak;
        double nx = 0, nn = 0;
        for (int i = 0; i < SUB; i++) {
            const double n = code_of(x[i], inv), w = (double)x[i] * x[i];
            nx += w * n * x[i];
            nn += w * n * n;
        }
        const float a = nn > 0 ? (float)(nx / nn) : peak / -32.0f;
        const double err = error_of(x, a);
        if (err < best) {
            best = err;
            best_a = a;
        }
    }
    return best_a;
}

static int pick_scale(const float *x, float a, float d)
{
    const int s0 = d != 0.0f ? wtype_clamp_round(a / d, -128, 127) : 0;
    int s = s0;
    double best = INFINITY;

    for (int i = s0 > -128 ? s0 - 1 : s0; i <= s0 + 1 && i <= 127; i++) {
        const double err = error_of(x, d * (float)i);
        if (err < best) {
            best = err;
            s = i;
        }
    }
    return s;
}

static double block_error(const float *x, float d, const int *s)
{
    double err = 0;

    for (int k = 0; k < SUBS; k++)
        err += error_of(x + SUB * k, d * (float)s[k]);
    return err;
}

/* Least squares of d with codes and scales fixed; kept only if it helps. */
static float refit_block(const float *x, float d, const int *s)
{
    double px = 0, pp = 0;

    for (int i = 0; i < N; i++) {
        const float a = d * (float)s[i / SUB];
        const double p = (double)s[i / SUB] * code_of(x[i], inverse(a)), w = (double)x[i] * x[i];
        px += w * p * x[i];
        pp += w * p * p;
    }
    const float d1 = pp > 0 ? half_to_f32(f32_to_half((float)(px / pp))) : d;
    return block_error(x, d1, s) < block_error(x, d, s) ? d1 : d;
}

static void store_block(uint8_t *dst, const float *x, float d, const int *s)
{
    memset(dst, 0, BYTES);
    for (int k = 0; k < SUBS; k++)
        dst[SC + k] = (uint8_t)s[k];
    store_u16(dst + D, f32_to_half(d));
    for (int i = 0; i < N; i++) {
        const int half = i / 128, l = i % 32, quarter = i % 128 / 32;
        const int q = code_of(x[i], inverse(d * (float)s[i / SUB])) + 32;
        uint8_t *lo = &dst[64 * half + l + 32 * (quarter & 1)], *hi = &dst[QH + 32 * half + l];
        *lo = (uint8_t)(*lo | (q & 15) << 4 * (quarter >> 1));
        *hi = (uint8_t)(*hi | (q >> 4) << 2 * quarter);
    }
}

static void quant_block(const float *x, uint8_t *dst)
{
    float a[SUBS], peak = 0.0f;
    int s[SUBS];

    for (int k = 0; k < SUBS; k++) {
        a[k] = fit_sub(x + SUB * k);
        if (fabsf(a[k]) > fabsf(peak))
            peak = a[k];
    }
    float d = half_to_f32(f32_to_half(peak / -128.0f));
    for (int k = 0; k < SUBS; k++)
        s[k] = pick_scale(x + SUB * k, a[k], d);
    d = refit_block(x, d, s);
    store_block(dst, x, d, s);
}

void wtype_q6_k_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES)
        quant_block(src, dst);
}
