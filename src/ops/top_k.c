/* top_k.c: the scalar reference of top_k. */
#include "ops/op_util.h"

/* Position j of x enters the sorted list ids[n], of at most k; returns the list's new length. */
static int enter(const float *x, int j, int32_t *ids, int n, int k)
{
    if (n == k && !(x[j] > x[ids[k - 1]]))
        return n;
    int at = n < k ? n : k - 1;
    for (; at > 0 && x[j] > x[ids[at - 1]]; at--)
        ids[at] = ids[at - 1];
    ids[at] = j;
    return n < k ? n + 1 : k;
}

static void top_k(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_top_k_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const float *x = a->x + i * a->d;
        int32_t *ids = a->ids + i * a->k;
        float bad = 0.0f;
        int n = 0;
        for (int j = 0; j < a->d; j++) {
            bad += x[j] * 0.0f;        /* NaN and Inf give NaN */
            n = enter(x, j, ids, n, a->k);
        }
        if (bad != 0.0f)
            n = 0;
        for (int j = 0; j < a->k; j++) {
            ids[j] = j < n ? ids[j] : -1;
            a->values[i * a->k + j] = j < n ? x[ids[j]] : 0.0f;
        }
    }
}

const kvant_cpu_kernel kvant_top_k_ref = { .stages = 1, .fn = { top_k } };
