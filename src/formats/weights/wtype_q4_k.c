/* wtype_q4_k.c: Q4_K weights.
 * Block of 256 values, 144 bytes: f16 d | f16 dmin | u8 sc[12] | u8 qs[128].
 * Eight sub-blocks of 32 with a 6-bit scale s_k and a 6-bit minimum m_k packed into sc:
 *   k < 4:  s_k = sc[k] & 63                          m_k = sc[k+4] & 63
 *   k >= 4: s_k = sc[k+4] & 15 | sc[k-4] >> 6 << 4    m_k = sc[k+4] >> 4 | sc[k] >> 6 << 4
 * qs[32p .. 32p+31]: low nibbles are sub-block 2p, high nibbles 2p+1.   x = d*s_k*n - dmin*m_k.
 *
 * The encoder is a search, not part of the format: per sub-block a scan of scales with a weighted least-squares refit,
 * then the best of the neighbouring 6-bit pairs, then one least-squares refit of d and dmin.  Weight of a value:
 * rms + |x|, so that large weights, which carry the dot product, are fitted a little better (a common choice, not
 * tuned). */
#include "formats/weights/wtype_internal.h"

enum { N = 256, SUB = 32, SUBS = 8, BYTES = 144, STEPS = 21 };

static void unpack_scales(const uint8_t *sc, int k, int *s, int *m)
{
    if (k < 4) {
        *s = sc[k] & 63;
        *m = sc[k + 4] & 63;
    } else {
        *s = (sc[k + 4] & 15) | (sc[k - 4] >> 6) << 4;
        *m = sc[k + 4] >> 4 | (sc[k] >> 6) << 4;
    }
}

static void pack_scales(uint8_t *sc, const int *s, const int *m)
{
    for (int k = 0; k < 4; k++) {
        sc[k] = (uint8_t)(s[k] | (s[k + 4] >> 4) << 6);
        sc[k + 4] = (uint8_t)(m[k] | (m[k + 4] >> 4) << 6);
        sc[k + 8] = (uint8_t)((s[k + 4] & 15) | (m[k + 4] & 15) << 4);
    }
}

void wtype_q4_k_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src)), dmin = half_to_f32(load_u16(src + 2));
        for (int k = 0; k < SUBS; k++) {
            int s, m;
            unpack_scales(src + 4, k, &s, &m);
            const float a = d * (float)s, b = dmin * (float)m; /* exact: 11 + 6 bits */
            const uint8_t *qs = src + 16 + 32 * (k / 2);
            for (int i = 0; i < SUB; i++)
                dst[SUB * k + i] = a * (float)(qs[i] >> 4 * (k & 1) & 15) - b;
        }
    }
}

/* Weighted sums of one sub-block for codes n and values x. */
typedef struct sums {
    double w, wn, wnn, wx, wnx;
} sums;

static int code_of(float x, float inv, float b)
{
    return wtype_clamp_round((x + b) * inv, 0, 15);
}

static double error_of(const float *x, const float *w, float a, float b)
{
    const float inv = a > 0.0f ? 1.0f / a : 0.0f;
    double err = 0;

    for (int i = 0; i < SUB; i++) {
        const float e = a * (float)code_of(x[i], inv, b) - b - x[i];
        err += (double)(w[i] * e * e);
    }
    return err;
}

/* Least squares x = a*n - b with b >= 0 for the codes that (inv, lo) gives. */
static void refit(const float *x, const float *w, float inv, float lo, float *a, float *b)
{
    sums t = { 0 };

    for (int i = 0; i < SUB; i++) {
        const float n = (float)code_of(x[i], inv, -lo), wn = w[i] * n;
        t.w += w[i];
        t.wn += wn;
        t.wnn += wn * n;
        t.wx += w[i] * x[i];
        t.wnx += wn * x[i];
    }
    const double det = t.wnn * t.w - t.wn * t.wn;
    double s = det > 0 ? (t.wnx * t.w - t.wx * t.wn) / det : 0;
    double m = t.w > 0 ? (s * t.wn - t.wx) / t.w : 0;
    if (m < 0) {
        m = 0;
        s = t.wnn > 0 ? t.wnx / t.wnn : 0;
    }
    *a = s > 0 ? (float)s : 0.0f;
    *b = (float)m;
}

/* Real-valued scale a and minimum b of one sub-block. */
static void fit_sub(const float *x, const float *w, float *a, float *b)
{
    float lo = 0.0f, hi = x[0];

    for (int i = 0; i < SUB; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    *a = 0.0f;
    *b = -lo;
    if (!(hi > lo))
        return;
    *a = (hi - lo) / 15.0f;
    double best = error_of(x, w, *a, *b);
    for (int t = 0; t < STEPS; t++) {
        float s, m;
        refit(x, w, (14.0f + 0.1f * (float)t) / (hi - lo), lo, &s, &m);
        const double err = error_of(x, w, s, m);
        if (err < best) {
            best = err;
            *a = s;
            *b = m;
        }
    }
}

/* The 6-bit pair around (a/d, b/dmin) with the smallest error. */
static void pick_pair(const float *x, const float *w, float a, float b, float d, float dmin, int *s, int *m)
{
    const int s0 = d > 0.0f ? wtype_clamp_round(a / d, 0, 63) : 0,
              m0 = dmin > 0.0f ? wtype_clamp_round(b / dmin, 0, 63) : 0;
    double best = INFINITY;

    *s = s0;
    *m = m0;
    for (int i = s0 > 0 ? s0 - 1 : 0; i <= s0 + 1 && i <= 63; i++) {
        for (int j = m0 > 0 ? m0 - 1 : 0; j <= m0 + 1 && j <= 63; j++) {
            const double err = error_of(x, w, d * (float)i, dmin * (float)j);
            if (err < best) {
                best = err;
                *s = i;
                *m = j;
            }
        }
    }
}

static double block_error(const float *x, const float *w, float d, float dmin, const int *s, const int *m)
{
    double err = 0;

    for (int k = 0; k < SUBS; k++)
        err += error_of(x + SUB * k, w + SUB * k, d * (float)s[k], dmin * (float)m[k]);
    return err;
}

static float round_half(float x)
{
    return half_to_f32(f32_to_half(x));
}

/* Least squares of d and dmin over the block with everything else fixed; kept only if it helps. */
static void refit_block(const float *x, const float *w, const int *s, const int *m, float *d, float *dmin)
{
    double pp = 0, pq = 0, qq = 0, px = 0, qx = 0; /* x = d*p - dmin*q with p = s*n, q = m */

    for (int i = 0; i < N; i++) {
        const int k = i / SUB;
        const float a = *d * (float)s[k];
        const double p = s[k] * code_of(x[i], a > 0.0f ? 1.0f / a : 0.0f, *dmin * (float)m[k]), q = m[k], wi = w[i];
        pp += wi * p * p;
        pq += wi * p * q;
        qq += wi * q * q;
        px += wi * p * x[i];
        qx += wi * q * x[i];
    }
    const double det = pp * qq - pq * pq;
    float d1 = pp > 0 ? (float)(px / pp) : 0.0f, m1 = 0.0f;
    if (det > 1e-12 * pp * qq) {
        d1 = (float)((px * qq - qx * pq) / det);
        m1 = (float)((px * pq - qx * pp) / det);
    }
    d1 = round_half(d1);
    m1 = round_half(m1);
    if (d1 >= 0.0f && m1 >= 0.0f && block_error(x, w, d1, m1, s, m) < block_error(x, w, *d, *dmin, s, m)) {
        *d = d1;
        *dmin = m1;
    }
}

static void store_block(uint8_t *dst, const float *x, float d, float dmin, const int *s, const int *m)
{
    store_u16(dst, f32_to_half(d));
    store_u16(dst + 2, f32_to_half(dmin));
    pack_scales(dst + 4, s, m);
    for (int k = 0; k < SUBS; k++) {
        const float a = d * (float)s[k], b = dmin * (float)m[k], inv = a > 0.0f ? 1.0f / a : 0.0f;
        uint8_t *qs = dst + 16 + 32 * (k / 2);
        for (int i = 0; i < SUB; i++) {
            const int n = code_of(x[SUB * k + i], inv, b);
            qs[i] = (uint8_t)(k & 1 ? qs[i] | n << 4 : n);
        }
    }
}

static void quant_block(const float *x, uint8_t *dst)
{
    float w[N], a[SUBS], b[SUBS], amax = 0.0f, bmax = 0.0f;
    int s[SUBS], m[SUBS];

    for (int k = 0; k < SUBS; k++) {
        double ss = 0;
        for (int i = 0; i < SUB; i++)
            ss += (double)x[SUB * k + i] * x[SUB * k + i];
        const float rms = (float)sqrt(ss / SUB);
        for (int i = 0; i < SUB; i++)
            w[SUB * k + i] = rms + fabsf(x[SUB * k + i]);
        fit_sub(x + SUB * k, w + SUB * k, &a[k], &b[k]);
        amax = a[k] > amax ? a[k] : amax;
        bmax = b[k] > bmax ? b[k] : bmax;
    }
    float d = round_half(amax / 63.0f), dmin = round_half(bmax / 63.0f);
    for (int k = 0; k < SUBS; k++)
        pick_pair(x + SUB * k, w + SUB * k, a[k], b[k], d, dmin, &s[k], &m[k]);
    refit_block(x, w, s, m, &d, &dmin);
    store_block(dst, x, d, dmin, s, m);
}

void wtype_q4_k_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES)
        quant_block(src, dst);
}
