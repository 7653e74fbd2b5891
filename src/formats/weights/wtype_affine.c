/* wtype_affine.c: the encoder of the types whose sub-blocks have a scale and a minimum (Q2_K Q4_K Q5_K).
 *
 * It is a search, not part of the format: per sub-block a scan of scales with a weighted least-squares refit, then the
 * best of the neighbouring pairs of small integers, then one least-squares refit of d and dmin.  Weight of a value:
 * rms + |x|, so that large weights, which carry the dot product, are fitted a little better (a common choice, not
 * tuned); with an importance matrix what wtype_importance makes of it. */
#include "formats/weights/wtype_internal.h"

/* Q4_K and Q5_K: scale and minimum k of the twelve bytes at sc. */
void wtype_six_bit_unpack(const uint8_t *sc, int k, int *s, int *m)
{
    if (k < 4) {
        *s = sc[k] & 63;
        *m = sc[k + 4] & 63;
    } else {
        *s = (sc[k + 4] & 15) | (sc[k - 4] >> 6) << 4;
        *m = sc[k + 4] >> 4 | (sc[k] >> 6) << 4;
    }
}

void wtype_six_bit_pack(uint8_t *sc, const int *s, const int *m)
{
    for (int k = 0; k < 4; k++) {
        sc[k] = (uint8_t)(s[k] | (s[k + 4] >> 4) << 6);
        sc[k + 4] = (uint8_t)(m[k] | (m[k + 4] >> 4) << 6);
        sc[k + 8] = (uint8_t)((s[k + 4] & 15) | (m[k + 4] & 15) << 4);
    }
}

enum { VALUES = 256, MOST_SUBS = 16, STEPS = 21 };

static int code_of(const wtype_affine *p, float x, float inv, float b)
{
    return wtype_clamp_round((x + b) * inv, 0, p->top);
}

/* Weighted sums of one sub-block for codes n and values x. */
typedef struct affine_sums {
    double w, wn, wnn, wx, wnx;
} affine_sums;

int wtype_affine_code(const wtype_affine *p, float x, float a, float b)
{
    return code_of(p, x, a > 0.0f ? 1.0f / a : 0.0f, b);
}

static double error_of(const wtype_affine *p, const float *x, const float *w, float a, float b)
{
    const float inv = a > 0.0f ? 1.0f / a : 0.0f;
    double err = 0;

    for (int i = 0; i < p->sub; i++) {
        const float e = a * (float)code_of(p, x[i], inv, b) - b - x[i];
        err += (double)(w[i] * e * e);
    }
    return err;
}

/* Least squares x = a*n - b with b >= 0 for the codes that (inv, lo) gives. */
static void refit(const wtype_affine *p, const float *x, const float *w, float inv, float lo, float *a, float *b)
{
    affine_sums t = { 0 };

    for (int i = 0; i < p->sub; i++) {
        const float n = (float)code_of(p, x[i], inv, -lo), wn = w[i] * n;
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
static void fit_sub(const wtype_affine *p, const float *x, const float *w, float *a, float *b)
{
    float lo = 0.0f, hi = x[0];

    for (int i = 0; i < p->sub; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    *a = 0.0f;
    *b = -lo;
    if (!(hi > lo))
        return;
    *a = (hi - lo) / (float)p->top;
    double best = error_of(p, x, w, *a, *b);
    for (int t = 0; t < STEPS; t++) {
        float s, m;
        refit(p, x, w, ((float)(p->top - 1) + 0.1f * (float)t) / (hi - lo), lo, &s, &m);
        const double err = error_of(p, x, w, s, m);
        if (err < best) {
            best = err;
            *a = s;
            *b = m;
        }
    }
}

/* The pair around (a/d, b/dmin) with the smallest error. */
static void pick_pair(const wtype_affine *p, const float *x, const float *w, float a, float b, float d, float dmin,
                      int *s, int *m)
{
    const int s0 = d > 0.0f ? wtype_clamp_round(a / d, 0, p->s_top) : 0,
              m0 = dmin > 0.0f ? wtype_clamp_round(b / dmin, 0, p->m_top) : 0;
    double best = INFINITY;

    *s = s0;
    *m = m0;
    for (int i = s0 > 0 ? s0 - 1 : 0; i <= s0 + 1 && i <= p->s_top; i++) {
        for (int j = m0 > 0 ? m0 - 1 : 0; j <= m0 + 1 && j <= p->m_top; j++) {
            const double err = error_of(p, x, w, d * (float)i, dmin * (float)j);
            if (err < best) {
                best = err;
                *s = i;
                *m = j;
            }
        }
    }
}

static double block_error(const wtype_affine *p, const float *x, const float *w, float d, float dmin, const int *s,
                          const int *m)
{
    double err = 0;

    for (int k = 0; k < p->subs; k++)
        err += error_of(p, x + p->sub * k, w + p->sub * k, d * (float)s[k], dmin * (float)m[k]);
    return err;
}

/* Least squares of d and dmin over the block with everything else fixed; kept only if it helps. */
static void refit_block(const wtype_affine *p, const float *x, const float *w, const int *s, const int *m, float *d,
                        float *dmin)
{
    double pp = 0, pq = 0, qq = 0, px = 0, qx = 0; /* x = d*pi - dmin*q with pi = s*n, q = m */

    for (int i = 0; i < VALUES; i++) {
        const int k = i / p->sub;
        const float a = *d * (float)s[k];
        const double pi = s[k] * code_of(p, x[i], a > 0.0f ? 1.0f / a : 0.0f, *dmin * (float)m[k]), q = m[k], wi = w[i];
        pp += wi * pi * pi;
        pq += wi * pi * q;
        qq += wi * q * q;
        px += wi * pi * x[i];
        qx += wi * q * x[i];
    }
    const double det = pp * qq - pq * pq;
    float d1 = pp > 0 ? (float)(px / pp) : 0.0f, m1 = 0.0f;
    if (det > 1e-12 * pp * qq) {
        d1 = (float)((px * qq - qx * pq) / det);
        m1 = (float)((px * pq - qx * pp) / det);
    }
    d1 = wtype_round_half(d1);
    m1 = wtype_round_half(m1);
    if (d1 >= 0.0f && m1 >= 0.0f && block_error(p, x, w, d1, m1, s, m) < block_error(p, x, w, *d, *dmin, s, m)) {
        *d = d1;
        *dmin = m1;
    }
}

/* Weights of a sub-block where nothing is known of what it is multiplied with. */
static void plain_weights(const float *x, int n, float *w)
{
    double ss = 0;

    for (int i = 0; i < n; i++)
        ss += (double)x[i] * x[i];
    const float rms = (float)sqrt(ss / n);
    for (int i = 0; i < n; i++)
        w[i] = rms + fabsf(x[i]);
}

void wtype_affine_fit(const wtype_affine *p, const float *x, const float *importance, wtype_affine_block *to)
{
    float w[VALUES], a[MOST_SUBS], b[MOST_SUBS], amax = 0.0f, bmax = 0.0f;

    if (importance)
        wtype_importance(x, importance, VALUES, w);
    for (int k = 0; k < p->subs; k++) {
        if (!importance)
            plain_weights(x + p->sub * k, p->sub, w + p->sub * k);
        fit_sub(p, x + p->sub * k, w + p->sub * k, &a[k], &b[k]);
        amax = a[k] > amax ? a[k] : amax;
        bmax = b[k] > bmax ? b[k] : bmax;
    }
    to->d = wtype_round_half(amax / (float)p->s_top);
    to->dmin = wtype_round_half(bmax / (float)p->m_top);
    for (int k = 0; k < p->subs; k++)
        pick_pair(p, x + p->sub * k, w + p->sub * k, a[k], b[k], to->d, to->dmin, &to->s[k], &to->m[k]);
    refit_block(p, x, w, to->s, to->m, &to->d, &to->dmin);
}
