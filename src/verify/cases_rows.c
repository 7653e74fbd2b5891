/* cases_rows.c: cases of the ops that work on rows of f32, of routing, and of slots. */
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "ops/operands.h"
#include "verify/cases.h"

/* Rows and widths: nothing, one row, tails of every vector width, more than one block of a GPU. */
static const struct {
    int n, d;
    const char *shape;
} sizes[] = {
    { 0, 64, "empty" }, { 1, 64, "row" }, { 1, 2048, "row" }, { 3, 1, "rows" }, { 7, 333, "rows" }, { 33, 80, "rows" },
    { 70, 1024, "rows" },
};

typedef void (*size_fn)(vcase *c, int n, int d, const char *shape);

static void each_size(vcase *c, size_fn fn)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!(c->quick || c->unaligned) || i % 2 == 0)
            fn(c, sizes[i].n, sizes[i].d, sizes[i].shape);
}

static size_t cells(int n, int64_t ld)
{
    return (size_t)n * (size_t)ld;
}

/* ---- elementwise: the cases of most ops are made of their cards; here those with a shape of their own ---- */

/* Whole numbers, `step` apart or below a bound. */
static int32_t *case_whole(vcase *c, size_t n, int below, int step)
{
    int32_t *x = vcase_take(c, (n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = below > 0 ? (int32_t)((i * 5 + 1) % (size_t)below) : (int32_t)i * step;
    return x;
}

#include "ops/cases_formula.inc"

static void case_rows_copy(vcase *c, int n, int d, const char *shape)
{
    enum { H = 3 };
    if (!vcase_begin(c, KVANT_OP_ROWS_COPY, shape, ""))
        return;
    float *x = vcase_normal(c, cells(n, H * (d + 2)), 16), *y = vcase_normal(c, cells(n, H * (d + 5) + 1), 17);
    const kvant_rows_copy_args a = { x, y, n, H, d, n % 2 ? H * (d + 2) : 0, d + 2, H * (d + 5) + 1, d + 5 };
    vcase_result(c, y);
    vcase_about(c, "n %d d %d, %d groups, rows of x %s", n, d, H, n % 2 ? "apart" : "all the same");
    vcase_run(c, &a, 0.0);
}

static void case_softcap(vcase *c, int n, int d, const char *shape)
{
    if (!vcase_begin(c, KVANT_OP_SOFTCAP, shape, ""))
        return;
    float *x = vcase_normal(c, cells(n, d), 16);
    const kvant_softcap_args a = { x, 1.5f, n, d };
    if (n > 0)
        x[0] = 1e6f;                    /* exp overflows: the result is the cap */
    vcase_result(c, x);
    vcase_about(c, "n %d d %d", n, d);
    vcase_run(c, &a, 1e-7);
}

/* The unit over its second input, as Mamba2's gate is: silu(z) * y. */
static void case_swiglu_over_up(vcase *c, int n, int d)
{
    if (!vcase_begin(c, KVANT_OP_SWIGLU, "over up", ""))
        return;
    float *z = vcase_normal(c, cells(n, 2 * d), 3), *y = vcase_normal(c, cells(n, d), 4);
    const kvant_swiglu_args a = { z, y, y, n, d, 2 * d, d, d };
    vcase_result(c, y);
    vcase_about(c, "n %d f %d, y is up", n, d);
    vcase_run(c, &a, 1e-7);
}

static void case_swiglu(vcase *c, int n, int d, const char *shape)
{
    const int ld = 2 * d + 3;

    case_swiglu_over_up(c, n, d);
    if (!vcase_begin(c, KVANT_OP_SWIGLU, shape, ""))
        return;
    float *g = vcase_normal(c, cells(n, ld), 3), *out = vcase_out(c, cells(n, d + 1));
    const kvant_swiglu_args a = { g, g + d, out, n, d, ld, ld, d + 1 };
    if (n > 0)
        g[0] = -95.0f;                  /* exp overflows: the result is -0, not NaN */
    vcase_about(c, "n %d f %d, gate and up in one matrix", n, d);
    vcase_run(c, &a, 1e-7);
}

/* The squared ReLU: both inputs and the output are one. */
static void case_relu2(vcase *c, int n, int d)
{
    if (!vcase_begin(c, KVANT_OP_GLU, "squared relu", ""))
        return;
    float *x = vcase_normal(c, cells(n, 2 * d), 3);
    const kvant_glu_args a = { x, x, x, n, d, 2 * d, 2 * d, 2 * d, KVANT_GLU_RELU, 0, 0 };
    vcase_result(c, x);
    vcase_about(c, "n %d f %d, in place", n, d);
    vcase_run(c, &a, 1e-7);
}

static void case_glu(vcase *c, int n, int d, const char *shape)
{
    static const char *const names[] = { "gelu", "clamped", "relu", "gelu alone" };
    const int ld = 2 * d + 3;

    case_relu2(c, n, d);
    for (int kind = KVANT_GLU_GELU; kind <= KVANT_GLU_GELU_ALONE; kind++) {
        if (!vcase_begin(c, KVANT_OP_GLU, shape, names[kind]))
            continue;
        float *g = vcase_normal(c, cells(n, ld), 3), *out = vcase_out(c, cells(n, d + 1));
        const kvant_glu_args a = { g, g + d, out, n, d, ld, ld, d + 1, kind, 1.702f, 1.3f };
        if (n > 0)
            g[0] = -60.0f;              /* exp overflows: the result is -0, not NaN */
        vcase_about(c, "n %d f %d, gate and up in one matrix", n, d);
        vcase_run(c, &a, 1e-7);
    }
}

static void gdn_gates(vcase *c, int n, int d, int channels, const char *shape)
{
    if (!vcase_begin(c, KVANT_OP_GDN_GATES, shape, channels ? "channels" : ""))
        return;
    const int all = d * (channels ? channels : 1);
    float *alpha = vcase_normal(c, cells(n, all), 9), *beta = vcase_normal(c, cells(n, d), 10);
    float *a = vcase_normal(c, (size_t)d, 11), *dt = vcase_normal(c, (size_t)all, 12);
    const kvant_gdn_gates_args g = { alpha, beta, a, dt, n, d, channels };
    for (int i = 0; i < n * all; i += 13)
        alpha[i] *= 25.0f;              /* both ends of softplus */
    vcase_result(c, alpha);
    vcase_result(c, beta);
    vcase_about(c, "n %d h %d, channels %d", n, d, channels);
    vcase_run(c, &g, 1e-7);
}

static void case_gdn_gates(vcase *c, int n, int d, const char *shape)
{
    gdn_gates(c, n, d, 0, shape);
    gdn_gates(c, n, d, d % 2 ? 1 : 6, shape);
}

void cases_elementwise(vcase *c)
{
    each_size(c, case_rows_copy);
    each_size(c, case_softcap);
    each_size(c, case_swiglu);
    each_size(c, case_glu);
    each_size(c, case_gdn_gates);
}

/* ---- norms ---- */

static void case_norm_rms(vcase *c, int n, int d, const char *shape)
{
    const int h = 3, gap = 2;

    if (vcase_begin(c, KVANT_OP_NORM_RMS, shape, "")) {
        float *x = vcase_normal(c, cells(n, h * (d + gap)), 1), *w = vcase_normal(c, (size_t)d, 2);
        float *y = vcase_out(c, cells(n, h * d));
        const kvant_norm_rms_args a = { x, w, y, 1e-6f, n, h, d, h * (d + gap), d + gap, h * d, d };
        vcase_about(c, "n %d h %d d %d, gaps between groups", n, h, d);
        vcase_run(c, &a, 1e-7);
    }
    if (vcase_begin(c, KVANT_OP_NORM_RMS, n ? "in place" : shape, "")) {
        float *x = vcase_normal(c, cells(n, d), 3), *w = vcase_normal(c, (size_t)d, 4);
        const kvant_norm_rms_args a = { x, w, x, 1e-5f, n, 1, d, d, d, d, d };
        vcase_result(c, x);
        vcase_about(c, "n %d d %d", n, d);
        vcase_run(c, &a, 1e-7);
    }
}

/* Weights for each group and a bias; or one set for all, no bias, in place.  x is far from 0: a variance from the mean
 * of squares would lose digits. */
static void case_norm_layer(vcase *c, int n, int d, const char *shape)
{
    const int h = 3, gap = 2;

    if (vcase_begin(c, KVANT_OP_NORM_LAYER, shape, "")) {
        const size_t values = cells(n, h * (d + gap));
        float *x = vcase_normal(c, values, 1), *w = vcase_normal(c, (size_t)h * (size_t)(d + 1), 2);
        float *b = vcase_normal(c, (size_t)h * (size_t)(d + 1), 3), *y = vcase_out(c, cells(n, h * d));
        const kvant_norm_layer_args a = { x, w, b, y, 1e-6f, n, h, d, h * (d + gap), d + gap, h * d, d, d + 1 };
        for (size_t i = 0; i < values; i++)
            x[i] += 3.0f;
        vcase_about(c, "n %d h %d d %d, gaps between groups", n, h, d);
        vcase_run(c, &a, 1e-7);
    }
    if (vcase_begin(c, KVANT_OP_NORM_LAYER, n ? "in place" : shape, "")) {
        float *x = vcase_normal(c, cells(n, d), 4), *w = vcase_normal(c, (size_t)d, 5);
        const kvant_norm_layer_args a = { x, w, NULL, x, 1e-5f, n, 1, d, d, d, d, d, 0 };
        vcase_result(c, x);
        vcase_about(c, "n %d d %d, no bias", n, d);
        vcase_run(c, &a, 1e-7);
    }
}

static void case_norm_add(vcase *c, int n, int d, const char *shape)
{
    if (!vcase_begin(c, KVANT_OP_NORM_ADD_RMS, shape, ""))
        return;
    float *x = vcase_normal(c, cells(n, d), 3), *add = vcase_normal(c, cells(n, d), 4);
    float *w = vcase_normal(c, (size_t)d, 5), *y = vcase_out(c, cells(n, d));
    const kvant_norm_add_rms_args a = { x, add, w, y, 1e-6f, n, d };
    vcase_result(c, x);
    vcase_about(c, "n %d d %d", n, d);
    vcase_run(c, &a, 1e-7);
}

static void case_norm_l2(vcase *c, int n, int d, const char *shape)
{
    if (!vcase_begin(c, KVANT_OP_NORM_L2, shape, ""))
        return;
    float *x = vcase_normal(c, cells(n, 3 * (d + 1)), 6);
    const kvant_norm_l2_args a = { x, 1e-6f, n, 3, d, 3 * (d + 1), d + 1 };
    if (n > 0)
        memset(x, 0, (size_t)d * sizeof *x);        /* a zero group stays finite */
    vcase_result(c, x);
    vcase_about(c, "n %d h 3 d %d, one group of zeros", n, d);
    vcase_run(c, &a, 1e-7);
}

static void case_norm_gated(vcase *c, int n, int d, const char *shape)
{
    const int h = 3, ldz = h * d + 5;

    if (!vcase_begin(c, KVANT_OP_NORM_GATED, shape, ""))
        return;
    float *o = vcase_normal(c, cells(n, h * d), 7), *z = vcase_normal(c, cells(n, ldz), 8);
    float *w = vcase_normal(c, (size_t)d, 9), *y = vcase_out(c, cells(n, h * d));
    const kvant_norm_gated_args a = { o, z, w, y, 1e-6f, n, h, d, ldz };
    vcase_about(c, "n %d h %d dv %d", n, h, d);
    vcase_run(c, &a, 1e-7);
}

void cases_norms(vcase *c)
{
    each_size(c, case_norm_rms);
    each_size(c, case_norm_layer);
    each_size(c, case_norm_add);
    each_size(c, case_norm_l2);
    each_size(c, case_norm_gated);
}

/* ---- argmax, rope ---- */

static void case_argmax(vcase *c, int n, int d, const char *shape)
{
    if (!vcase_begin(c, KVANT_OP_ARGMAX, shape, ""))
        return;
    float *x = vcase_normal(c, cells(n, d), 5);
    int32_t *y = vcase_take(c, (size_t)n * sizeof *y);
    const kvant_argmax_args a = { x, y, n, d };
    if (n > 0) {
        x[n * d - 1] = NAN;
        x[d / 2] = x[d / 3] = 9.0f;     /* a tie: the lower index */
    }
    vcase_about(c, "n %d d %d", n, d);
    vcase_run(c, &a, 0.0);
}

static void top_k(vcase *c, int n, int d, int k, const char *shape)
{
    if (!vcase_begin(c, KVANT_OP_TOP_K, shape, ""))
        return;
    float *x = vcase_normal(c, cells(n, d), 5), *values = vcase_out(c, cells(n, k));
    int32_t *ids = vcase_take(c, cells(n, k) * sizeof *ids);
    const kvant_top_k_args a = { x, values, ids, n, d, k };
    for (int i = 0; i < n * d; i++)
        x[i] = i % 3 == 0 ? roundf(2.0f * x[i]) : x[i];     /* ties, of zeros with both signs too */
    if (n > 1)
        x[n * d - 1] = INFINITY;
    vcase_about(c, "n %d d %d k %d", n, d, k);
    vcase_run(c, &a, 0.0);
}

static void case_top_k(vcase *c, int n, int d, const char *shape)
{
    top_k(c, n, d, 40, shape);
}

static void rope(vcase *c, int n, int n_rot, int neox, const char *shape)
{
    const int h = 3, d = n_rot + 6;
    rng r = { 5 };

    if (!vcase_begin(c, KVANT_OP_ROPE, shape, neox ? "neox" : "pairs"))
        return;
    float *x = vcase_normal(c, cells(n, h * d), 2), *freq = vcase_take(c, (size_t)n_rot / 2 * sizeof *freq);
    int32_t *pos = vcase_take(c, (size_t)n * sizeof *pos);
    const kvant_rope_args a = { x, pos, freq, 1.1f, neox, n_rot, n, h, h * d, d };
    for (int i = 0; i < n; i++)
        pos[i] = (int32_t)rng_below(&r, 100000);
    for (int i = 0; i < n_rot / 2; i++)
        freq[i] = 1.0f / powf(10000.0f, (float)i / (float)n_rot * 2.0f);
    vcase_result(c, x);
    vcase_about(c, "n %d n_rot %d", n, n_rot);
    vcase_run(c, &a, 1e-7);
}

static void case_rope(vcase *c, int n, int d, const char *shape)
{
    const int n_rot = d > 256 ? 256 : d < 2 ? 2 : d / 2 * 2;

    rope(c, n, n_rot, 0, shape);
    rope(c, n, n_rot, 1, shape);
}

void cases_rows(vcase *c)
{
    each_size(c, case_argmax);
    each_size(c, case_top_k);
    top_k(c, 2, 9001, 1, "vocabulary");
    top_k(c, 2, c->quick ? 9001 : 151937, 128, "vocabulary");
    top_k(c, 1, 70001, KVANT_TOP_K_MOST, "vocabulary");
    each_size(c, case_rope);
}

/* ---- routing ---- */

static void moe(vcase *c, int n, int n_expert, int k, const char *shape)
{
    const int d = 70;

    if (vcase_begin(c, KVANT_OP_MOE_ROUTE, shape, "")) {
        float *logits = vcase_normal(c, cells(n, n_expert), 1), *wts = vcase_out(c, cells(n, k));
        int32_t *ids = vcase_take(c, cells(n, k) * sizeof *ids);
        const kvant_moe_route_args a = { logits, ids, wts, n, n_expert, k, 1.5f, 0, 0, NULL, 0, 0, 0 };
        if (n > 0)
            logits[1] = logits[0] = 9.0f;           /* a tie at the top: the lower id */
        vcase_about(c, "n %d experts %d k %d", n, n_expert, k);
        vcase_run(c, &a, 1e-7);
    }
    if (vcase_begin(c, KVANT_OP_MOE_COMBINE, shape, "")) {
        float *x = vcase_normal(c, cells(n, k * d), 2), *wts = vcase_normal(c, cells(n, k), 3);
        float *y = vcase_out(c, cells(n, d));
        const kvant_moe_combine_args a = { x, wts, y, n, k, d };
        vcase_about(c, "n %d k %d d %d", n, k, d);
        vcase_run(c, &a, 1e-7);
    }
}

/* Gates other than softmax over all, biases for the choice, groups. */
static void moe_gates(vcase *c, kvant_moe_route_args a, int biased, const char *shape)
{
    if (!vcase_begin(c, KVANT_OP_MOE_ROUTE, shape, ""))
        return;
    float *logits = vcase_normal(c, cells(a.n, a.n_expert), 1), *bias = vcase_normal(c, cells(1, a.n_expert), 2);
    logits[1] = logits[0] = 9.0f;
    bias[1] = bias[0];
    a.logits = logits;
    a.bias = biased ? bias : NULL;
    a.wts = vcase_out(c, cells(a.n, a.k));
    a.ids = vcase_take(c, cells(a.n, a.k) * sizeof *a.ids);
    vcase_about(c, "n %d experts %d k %d, gating %d, groups %d of %d", a.n, a.n_expert, a.k, a.gating, a.top_groups,
                a.n_group);
    vcase_run(c, &a, 1e-7);
}

static void cases_moe_gates(vcase *c)
{
    enum { SIGMOID = KVANT_GATING_SIGMOID, CHOSEN = KVANT_GATING_SOFTMAX_CHOSEN };

    moe_gates(c, (kvant_moe_route_args){ .n = 5, .n_expert = 60, .k = 4, .scale = 1, .raw = 1 }, 0, "raw");
    moe_gates(c, (kvant_moe_route_args){ .n = 7, .n_expert = 33, .k = 4, .scale = 1, .gating = SIGMOID }, 0, "sigmoid");
    moe_gates(c, (kvant_moe_route_args){ .n = 7, .n_expert = 128, .k = 8, .scale = 2, .gating = SIGMOID }, 1, "bias");
    moe_gates(c, (kvant_moe_route_args){ .n = 5, .n_expert = 32, .k = 4, .scale = 1, .gating = CHOSEN }, 0, "chosen");
    moe_gates(c, (kvant_moe_route_args){ .n = 9, .n_expert = 256, .k = 8, .scale = 2, .gating = SIGMOID, .n_group = 8,
                                         .top_groups = 4, .group_best = 2 }, 1, "groups");
    moe_gates(c, (kvant_moe_route_args){ .n = 9, .n_expert = 160, .k = 6, .scale = 16, .raw = 1, .n_group = 8,
                                         .top_groups = 3, .group_best = 1 }, 0, "groups by one");
    moe_gates(c, (kvant_moe_route_args){ .n = 3, .n_expert = 512, .k = 40, .scale = 1, .gating = SIGMOID, .n_group = 64,
                                         .top_groups = 40, .group_best = 1 }, 1, "many groups");
    moe_gates(c, (kvant_moe_route_args){ .n = 4, .n_expert = 64, .k = 6, .scale = 1, .gating = CHOSEN, .n_group = 4,
                                         .top_groups = 2, .group_best = 2 }, 1, "chosen, groups");
}

void cases_moe(vcase *c)
{
    cases_moe_gates(c);
    moe(c, 0, 8, 2, "empty");
    moe(c, 1, 8, 2, "row");
    moe(c, 1, 512, 10, "row");
    moe(c, 5, 8, 8, "rows");
    moe(c, 33, 130, 8, "rows");
}

/* ---- slots ---- */

static void slot_copy(vcase *c, size_t bytes, const int32_t *from, const int32_t *to, int n, const char *shape)
{
    const size_t stride = bytes + 48;

    if (!vcase_begin(c, KVANT_OP_SLOT_COPY, shape, ""))
        return;
    uint8_t *base = vcase_take(c, 6 * stride);
    int32_t *src = vcase_ints(c, from, n), *dst = vcase_ints(c, to, n);
    const kvant_slot_copy_args a = { base, src, dst, n, stride, bytes };
    vcase_fill((float *)(void *)base, 6 * stride / sizeof(float), 3);
    vcase_about(c, "%zu bytes", bytes);
    vcase_run(c, &a, 0.0);
}

static void slot_zero(vcase *c, size_t bytes, int n, const char *shape)
{
    static const int32_t to[] = { 4, 1 };
    const size_t stride = bytes + 48;

    if (!vcase_begin(c, KVANT_OP_SLOT_ZERO, shape, ""))
        return;
    uint8_t *base = vcase_take(c, 6 * stride);
    int32_t *dst = vcase_ints(c, to, 2);
    const kvant_slot_zero_args a = { base, dst, n, stride, bytes };
    vcase_fill((float *)(void *)base, 6 * stride / sizeof(float), 4);
    vcase_about(c, "%zu bytes", bytes);
    vcase_run(c, &a, 0.0);
}

void cases_slots(vcase *c)
{
    static const size_t bytes[] = { 100, 40000 };
    static const char *const shape[3] = { "chain", "swap", "fork" };
    static const int32_t from[3][3] = { { 1, 2, 3 }, { 1, 0, 3 }, { 2, 2, 4 } }, to[3] = { 0, 1, 2 };

    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < 3; p++)
            slot_copy(c, bytes[i], from[p], to, 3, shape[p]);
        slot_zero(c, bytes[i], 2, "some");
    }
    slot_copy(c, 100, from[0], to, 0, "empty");
    slot_zero(c, 100, 0, "empty");
}
