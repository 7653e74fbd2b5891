/* wtype_signed.c: the encoder of the types whose sub-blocks have a signed scale and nothing else (Q3_K Q6_K IQ4_NL
 * IQ4_XS).
 *
 * It is a search, not part of the format: per sub-block a scan of scales with a least-squares refit weighted by x^2 (or
 * by what an importance matrix says), then the best of the neighbouring small integers, then one refit of d. */
#include "formats/weights/wtype_internal.h"

enum { MOST_VALUES = 256, MOST_SUBS = 16, STEPS = 21 };

/* The index of the level nearest to v. */
static int level_index(const int8_t *levels, float v)
{
    int best = 0;

    while (best < 15 && v > 0.5f * (float)(levels[best] + levels[best + 1]))
        best++;
    return best;
}

static int code_of(const wtype_signed *p, float x, float inv)
{
    return p->levels ? p->levels[level_index(p->levels, x * inv)] : wtype_clamp_round(x * inv, p->lo, p->hi);
}

int wtype_signed_code(const wtype_signed *p, float x, float a)
{
    const float inv = a != 0.0f ? 1.0f / a : 0.0f;

    return p->levels ? level_index(p->levels, x * inv) : code_of(p, x, inv);
}

static float inverse(float a)
{
    return a != 0.0f ? 1.0f / a : 0.0f;
}

/* w: weights of the values, or NULL: their squares. */
static double error_of(const wtype_signed *p, const float *x, const float *w, float a)
{
    const float inv = inverse(a);
    double err = 0;

    for (int i = 0; i < p->sub; i++) {
        const float e = a * (float)code_of(p, x[i], inv) - x[i];
        err += (double)((w ? w[i] : x[i] * x[i]) * e * e);
    }
    return err;
}

static double weight_of(const float *x, const float *w, int i)
{
    return w ? (double)w[i] : (double)x[i] * x[i];
}

/* Returns the code, in steps of the scale, that try t gives the largest value. */
static float try_of(const wtype_signed *p, int t)
{
    return p->levels ? (float)p->lo * (0.85f + 0.015f * (float)t) : -((float)(-p->lo - 1) + 0.1f * (float)t);
}

/* Real-valued scale of one sub-block; its sign puts the largest value on lo, which is further from zero than hi. */
static float fit_sub(const wtype_signed *p, const float *x, const float *w)
{
    float peak = 0.0f, best_a = 0.0f;
    double best = INFINITY;

    for (int i = 0; i < p->sub; i++)
        if (fabsf(x[i]) > fabsf(peak))
            peak = x[i];
    for (int t = 0; t < STEPS && peak != 0.0f; t++) {
        const float inv = try_of(p, t) / peak;
        double nx = 0, nn = 0;
        for (int i = 0; i < p->sub; i++) {
            const double n = code_of(p, x[i], inv), wi = weight_of(x, w, i);
            nx += wi * n * x[i];
            nn += wi * n * n;
        }
        const float a = nn > 0 ? (float)(nx / nn) : peak / (float)p->lo;
        const double err = error_of(p, x, w, a);
        if (err < best) {
            best = err;
            best_a = a;
        }
    }
    return best_a;
}

static int pick_scale(const wtype_signed *p, const float *x, const float *w, float a, float d)
{
    const int s0 = d != 0.0f ? wtype_clamp_round(a / d, p->s_lo, p->s_hi) : 0;
    int s = s0;
    double best = INFINITY;

    for (int i = s0 > p->s_lo ? s0 - 1 : s0; i <= s0 + 1 && i <= p->s_hi; i++) {
        const double err = error_of(p, x, w, d * (float)i);
        if (err < best) {
            best = err;
            s = i;
        }
    }
    return s;
}

static const float *sub_of(const float *w, int at)
{
    return w ? w + at : NULL;
}

static double block_error(const wtype_signed *p, const float *x, const float *w, float d, const int *s)
{
    double err = 0;

    for (int k = 0; k < p->subs; k++)
        err += error_of(p, x + p->sub * k, sub_of(w, p->sub * k), d * (float)s[k]);
    return err;
}

/* Least squares of d with codes and scales fixed; kept only if it helps. */
static float refit_block(const wtype_signed *p, const float *x, const float *w, float d, const int *s)
{
    double px = 0, pp = 0;

    for (int i = 0; i < p->values; i++) {
        const float a = d * (float)s[i / p->sub];
        const double pi = (double)s[i / p->sub] * code_of(p, x[i], inverse(a)), wi = weight_of(x, w, i);
        px += wi * pi * x[i];
        pp += wi * pi * pi;
    }
    const float d1 = pp > 0 ? wtype_round_half((float)(px / pp)) : d;
    return block_error(p, x, w, d1, s) < block_error(p, x, w, d, s) ? d1 : d;
}

void wtype_importance(const float *x, const float *importance, int n, float *w)
{
    double ss = 0;

    for (int i = 0; i < n; i++)
        ss += (double)x[i] * x[i];
    const float level = (float)(2.0 * ss / n);
    for (int i = 0; i < n; i++)
        w[i] = importance[i] * sqrtf(level + x[i] * x[i]);
}

float wtype_signed_fit(const wtype_signed *p, const float *x, const float *importance, int *s)
{
    float a[MOST_SUBS], weights[MOST_VALUES], peak = 0.0f;
    const float *w = importance ? weights : NULL;

    if (importance)
        wtype_importance(x, importance, p->values, weights);
    for (int k = 0; k < p->subs; k++) {
        a[k] = fit_sub(p, x + p->sub * k, sub_of(w, p->sub * k));
        if (fabsf(a[k]) > fabsf(peak))
            peak = a[k];
    }
    float d = wtype_round_half(peak / (float)p->s_lo);
    for (int k = 0; k < p->subs; k++)
        s[k] = pick_scale(p, x + p->sub * k, sub_of(w, p->sub * k), a[k], d);
    return refit_block(p, x, w, d, s);
}
