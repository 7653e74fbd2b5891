/* rope.c: scalar reference of rope: rotary position embedding, in place, on the first n_rot values of each head.
 * angle = pos * inv_freq[i], one f32 product, as the models were trained and as llama.cpp computes it. */
#include <math.h>
#include "ops/op_util.h"

static void rope_head(float *x, const kvant_rope_args *a, int32_t pos)
{
    const int half = a->n_rot / 2;

    for (int i = 0; i < half; i++) {
        const float angle = (float)pos * a->inv_freq[i];
        const float c = cosf(angle) * a->mscale, s = sinf(angle) * a->mscale;
        float *x0 = a->neox ? &x[i] : &x[2 * i];
        float *x1 = a->neox ? &x[i + half] : &x[2 * i + 1];
        const float v0 = *x0, v1 = *x1;

        *x0 = v0 * c - v1 * s;
        *x1 = v0 * s + v1 * c;
    }
}

static void rope(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_rope_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->h; j++)
            rope_head(a->x + i * a->ldx + j * a->gx, a, a->pos[i]);
}

const kvant_cpu_kernel kvant_rope_ref = { .stages = 1, .fn = { rope } };
