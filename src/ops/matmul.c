/* matmul.c: REFERENCE of the ops that read weights: matmul, matmul_id, embed.  Written to be read, never optimised;
 * the fast versions are src/devices/cpu/matmul.  Any weight type: a row is dequantised to f32 by its type.
 *
 *   matmul     y[i][j] = scale * sum_k W[j][k] x[i][k]          sum in double, one rounding to f32
 *   matmul_id  y[i][j] = scale_e * sum_k W_e[j][k] x[i/x_div][k]  with e = ids[i]
 *   embed      y[i]    = row ids[i], as the type dequantises it (times scale where the weight has one), if there is one
 *
 * NaN and Inf propagate as in any sum of products.  Variants keep one FMA chain per output, k ascending (f32), which
 * is within NMSE 1e-6 of this; with quantised activations (compute auto) within 5e-4. */
#include "kvant/ops.h"
#include "ops/op_util.h"

static const uint8_t *weight_row(const kvant_weight *w, int64_t row)
{
    size_t row_bytes = (size_t)(w->n_in / w->type->block) * (size_t)w->type->bytes;

    return (const uint8_t *)w->data + (size_t)row * row_bytes;
}

static float weight_scale(const kvant_weight *w, int expert)
{
    if (w->scale == NULL)
        return 1.0f;
    return w->scale[w->n_scale > 1 ? expert : 0];
}

static float dot(const float *w, const float *x, int64_t n, float scale)
{
    double acc = 0.0;       /* double: the yardstick should not add error of its own */

    for (int64_t k = 0; k < n; k++)
        acc += (double)w[k] * x[k];
    return (float)(acc * scale);
}

static size_t matmul_local(const void *args)
{
    const kvant_matmul_args *a = args;

    return align64((size_t)a->w->n_in * sizeof(float));
}

static void matmul(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_matmul_args *a = args;
    const kvant_weight *w = a->w;
    float *row = work->local;
    int64_t lo, hi;

    part_range(w->n_out, part, parts, &lo, &hi);
    for (int64_t j = lo; j < hi && a->m > 0; j++) {
        w->type->dequant(weight_row(w, j), row, w->n_in);
        for (int64_t i = 0; i < a->m; i++)
            a->y[i * a->ldy + j] = dot(row, a->x + i * a->ldx, w->n_in, weight_scale(w, 0));
    }
}

static size_t matmul_id_local(const void *args)
{
    const kvant_matmul_id_args *a = args;

    return align64((size_t)a->w->n_in * sizeof(float));
}

static void matmul_id(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_matmul_id_args *a = args;
    const kvant_weight *w = a->w;
    float *row = work->local;
    int64_t lo, hi, rows = (int64_t)a->n * a->k;

    part_range(w->n_out, part, parts, &lo, &hi);
    for (int e = 0; e < w->n_expert; e++)
        for (int64_t j = lo; j < hi && rows > 0; j++) {
            w->type->dequant(weight_row(w, e * w->n_out + j), row, w->n_in);
            for (int64_t i = 0; i < rows; i++)
                if (a->ids[i] == e)
                    a->y[i * w->n_out + j] = dot(row, a->x + i / a->x_div * a->ldx, w->n_in, weight_scale(w, e));
        }
}

static void embed(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_embed_args *a = args;
    const kvant_weight *w = a->w;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        float *y = a->y + i * w->n_in;
        if (a->ids[i] < 0 || a->ids[i] >= w->n_out)
            continue;
        w->type->dequant(weight_row(w, a->ids[i]), y, w->n_in);
        for (int64_t k = 0; k < w->n_in && w->scale; k++)
            y[k] *= w->scale[0];
    }
}

const kvant_cpu_kernel kvant_matmul_ref = { .stages = 1, .fn = { matmul }, .local_bytes = matmul_local };
const kvant_cpu_kernel kvant_matmul_id_ref = { .stages = 1, .fn = { matmul_id }, .local_bytes = matmul_id_local };
const kvant_cpu_kernel kvant_embed_ref = { .stages = 1, .fn = { embed } };
