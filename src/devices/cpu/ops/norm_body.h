/* norm_body.h: norm_rms, norm_layer, norm_add_rms, norm_l2 and norm_gated on vectors; included by norm_<isa>.c after
 * vf_<isa>.h.
 * Sums of squares run in f32 lanes (4 accumulators, then a fixed tree): relative error below 1e-6 for d up to 16384,
 * far inside NMSE 1e-7.  Units are (row, group) pairs, so one token's heads are shared among the threads too. */
#include "ops/op_util.h"

static float sum_squares(const float *x, int d)
{
    vf s0 = vf_zero(), s1 = vf_zero(), s2 = vf_zero(), s3 = vf_zero();
    int i = 0;

    for (; i + 4 * VF_LANES <= d; i += 4 * VF_LANES) {
        const vf x0 = vf_load(x + i), x1 = vf_load(x + i + VF_LANES);
        const vf x2 = vf_load(x + i + 2 * VF_LANES), x3 = vf_load(x + i + 3 * VF_LANES);

        s0 = vf_fma(x0, x0, s0);
        s1 = vf_fma(x1, x1, s1);
        s2 = vf_fma(x2, x2, s2);
        s3 = vf_fma(x3, x3, s3);
    }
    for (; i < d; i += VF_LANES) {
        const vf v = vf_load_n(x + i, d - i < VF_LANES ? d - i : VF_LANES);

        s0 = vf_fma(v, v, s0);
    }
    return vf_reduce_add(vf_add(vf_add(s0, s1), vf_add(s2, s3)));
}

static float rms_scale(const float *x, int d, float eps)
{
    return 1.0f / sqrtf(sum_squares(x, d) / (float)d + eps);
}

/* y = x * scale * w; w NULL: y = x * scale. */
static void scale_row(const float *x, const float *w, float *y, int d, float scale)
{
    const vf s = vf_set1(scale);

    for (int i = 0; i < d; i += VF_LANES) {
        const int n = d - i < VF_LANES ? d - i : VF_LANES;
        vf v = vf_mul(vf_load_n(x + i, n), s);

        if (w != NULL)
            v = vf_mul(v, vf_load_n(w + i, n));
        vf_store_n(y + i, v, n);
    }
}

static void norm_rms(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_rms_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int64_t i = u / a->h, j = u % a->h;
        const float *x = a->x + i * a->ldx + j * a->gx;

        scale_row(x, a->w, a->y + i * a->ldy + j * a->gy, a->d, rms_scale(x, a->d, a->eps));
    }
}

const kvant_cpu_kernel VF_KERNEL(norm_rms) = { .stages = 1, .fn = { norm_rms } };

/* y = x - their mean; returns the mean of their squares. */
static float centre_row(const float *x, float *y, int d)
{
    vf sum = vf_zero();

    for (int i = 0; i < d; i += VF_LANES)
        sum = vf_add(sum, vf_load_n(x + i, d - i < VF_LANES ? d - i : VF_LANES));
    const vf mean = vf_set1(vf_reduce_add(sum) / (float)d);
    for (int i = 0; i < d; i += VF_LANES) {
        const int n = d - i < VF_LANES ? d - i : VF_LANES;
        vf_store_n(y + i, vf_sub(vf_load_n(x + i, n), mean), n);
    }
    return sum_squares(y, d) / (float)d;
}

static void norm_layer(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_layer_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int64_t i = u / a->h, j = u % a->h;
        float *y = a->y + i * a->ldy + j * a->gy;
        const float squares = centre_row(a->x + i * a->ldx + j * a->gx, y, a->d);

        scale_row(y, a->w + j * a->gw, y, a->d, 1.0f / sqrtf(squares + a->eps));
        for (int c = 0; a->b && c < a->d; c += VF_LANES) {
            const int n = a->d - c < VF_LANES ? a->d - c : VF_LANES;
            vf_store_n(y + c, vf_add(vf_load_n(y + c, n), vf_load_n(a->b + j * a->gw + c, n)), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(norm_layer) = { .stages = 1, .fn = { norm_layer } };

static void norm_add_rms(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_add_rms_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        float *x = a->x + i * a->d;
        const float *add = a->add + i * a->d;

        for (int j = 0; j < a->d; j += VF_LANES) {
            const int n = a->d - j < VF_LANES ? a->d - j : VF_LANES;
            vf_store_n(x + j, vf_add(vf_load_n(x + j, n), vf_load_n(add + j, n)), n);
        }
        scale_row(x, a->w, a->y + i * a->d, a->d, rms_scale(x, a->d, a->eps));
    }
}

const kvant_cpu_kernel VF_KERNEL(norm_add_rms) = { .stages = 1, .fn = { norm_add_rms } };

static void norm_l2(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_l2_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        float *x = a->x + u / a->h * a->ldx + u % a->h * a->gx;
        const float length = sqrtf(sum_squares(x, a->d));

        scale_row(x, NULL, x, a->d, 1.0f / (length < a->eps ? a->eps : length));
    }
}

const kvant_cpu_kernel VF_KERNEL(norm_l2) = { .stages = 1, .fn = { norm_l2 } };

static void norm_gated(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_norm_gated_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const float *o = a->o + u * a->dv, *z = a->z + u / a->h * a->ldz + u % a->h * a->dv;
        float *y = a->y + u * a->dv;
        const vf scale = vf_set1(rms_scale(o, a->dv, a->eps));

        for (int i = 0; i < a->dv; i += VF_LANES) {
            const int n = a->dv - i < VF_LANES ? a->dv - i : VF_LANES;
            const vf v = vf_mul(vf_mul(vf_load_n(o + i, n), scale), vf_load_n(a->w + i, n));

            vf_store_n(y + i, vf_mul(v, vf_silu(vf_load_n(z + i, n))), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(norm_gated) = { .stages = 1, .fn = { norm_gated } };
