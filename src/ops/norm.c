/* norm.c: scalar references of norm_rms, norm_layer, norm_add_rms, norm_l2 and norm_gated.
 * Sums of squares in double, mean rounded to f32, scale = 1/sqrtf(mean + eps): the rule of llama.cpp's CPU code, which
 * the golden files follow.  Source: docs/ops.md. */
#include <math.h>
#include "ops/op_util.h"

static float rms_scale(const float *x, int d, float eps)
{
    double sum = 0.0;

    for (int i = 0; i < d; i++)
        sum += (double)x[i] * (double)x[i];
    return 1.0f / sqrtf((float)(sum / d) + eps);
}

static void norm_row(const float *x, const float *w, float *y, int d, float eps)
{
    const float scale = rms_scale(x, d, eps);

    for (int i = 0; i < d; i++)
        y[i] = x[i] * scale * w[i];
}

static void norm_rms(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_rms_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->h; j++)
            norm_row(a->x + i * a->ldx + j * a->gx, a->w, a->y + i * a->ldy + j * a->gy, a->d, a->eps);
}

const kvant_cpu_kernel kvant_norm_rms_ref = { .stages = 1, .fn = { norm_rms } };

static void layer_row(const float *x, const float *w, const float *b, float *y, int d, float eps)
{
    double sum = 0.0, squares = 0.0;

    for (int i = 0; i < d; i++)
        sum += (double)x[i];
    const float mean = (float)(sum / d);
    for (int i = 0; i < d; i++)
        squares += (double)(x[i] - mean) * (double)(x[i] - mean);
    const float scale = 1.0f / sqrtf((float)(squares / d) + eps);
    for (int i = 0; i < d; i++)
        y[i] = (x[i] - mean) * scale * w[i] + (b ? b[i] : 0.0f);
}

static void norm_layer(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_layer_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int64_t i = u / a->h, j = u % a->h;

        layer_row(a->x + i * a->ldx + j * a->gx, a->w + j * a->gw, a->b ? a->b + j * a->gw : NULL,
                  a->y + i * a->ldy + j * a->gy, a->d, a->eps);
    }
}

const kvant_cpu_kernel kvant_norm_layer_ref = { .stages = 1, .fn = { norm_layer } };

static void norm_add_rms(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_add_rms_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        float *x = a->x + i * a->d;
        const float *add = a->add + i * a->d;

        for (int j = 0; j < a->d; j++)
            x[j] += add[j];
        norm_row(x, a->w, a->y + i * a->d, a->d, a->eps);
    }
}

const kvant_cpu_kernel kvant_norm_add_rms_ref = { .stages = 1, .fn = { norm_add_rms } };

static void norm_l2(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_l2_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->h; j++) {
            float *x = a->x + i * a->ldx + j * a->gx;
            double sum = 0.0;

            for (int e = 0; e < a->d; e++)
                sum += (double)x[e] * (double)x[e];
            const float length = sqrtf((float)sum);
            const float scale = 1.0f / (length < a->eps ? a->eps : length); /* a NaN length stays NaN */
            for (int e = 0; e < a->d; e++)
                x[e] *= scale;
        }
}

const kvant_cpu_kernel kvant_norm_l2_ref = { .stages = 1, .fn = { norm_l2 } };

/* Per head: norm first, then the gate silu(z). */
static void norm_gated(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_gated_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->h; j++) {
            const float *o = a->o + (i * a->h + j) * a->dv, *z = a->z + i * a->ldz + (int64_t)j * a->dv;
            float *y = a->y + (i * a->h + j) * a->dv;
            const float scale = rms_scale(o, a->dv, a->eps);

            for (int e = 0; e < a->dv; e++)
                y[e] = o[e] * scale * a->w[e] * (z[e] / (1.0f + expf(-z[e])));
        }
}

const kvant_cpu_kernel kvant_norm_gated_ref = { .stages = 1, .fn = { norm_gated } };
