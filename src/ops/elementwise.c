/* elementwise.c: scalar references of add, swiglu, gate_mul, gate_add, gdn_gates and rows_gather. */
#include <math.h>
#include <string.h>
#include "ops/op_util.h"

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static void add(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_add_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->d, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        a->x[i] += a->y[i];
}

const kvant_cpu_kernel kvant_add_ref = { .stages = 1, .fn = { add } };

static void swiglu(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_swiglu_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const float *g = a->gate + i * a->ldg, *u = a->up + i * a->ldu;
        float *y = a->y + i * a->ldy;

        for (int j = 0; j < a->f; j++)
            y[j] = g[j] / (1.0f + expf(-g[j])) * u[j];
    }
}

const kvant_cpu_kernel kvant_swiglu_ref = { .stages = 1, .fn = { swiglu } };

static void gate_mul(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gate_mul_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->h; j++)
            for (int e = 0; e < a->d; e++)
                a->y[i * a->ldy + j * a->gy + e] *= sigmoid(a->gate[i * a->ldg + j * a->gg + e]);
}

const kvant_cpu_kernel kvant_gate_mul_ref = { .stages = 1, .fn = { gate_mul } };

static void gate_add(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gate_add_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const float g = sigmoid(a->gate[i]);

        for (int j = 0; j < a->d; j++)
            a->y[i * a->d + j] += a->x[i * a->d + j] * g;
    }
}

const kvant_cpu_kernel kvant_gate_add_ref = { .stages = 1, .fn = { gate_add } };

/* softplus(x) = x above 20, where log(1 + exp(x)) equals x in f32. */
static float softplus(float x)
{
    return x > 20.0f ? x : (float)log(1.0 + exp((double)x));
}

static void gdn_gates(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gdn_gates_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->h; j++) {
            float *alpha = a->alpha + i * a->h + j, *beta = a->beta + i * a->h + j;

            *alpha = a->a[j] * softplus(*alpha + a->dt[j]);
            *beta = sigmoid(*beta);
        }
}

const kvant_cpu_kernel kvant_gdn_gates_ref = { .stages = 1, .fn = { gdn_gates } };

static void rows_gather(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_rows_gather_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        memcpy(a->y + i * a->d, a->x + (int64_t)a->idx[i] * a->d, (size_t)a->d * sizeof(float));
}

const kvant_cpu_kernel kvant_rows_gather_ref = { .stages = 1, .fn = { rows_gather } };
