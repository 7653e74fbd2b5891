/* moe_body.h: moe_route and moe_combine on vectors; included by moe_<isa>.c after vf_<isa>.h. */
#include <string.h>

#include "ops/moe_choose.h"
#include "ops/op_util.h"

/* p = softmax of one row of n logits; p has room for whole vectors. */
static void softmax_row(const float *logits, float *p, int n)
{
    float top = logits[0], sum = 0.0f;

    for (int e = 1; e < n; e++)
        if (logits[e] > top)
            top = logits[e];
    for (int e = 0; e < n; e += VF_LANES) {
        const int left = n - e < VF_LANES ? n - e : VF_LANES;
        vf_store_n(p + e, vf_exp(vf_sub(vf_load_n(logits + e, left), vf_set1(top))), left);
    }
    for (int e = 0; e < n; e++)
        sum += p[e];
    for (int e = 0; e < n; e++)
        p[e] /= sum;
}

static void sigmoid_row(const float *logits, float *p, int n)
{
    for (int e = 0; e < n; e += VF_LANES) {
        const int left = n - e < VF_LANES ? n - e : VF_LANES;
        vf_store_n(p + e, vf_sigmoid(vf_load_n(logits + e, left)), left);
    }
}

static void gate_row(const kvant_moe_route_args *a, const float *logits, float *p)
{
    if (a->gating == KVANT_GATING_SOFTMAX)
        softmax_row(logits, p, a->n_expert);
    else if (a->gating == KVANT_GATING_SIGMOID)
        sigmoid_row(logits, p, a->n_expert);
    else
        memcpy(p, logits, (size_t)a->n_expert * sizeof *p);
}

static void moe_route(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_moe_route_args *a = args;
    float *p = work->local;
    int64_t lo, hi;

    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        gate_row(a, a->logits + i * a->n_expert, p);
        moe_choose(a, p, p + a->n_expert + VF_LANES, a->ids + i * a->k, a->wts + i * a->k);
    }
}

static size_t moe_route_local(const void *args)
{
    const kvant_moe_route_args *a = args;
    return ((size_t)a->n_expert + VF_LANES + moe_choose_floats(a)) * sizeof(float);
}

const kvant_cpu_kernel VF_KERNEL(moe_route) = { .stages = 1, .fn = { moe_route }, .local_bytes = moe_route_local };

static void moe_combine(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_moe_combine_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int e = 0; e < a->d; e += VF_LANES) {
            const int n = a->d - e < VF_LANES ? a->d - e : VF_LANES;
            vf sum = vf_zero();

            for (int j = 0; j < a->k; j++)
                sum = vf_fma(vf_set1(a->wts[i * a->k + j]), vf_load_n(a->x + (i * a->k + j) * a->d + e, n), sum);
            vf_store_n(a->y + i * a->d + e, sum, n);
        }
}

const kvant_cpu_kernel VF_KERNEL(moe_combine) = { .stages = 1, .fn = { moe_combine } };
