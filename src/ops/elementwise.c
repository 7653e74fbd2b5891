/* elementwise.c: scalar references of mul, add, bias, rows_copy, scale, attn_temp, swiglu, glu, gates, rows_gather. */
#include <math.h>
#include <string.h>
#include "ops/op_util.h"

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static void mul(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_mul_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->d; j++)
            a->y[i * a->ldy + j] *= a->x[i * a->ldx + j];
}

const kvant_cpu_kernel kvant_mul_ref = { .stages = 1, .fn = { mul } };

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

static void bias(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_bias_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->d; j++)
            a->y[i * a->ldy + j] += a->b[(a->ids != NULL ? (int64_t)a->ids[i] * a->d : 0) + j];
}

const kvant_cpu_kernel kvant_bias_ref = { .stages = 1, .fn = { bias } };

static void scale(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_scale_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->d, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        a->x[i] *= a->s;
}

const kvant_cpu_kernel kvant_scale_ref = { .stages = 1, .fn = { scale } };

static void softcap(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_softcap_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->d, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        a->x[i] = a->cap * tanhf(a->x[i] / a->cap);
}

const kvant_cpu_kernel kvant_softcap_ref = { .stages = 1, .fn = { softcap } };

static void attn_temp(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_attn_temp_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const float s = 1.0f + a->beta * logf(1.0f + (float)(a->pos[i] / a->length));

        for (int j = 0; j < a->d; j++)
            a->x[i * a->ldx + j] *= s;
    }
}

const kvant_cpu_kernel kvant_attn_temp_ref = { .stages = 1, .fn = { attn_temp } };

static void rows_copy(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_rows_copy_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->h; j++)
            memcpy(a->y + i * a->ldy + j * a->gy, a->x + i * a->ldx + j * a->gx, (size_t)a->d * sizeof *a->y);
}

const kvant_cpu_kernel kvant_rows_copy_ref = { .stages = 1, .fn = { rows_copy } };

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

static float glu_one(const kvant_glu_args *a, float g, float u)
{
    if (a->kind == KVANT_GLU_GELU || a->kind == KVANT_GLU_GELU_ALONE) {
        const float gelu = g * sigmoid(0x1.988454p+0f * (g + 0.044715f * g * g * g));      /* 2 sqrt(2/pi) */
        return a->kind == KVANT_GLU_GELU ? gelu * u : gelu;
    }
    if (a->kind == KVANT_GLU_RELU)
        return g > 0.0f ? g * u : 0.0f;
    g = g > a->limit ? a->limit : g;
    u = u > a->limit ? a->limit : u < -a->limit ? -a->limit : u;
    return g * sigmoid(a->alpha * g) * (u + 1.0f);
}

static void glu(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_glu_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->f; j++)
            a->y[i * a->ldy + j] = glu_one(a, a->gate[i * a->ldg + j], a->up[i * a->ldu + j]);
}

const kvant_cpu_kernel kvant_glu_ref = { .stages = 1, .fn = { glu } };

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
            const int n = a->channels > 0 ? a->channels : 1;
            float *alpha = a->alpha + (i * a->h + j) * n, *beta = a->beta + i * a->h + j;

            for (int e = 0; e < n; e++)
                alpha[e] = a->a[j] * softplus(alpha[e] + a->dt[j * n + e]);
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
