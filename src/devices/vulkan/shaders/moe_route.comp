#version 450
/* moe_route: softmax over all experts, the k largest (ties: lower id first), renormalised; one workgroup per row.
 * The sum is carried in two f32: the reference sums in double. */
#define SLOTS 3
#define ARGS ARGPTR logits; ARGPTR ids; ARGPTR wts; uint n; uint n_expert; uint k; float scale;
#include "kv.glsl"
#include "reduce.glsl"
layout(local_size_x = 128) in;
const uint MAX_EXPERTS = 1024u;
shared float prob[MAX_EXPERTS];
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

void main()
{
    const uint row = group_at(), t = gl_LocalInvocationIndex, n = args.n_expert;
    PTR logits = P(0, logits), ids = P(1, ids), wts = P(2, wts);
    float top = NEG_INF, sum = 0.0, low = 0.0, total = 0.0;
    if (row >= args.n)
        return;
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
    for (uint j = 0u; j < args.k; j++) {
        float key = -2.0;
        uint id = 0xffffffffu;
        for (uint e = t; e < n; e += GROUP) {
            const float p = is_nan(prob[e]) ? -0.5 : prob[e];
            if (p > key) {
                key = p;
                id = e;
            }
        }
        id = pick(key, id);
        total += prob[id];
        barrier();                 /* every thread has read it */
        if (t == 0u) {
            st(ids, row * args.k + j, id);
            stf(wts, row * args.k + j, prob[id]);
            prob[id] = -1.0;
        }
        barrier();
    }
    total = total < 6.103515625e-5 ? 6.103515625e-5 : total;
    if (t == 0u)
        for (uint j = 0u; j < args.k; j++)
            stf(wts, row * args.k + j, ldf(wts, row * args.k + j) / total * args.scale);
}
