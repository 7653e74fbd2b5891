/* argmax.c: the scalar reference of argmax. */
#include "ops/op_util.h"

static void argmax(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_argmax_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const float *x = a->x + i * a->d;
        float bad = 0.0f;
        int best = 0;
        for (int j = 0; j < a->d; j++) {
            bad += x[j] * 0.0f;    /* NaN and Inf give NaN */
            best = x[j] > x[best] ? j : best;
        }
        a->ids[i] = bad == 0.0f ? best : -1;
    }
}

const kvant_cpu_kernel kvant_argmax_ref = { .stages = 1, .fn = { argmax } };
