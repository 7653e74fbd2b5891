#version 450
/* moe_route: gates of all experts, the k largest scores (ties: lower id first), renormalised; one workgroup per row.
 * Softmax's sum is carried in two f32: the reference sums in double. */
#define SLOTS 4
#define ARGS ARGPTR logits; ARGPTR ids; ARGPTR wts; ARGPTR bias; uint n; uint n_expert; uint k; float scale; uint gating; \
    uint raw; uint has_bias; uint n_group; uint top_groups; uint group_best;
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/reduce.glsl"
layout(local_size_x = 128) in;
const uint MAX_EXPERTS = 1024u, SIGMOID = 1u, SOFTMAX_CHOSEN = 2u; /* as enum kvant_gating */
const float LEAST_SCORE = -1e38, NAN_SCORE = -2e38;                /* closed or taken: -infinity */
shared float prob[MAX_EXPERTS];
shared float score[MAX_EXPERTS];
shared float group_score[GROUP];
shared float best_key[GROUP];
shared uint best_id[GROUP];

/* The best of every thread's candidate: larger key first, lower id at a tie. */
uint pick(float key, uint id)
{
    const uint t = gl_LocalInvocationIndex;
    barrier();
    best_key[t] = key;
    best_id[t] = id;
    for (uint m = GROUP / 2u; m > 0u; m >>= 1) {
        barrier();
        if (t < m && (best_key[t + m] > best_key[t] || (best_key[t + m] == best_key[t] && best_id[t + m] < best_id[t]))) {
            best_key[t] = best_key[t + m];
            best_id[t] = best_id[t + m];
        }
    }
    barrier();
    return best_id[0];
}

/* prob = softmax of the row. */
void softmax_row(uint row)
{
    const uint t = gl_LocalInvocationIndex, n = args.n_expert;
    PTR logits = P(0, logits);
    float top = NEG_INF, sum = 0.0, low = 0.0;
    for (uint e = t; e < n; e += GROUP) {
        const float v = ldf(logits, row * n + e);
        top = v > top ? v : top;
    }
    top = group_max(top);
    if (is_nan(ldf(logits, row * n)))                      /* as the reference: a NaN in front poisons the row */
        top = NOT_A_NUMBER;
    for (uint e = t; e < n; e += GROUP) {
        const float p = exp(ldf(logits, row * n + e) - top);
        precise float s = sum + p, back = s - sum, err = (sum - (s - back)) + (p - back);
        prob[e] = p;
        low += err;
        sum = s;
    }
    const float all = group_sum(sum) + group_sum(low);
    for (uint e = t; e < n; e += GROUP)
        prob[e] = prob[e] / all;
}

/* As ops/moe_choose.h: all scores of groups that are not among the best become -infinity. */
void close_groups()
{
    const uint t = gl_LocalInvocationIndex, each = args.n_expert / args.n_group;
    float first = LEAST_SCORE, second = LEAST_SCORE;
    barrier();
    for (uint e = t * each; t < args.n_group && e < (t + 1u) * each; e++) {
        const float s = score[e];
        second = s > first ? first : s > second ? s : second;
        first = s > first ? s : first;
    }
    const float own = args.group_best == 1u ? first : first + second;
    uint better = 0u;
    group_score[t] = own;
    barrier();
    for (uint g = 0u; g < args.n_group; g++)
        better += group_score[g] > own || (group_score[g] == own && g < t) ? 1u : 0u;
    for (uint e = t * each; t < args.n_group && e < (t + 1u) * each && better >= args.top_groups; e++)
        score[e] = NEG_INF;
    barrier();
}

void finish(PTR wts, uint first, float total)
{
    float top = NEG_INF;
    for (uint j = 0u; j < args.k; j++)
        top = max(top, ldf(wts, first + j));
    if (args.gating == SOFTMAX_CHOSEN) {
        total = 0.0;
        for (uint j = 0u; j < args.k; j++) {
            const float p = exp(ldf(wts, first + j) - top);
            stf(wts, first + j, p);
            total += p;
        }
    } else {
        total = args.raw != 0u ? 1.0 : total < 6.103515625e-5 ? 6.103515625e-5 : total;
    }
    for (uint j = 0u; j < args.k; j++)
        stf(wts, first + j, ldf(wts, first + j) / total * args.scale);
}

void main()
{
    const uint row = group_at(), t = gl_LocalInvocationIndex, n = args.n_expert;
    PTR logits = P(0, logits), ids = P(1, ids), wts = P(2, wts), bias = P(3, bias);
    float total = 0.0;
    if (row >= args.n)
        return;
    if (args.gating == 0u)
        softmax_row(row);
    for (uint e = t; e < n; e += GROUP) {
        const float v = args.gating == 0u ? prob[e] : ldf(logits, row * n + e);
        const float p = args.gating == SIGMOID ? 1.0 / (1.0 + exp(-v)) : v;
        const float s = args.has_bias != 0u ? p + ldf(bias, e) : p;
        prob[e] = p;
        score[e] = is_nan(s) ? NAN_SCORE : max(s, LEAST_SCORE);
    }
    if (args.n_group > 1u)
        close_groups();
    for (uint j = 0u; j < args.k; j++) {
        float key = NEG_INF;
        uint id = 0xffffffffu;
        for (uint e = t; e < n; e += GROUP)
            if (score[e] > key) {
                key = score[e];
                id = e;
            }
        id = pick(key, id);
        total += prob[id];
        barrier();                 /* every thread has read it */
        if (t == 0u) {
            st(ids, row * args.k + j, id);
            stf(wts, row * args.k + j, prob[id]);
            score[id] = NEG_INF;
        }
        barrier();
    }
    if (t == 0u)
        finish(wts, row * args.k, total);
}
