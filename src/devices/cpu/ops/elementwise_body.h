/* elementwise_body.h: mul, add, bias, scale, rope, swiglu, gates, gdn_gates, rows_gather on vectors; included by
 * elementwise_<isa>.c after vf_<isa>.h.  Each output depends on its own inputs only. */
#include <string.h>
#include "ops/op_util.h"

enum { BLOCK = 1024 }; /* columns of a unit where rows are long; arbitrary, not tuned */

static int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

static void add(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_add_args *a = args;
    const int64_t total = (int64_t)a->n * a->d;
    int64_t lo, hi;

    (void)work;
    part_range((total + BLOCK - 1) / BLOCK, part, parts, &lo, &hi);
    hi = hi * BLOCK < total ? hi * BLOCK : total;
    for (int64_t i = lo * BLOCK; i < hi; i += VF_LANES) {
        const int n = least(hi - i, VF_LANES);
        vf_store_n(a->x + i, vf_add(vf_load_n(a->x + i, n), vf_load_n(a->y + i, n)), n);
    }
}

const kvant_cpu_kernel VF_KERNEL(add) = { .stages = 1, .fn = { add } };

static void bias(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_bias_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        float *y = a->y + i * a->ldy;
        const float *b = a->b + (a->ids != NULL ? (int64_t)a->ids[i] * a->d : 0);
        for (int j = 0; j < a->d; j += VF_LANES) {
            const int n = least(a->d - j, VF_LANES);
            vf_store_n(y + j, vf_add(vf_load_n(y + j, n), vf_load_n(b + j, n)), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(bias) = { .stages = 1, .fn = { bias } };

static void scale(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_scale_args *a = args;
    const int64_t total = (int64_t)a->n * a->d;
    int64_t lo, hi;

    (void)work;
    part_range((total + BLOCK - 1) / BLOCK, part, parts, &lo, &hi);
    hi = hi * BLOCK < total ? hi * BLOCK : total;
    for (int64_t i = lo * BLOCK; i < hi; i += VF_LANES) {
        const int n = least(hi - i, VF_LANES);
        vf_store_n(a->x + i, vf_mul(vf_load_n(a->x + i, n), vf_set1(a->s)), n);
    }
}

const kvant_cpu_kernel VF_KERNEL(scale) = { .stages = 1, .fn = { scale } };

/* cap * tanh(x / cap), as cap - 2 cap / (1 + e^(2 x / cap)). */
static void softcap(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_softcap_args *a = args;
    const int64_t total = (int64_t)a->n * a->d;
    const vf by = vf_set1(2.0f / a->cap), cap = vf_set1(a->cap), two = vf_set1(2.0f * a->cap);
    int64_t lo, hi;

    (void)work;
    part_range((total + BLOCK - 1) / BLOCK, part, parts, &lo, &hi);
    hi = hi * BLOCK < total ? hi * BLOCK : total;
    for (int64_t i = lo * BLOCK; i < hi; i += VF_LANES) {
        const int n = least(hi - i, VF_LANES);
        const vf e = vf_exp(vf_mul(vf_load_n(a->x + i, n), by));
        vf_store_n(a->x + i, vf_sub(cap, vf_div(two, vf_add(vf_set1(1.0f), e))), n);
    }
}

const kvant_cpu_kernel VF_KERNEL(softcap) = { .stages = 1, .fn = { softcap } };

static void mul(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_mul_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        float *y = a->y + i * a->ldy;
        const float *x = a->x + i * a->ldx;

        for (int e = 0; e < a->d; e += VF_LANES) {
            const int n = least(a->d - e, VF_LANES);
            vf_store_n(y + e, vf_mul(vf_load_n(y + e, n), vf_load_n(x + e, n)), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(mul) = { .stages = 1, .fn = { mul } };

/* cos and sin of one position: c[i], s[i] for i < half; room for whole vectors behind them. */
static void rope_angles(const kvant_rope_args *a, int32_t pos, float *c, float *s)
{
    const int half = a->n_rot / 2;

    for (int i = 0; i < half; i += VF_LANES) {
        const vf angle = vf_mul(vf_set1((float)pos), vf_load_n(a->inv_freq + i, least(half - i, VF_LANES)));
        vf sine, cosine;

        vf_sincos(angle, &sine, &cosine);
        vf_store(c + i, vf_mul(cosine, vf_set1(a->mscale)));
        vf_store(s + i, vf_mul(sine, vf_set1(a->mscale)));
    }
}

/* Pairs (i, i + half). */
static void rope_neox(float *x, int half, const float *c, const float *s)
{
    for (int i = 0; i < half; i += VF_LANES) {
        const int n = least(half - i, VF_LANES);
        const vf x0 = vf_load_n(x + i, n), x1 = vf_load_n(x + half + i, n), ci = vf_load(c + i), si = vf_load(s + i);

        vf_store_n(x + i, vf_fnma(x1, si, vf_mul(x0, ci)), n);
        vf_store_n(x + half + i, vf_fma(x0, si, vf_mul(x1, ci)), n);
    }
}

/* c, s per value instead of per pair: c[2i] = c[2i+1] = cos, s[2i] = -sin, s[2i+1] = sin. */
static void rope_spread(float *c, float *s, int half)
{
    for (int i = half - 1; i >= 0; i--) {
        c[2 * i + 1] = c[i];
        c[2 * i] = c[i];
        s[2 * i + 1] = s[i];
        s[2 * i] = -s[2 * i + 1];
    }
}

/* Pairs (2i, 2i+1), with spread tables. */
static void rope_pairs(float *x, int n_rot, const float *c, const float *s)
{
    for (int i = 0; i < n_rot; i += VF_LANES) {
        const int n = least(n_rot - i, VF_LANES);
        const vf v = vf_load_n(x + i, n);

        vf_store_n(x + i, vf_fma(vf_swap_pairs(v), vf_load(s + i), vf_mul(v, vf_load(c + i))), n);
    }
}

static void rope(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_rope_args *a = args;
    float *c = work->local, *s = c + a->n_rot + 2 * VF_LANES;
    int64_t lo, hi;

    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        rope_angles(a, a->pos[i], c, s);
        if (!a->neox)
            rope_spread(c, s, a->n_rot / 2);
        for (int j = 0; j < a->h; j++) {
            float *x = a->x + i * a->ldx + j * a->gx;

            if (a->neox)
                rope_neox(x, a->n_rot / 2, c, s);
            else
                rope_pairs(x, a->n_rot, c, s);
        }
    }
}

static size_t rope_local(const void *args)
{
    return ((size_t)((const kvant_rope_args *)args)->n_rot + 2 * VF_LANES) * 2 * sizeof(float);
}

const kvant_cpu_kernel VF_KERNEL(rope) = { .stages = 1, .fn = { rope }, .local_bytes = rope_local };

static void swiglu(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_swiglu_args *a = args;
    const int64_t blocks = (a->f + BLOCK - 1) / BLOCK;
    int64_t lo, hi;

    (void)work;
    part_range(a->n * blocks, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int64_t i = u / blocks, c0 = u % blocks * BLOCK, c1 = least(c0 + BLOCK, a->f);

        for (int64_t c = c0; c < c1; c += VF_LANES) {
            const int n = least(c1 - c, VF_LANES);
            const vf g = vf_load_n(a->gate + i * a->ldg + c, n);

            vf_store_n(a->y + i * a->ldy + c, vf_mul(vf_silu(g), vf_load_n(a->up + i * a->ldu + c, n)), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(swiglu) = { .stages = 1, .fn = { swiglu } };

/* The factor of the unit: g * sigmoid(at). */
static vf glu_gate(vf g, vf at)
{
    return vf_div(g, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), at))));
}

static vf glu_one(const kvant_glu_args *a, vf g, vf u)
{
    const vf limit = vf_set1(a->limit);

    if (a->kind == KVANT_GLU_GELU || a->kind == KVANT_GLU_GELU_ALONE) {
        const vf cube = vf_mul(vf_mul(g, g), vf_mul(g, vf_set1(0.044715f)));
        const vf gelu = glu_gate(g, vf_mul(vf_set1(0x1.988454p+0f), vf_add(g, cube))); /* 2 sqrt(2/pi) */

        return a->kind == KVANT_GLU_GELU ? vf_mul(gelu, u) : gelu;
    }
    if (a->kind == KVANT_GLU_RELU)
        return vf_mul(vf_max(vf_zero(), g), u);
    g = vf_min(limit, g);
    u = vf_max(vf_set1(-a->limit), vf_min(limit, u));
    return vf_mul(glu_gate(g, vf_mul(vf_set1(a->alpha), g)), vf_add(u, vf_set1(1.0f)));
}

static void glu(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_glu_args *a = args;
    const int64_t blocks = (a->f + BLOCK - 1) / BLOCK;
    int64_t lo, hi;

    (void)work;
    part_range(a->n * blocks, part, parts, &lo, &hi);
    for (int64_t at = lo; at < hi; at++) {
        const int64_t i = at / blocks, c0 = at % blocks * BLOCK, c1 = least(c0 + BLOCK, a->f);

        for (int64_t c = c0; c < c1; c += VF_LANES) {
            const int n = least(c1 - c, VF_LANES);
            const vf g = vf_load_n(a->gate + i * a->ldg + c, n), u = vf_load_n(a->up + i * a->ldu + c, n);

            vf_store_n(a->y + i * a->ldy + c, glu_one(a, g, u), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(glu) = { .stages = 1, .fn = { glu } };

static void gate_mul(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gate_mul_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range((int64_t)a->n * a->h, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        float *y = a->y + u / a->h * a->ldy + u % a->h * a->gy;
        const float *gate = a->gate + u / a->h * a->ldg + u % a->h * a->gg;

        for (int e = 0; e < a->d; e += VF_LANES) {
            const int n = least(a->d - e, VF_LANES);
            vf_store_n(y + e, vf_mul(vf_load_n(y + e, n), vf_sigmoid(vf_load_n(gate + e, n))), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(gate_mul) = { .stages = 1, .fn = { gate_mul } };

static void gate_add(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gate_add_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const vf g = vf_sigmoid(vf_set1(a->gate[i]));
        const float *x = a->x + i * a->d;
        float *y = a->y + i * a->d;

        for (int e = 0; e < a->d; e += VF_LANES) {
            const int n = least(a->d - e, VF_LANES);
            vf_store_n(y + e, vf_fma(vf_load_n(x + e, n), g, vf_load_n(y + e, n)), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(gate_add) = { .stages = 1, .fn = { gate_add } };

/* log(1 + exp(x)), x itself above 20; log1pf keeps the relative accuracy where exp(x) is small. */
static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

static void gdn_gates(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gdn_gates_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const int per_head = a->channels > 0 ? a->channels : 1, all = a->h * per_head;
        float *alpha = a->alpha + i * all, *beta = a->beta + i * a->h;

        for (int j = 0; j < all; j++)
            alpha[j] = a->a[j / per_head] * softplus(alpha[j] + a->dt[j]);
        for (int j = 0; j < a->h; j += VF_LANES) {
            const int n = least(a->h - j, VF_LANES);
            vf_store_n(beta + j, vf_sigmoid(vf_load_n(beta + j, n)), n);
        }
    }
}

const kvant_cpu_kernel VF_KERNEL(gdn_gates) = { .stages = 1, .fn = { gdn_gates } };
