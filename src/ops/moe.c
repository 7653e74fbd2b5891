/* moe.c: scalar references of moe_route and moe_combine.  Source: docs/ops.md. */
#include <math.h>
#include "ops/op_util.h"

static const float LEAST_SUM = 6.103515625e-5f; /* 2^-14: keeps the renormalised weights finite */

/* p[e] = softmax of one row of logits. */
static void softmax_row(const float *logits, float *p, int n)
{
    float top = logits[0];
    double sum = 0.0;

    for (int e = 1; e < n; e++)
        if (logits[e] > top)
            top = logits[e];
    for (int e = 0; e < n; e++) {
        p[e] = expf(logits[e] - top);
        sum += (double)p[e];
    }
    for (int e = 0; e < n; e++)
        p[e] = (float)(p[e] / sum);
}

/* The largest p not yet taken (taken ones are negative), lower id first; NaNs rank last, so ids stay valid. */
static int best_expert(const float *p, int n)
{
    int best = -1, spare = -1;

    for (int e = 0; e < n; e++) {
        if (p[e] >= 0.0f && (best < 0 || p[e] > p[best]))
            best = e;
        if (spare < 0 && isnan(p[e]))
            spare = e;
    }
    return best >= 0 ? best : spare;
}

static void moe_route(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_moe_route_args *a = args;
    float *p = work->local;
    int64_t lo, hi;

    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        float sum = 0.0f;

        softmax_row(a->logits + i * a->n_expert, p, a->n_expert);
        for (int j = 0; j < a->k; j++) {
            const int e = best_expert(p, a->n_expert);

            a->ids[i * a->k + j] = e;
            a->wts[i * a->k + j] = p[e];
            sum += p[e];
            p[e] = -1.0f;
        }
        if (sum < LEAST_SUM)
            sum = LEAST_SUM;
        for (int j = 0; j < a->k; j++)
            a->wts[i * a->k + j] = a->wts[i * a->k + j] / sum * a->scale;
    }
}

static size_t moe_route_local(const void *args)
{
    return (size_t)((const kvant_moe_route_args *)args)->n_expert * sizeof(float);
}

const kvant_cpu_kernel kvant_moe_route_ref = { .stages = 1, .fn = { moe_route }, .local_bytes = moe_route_local };

static void moe_combine(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_moe_combine_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int e = 0; e < a->d; e++) {
            float sum = 0.0f;

            for (int j = 0; j < a->k; j++)
                sum += a->wts[i * a->k + j] * a->x[(i * a->k + j) * a->d + e];
            a->y[i * a->d + e] = sum;
        }
}

const kvant_cpu_kernel kvant_moe_combine_ref = { .stages = 1, .fn = { moe_combine } };
