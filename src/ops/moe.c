/* moe.c: scalar references of moe_route and moe_combine.  Source: docs/ops.md. */
#include <math.h>
#include "ops/moe_choose.h"
#include "ops/op_util.h"

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

/* p[e] = the gate of one row of logits. */
static void gate_row(const kvant_moe_route_args *a, const float *logits, float *p)
{
    if (a->gating == KVANT_GATING_SOFTMAX)
        softmax_row(logits, p, a->n_expert);
    else
        for (int e = 0; e < a->n_expert; e++)
            p[e] = a->gating == KVANT_GATING_SIGMOID ? 1.0f / (1.0f + expf(-logits[e])) : logits[e];
}

static void moe_route(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_moe_route_args *a = args;
    float *p = work->local;
    int64_t lo, hi;

    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        gate_row(a, a->logits + i * a->n_expert, p);
        moe_choose(a, p, p + a->n_expert, a->ids + i * a->k, a->wts + i * a->k);
    }
}

static size_t moe_route_local(const void *args)
{
    const kvant_moe_route_args *a = args;
    return ((size_t)a->n_expert + moe_choose_floats(a)) * sizeof(float);
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
