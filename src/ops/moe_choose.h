/* ops/moe_choose.h: the choice of experts from the gates of one row, shared by all kernels of moe_route on the CPU. */
#ifndef KVANT_OPS_MOE_CHOOSE_H
#define KVANT_OPS_MOE_CHOOSE_H

#include <math.h>

#include "kvant/ops.h"

#define MOE_LEAST_SUM 6.103515625e-5f  /* 2^-14: keeps the renormalised weights finite */
#define MOE_LEAST_SCORE (-1e38f)       /* scores end here, so that -infinity can mean: not to be chosen */

/* The largest of n scores, lower id first; NaNs rank last, so ids stay valid. */
static inline int moe_best(const float *score, int n)
{
    int best = -1, spare = -1;

    for (int e = 0; e < n; e++) {
        if (score[e] > -INFINITY && (best < 0 || score[e] > score[best]))
            best = e;
        if (spare < 0 && isnan(score[e]))
            spare = e;
    }
    return best >= 0 ? best : spare;
}

/* The sum of the group_best largest of n scores. */
static inline float moe_group_score(const float *score, int n, int group_best)
{
    float first = MOE_LEAST_SCORE, second = MOE_LEAST_SCORE;

    for (int e = 0; e < n; e++)
        if (score[e] > first) {
            second = first;
            first = score[e];
        } else if (score[e] > second) {
            second = score[e];
        }
    return group_best == 1 ? first : first + second;
}

static inline void moe_close_groups(const kvant_moe_route_args *a, float *score, float *group)
{
    const int each = a->n_expert / a->n_group;

    for (int g = 0; g < a->n_group; g++)
        group[g] = moe_group_score(score + g * each, each, a->group_best);
    for (int j = 0; j < a->top_groups; j++)
        group[moe_best(group, a->n_group)] = -INFINITY;
    for (int e = 0; e < a->n_expert; e++)
        if (group[e / each] > -INFINITY)
            score[e] = -INFINITY;
}

/* wts = softmax of themselves. */
static inline void moe_softmax_chosen(float *wts, int k)
{
    float top = wts[0], sum = 0.0f;

    for (int j = 1; j < k; j++)
        top = wts[j] > top ? wts[j] : top;
    for (int j = 0; j < k; j++)
        sum += wts[j] = expf(wts[j] - top);
    for (int j = 0; j < k; j++)
        wts[j] /= sum;
}

/* Floats of moe_choose's work. */
static inline size_t moe_choose_floats(const kvant_moe_route_args *a)
{
    return (size_t)a->n_expert + (size_t)a->n_group;
}

/* Chooses from one row of gates p. */
static inline void moe_choose(const kvant_moe_route_args *a, const float *p, float *score, int32_t *ids, float *wts)
{
    float sum = 0.0f;

    for (int e = 0; e < a->n_expert; e++) {
        const float s = a->bias ? p[e] + a->bias[e] : p[e];
        score[e] = s < MOE_LEAST_SCORE ? MOE_LEAST_SCORE : s;
    }
    if (a->n_group > 1)
        moe_close_groups(a, score, score + a->n_expert);
    for (int j = 0; j < a->k; j++) {
        const int e = moe_best(score, a->n_expert);
        ids[j] = e;
        wts[j] = p[e];
        sum += p[e];
        score[e] = -INFINITY;
    }
    if (a->gating == KVANT_GATING_SOFTMAX_CHOSEN)
        moe_softmax_chosen(wts, a->k);
    if (a->raw || a->gating == KVANT_GATING_SOFTMAX_CHOSEN)
        sum = 1.0f;
    if (sum < MOE_LEAST_SUM)
        sum = MOE_LEAST_SUM;
    for (int j = 0; j < a->k; j++)
        wts[j] = wts[j] / sum * a->scale;
}

#endif
