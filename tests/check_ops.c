/* check_ops.c: what the op harness (check_variants) cannot see: known answers of the references (ties, values that are
 * not finite, slots, sealed rows, orders), and fused forms against their decomposition bit for bit. */
#include <stdint.h>
#include "base/half.h"
#include "base/rng.h"
#include "kvant/qjl.h"
#include "support/check.h"
#include "support/op_run.h"

static const int ROWS[] = { 0, 1, 3, 17 };
static const int WIDTHS[] = { 1, 7, 8, 31, 64, 80, 1000, 2500 };

/* Known answers: ties, one value, and values that are not finite. */
static void check_argmax(void)
{
    float x[5 * 4] = { 1, 3, 3, 2, -1, -2, -5, -1, NAN, 1, 2, 3, 1, 2, INFINITY, 0, 0, 0, -INFINITY, 0 };
    static const int32_t want[5] = { 1, 0, -1, -1, -1 };
    int32_t ids[5];
    kvant_argmax_args a = { x, ids, 5, 4 };

    op_run(KVANT_OP_ARGMAX, kvant_op_reference(KVANT_OP_ARGMAX), &a, 2);
    for (int i = 0; i < 5; i++)
        CHECK(ids[i] == want[i], "argmax: row %d gives %d, wanted %d", i, ids[i], want[i]);
    a = (kvant_argmax_args){ x, ids, 2, 1 };
    op_run(KVANT_OP_ARGMAX, kvant_op_reference(KVANT_OP_ARGMAX), &a, 1);
    CHECK(ids[0] == 0 && ids[1] == 0, "argmax of one value: %d %d", ids[0], ids[1]);
}

typedef struct ranked { float x; int id; } ranked;

static int rank_order(const void *a, const void *b)
{
    const ranked *p = a, *q = b;
    return p->x != q->x ? (p->x < q->x) - (p->x > q->x) : p->id - q->id;
}

/* Against a sort of the whole row: many ties, k beyond d, and rows that are not finite. */
static void check_top_k(int d, int k)
{
    float *x = calloc((size_t)(3 * d), sizeof *x), *values = calloc((size_t)(3 * k), sizeof *values);
    int32_t *ids = calloc((size_t)(3 * k), sizeof *ids);
    ranked *all = calloc((size_t)d, sizeof *all);
    const kvant_top_k_args a = { x, values, ids, 3, d, k };
    rng r = { 7 };

    for (int i = 0; i < 3 * d; i++)
        x[i] = roundf(8.0f * rng_normal(&r)) / 4.0f;
    x[2 * d - 1] = NAN;
    op_run(KVANT_OP_TOP_K, kvant_op_reference(KVANT_OP_TOP_K), &a, 2);
    for (int row = 0; row < 3; row++) {
        for (int i = 0; i < d; i++)
            all[i] = (ranked){ x[row * d + i], i };
        qsort(all, (size_t)d, sizeof *all, rank_order);
        for (int i = 0; i < k; i++) {
            const int none = row == 1 || i >= d, id = none ? -1 : all[i].id;
            const float value = none ? 0.0f : all[i].x;
            const int at = row * k + i;
            CHECK(ids[at] == id && values[at] == value, "top_k %d of %d, row %d: %d is %d (%g), wanted %d (%g)", k, d,
                  row, i, ids[at], (double)values[at], id, (double)value);
        }
    }
    free(x), free(values), free(ids), free(all);
}

/* norm_add_rms == add; norm_rms, by the same rung of the ladder. */
static void check_fused(int n, int d)
{
    const size_t floats = (size_t)n * (size_t)d;
    float *x = malloc(4 * floats * sizeof(float)), *add = x + floats, *x2 = add + floats,
          *w = malloc((size_t)d * sizeof(float));
    float *y = check_guarded(floats * sizeof(float), 0), *y2 = check_guarded(floats * sizeof(float), 0);
    const char *name;
    const kvant_cpu_kernel *fused;
    int usable, dummy;

    check_fill_normal(w, (size_t)d, 3);
    for (int v = 0; (fused = kvant_op_variant(KVANT_OP_NORM_ADD_RMS, v, &name, &usable)) != NULL; v++) {
        const char *other;

        if (!usable)
            continue;
        check_fill_normal(x, floats, 1);
        check_fill_normal(add, floats, 2);
        memcpy(x2, x, floats * sizeof(float));
        const kvant_norm_add_rms_args a = { x, add, w, y, 1e-6f, n, d };
        const kvant_add_args b = { x2, add, n, d };
        const kvant_norm_rms_args c = { x2, w, y2, 1e-6f, n, 1, d, d, d, d, d };
        op_run(KVANT_OP_NORM_ADD_RMS, fused, &a, 2);
        op_run(KVANT_OP_ADD, kvant_op_variant(KVANT_OP_ADD, v, &other, &dummy), &b, 2);
        op_run(KVANT_OP_NORM_RMS, kvant_op_variant(KVANT_OP_NORM_RMS, v, &other, &dummy), &c, 3);
        CHECK(strcmp(name, other) == 0, "rungs %s and %s", name, other);
        CHECK(memcmp(x, x2, floats * sizeof(float)) == 0, "norm_add_rms %s: x differs from add", name);
        CHECK(memcmp(y, y2, floats * sizeof(float)) == 0, "norm_add_rms %s: y differs from add; norm_rms", name);
    }
    check_guard_free(y);
    check_guard_free(y2);
    free(x);
    free(w);
}

static void route(const float *logits, int n, int n_expert, int k, float scale, const char *what)
{
    const size_t slots = (size_t)n * (size_t)k;
    int32_t *ids = malloc(2 * slots * sizeof(int32_t)), *ref_ids = ids + slots;
    float *wts = malloc(2 * slots * sizeof(float)), *ref = wts + slots;
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_MOE_ROUTE, v, &name, &usable)) != NULL; v++) {
        const kvant_moe_route_args a = { .logits = logits, .ids = v ? ids : ref_ids, .wts = v ? wts : ref, .n = n,
                                         .n_expert = n_expert, .k = k, .scale = scale };

        if (!usable)
            continue;
        op_run(KVANT_OP_MOE_ROUTE, kernel, &a, 3);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < k; j++) {
                const int32_t id = a.ids[i * k + j];
                int fresh = id >= 0 && id < n_expert;

                for (int m = 0; m < j; m++)
                    fresh &= a.ids[i * k + m] != id;
                CHECK(fresh, "moe_route %s, %s: id %d of row %d is out of range or chosen twice", name, what, (int)id,
                      i);
            }
        for (size_t i = 0; v && i < slots; i++) {
            CHECK(ids[i] == ref_ids[i], "moe_route %s, %s: id %d, the reference has %d", name, what, ids[i],
                  ref_ids[i]);
            CHECK(fabsf(wts[i] - ref[i]) <= 1e-6f * fabsf(scale) || isnan(ref[i]), "moe_route %s, %s: weight %g vs %g",
                  name, what, (double)wts[i], (double)ref[i]);
        }
    }
    free(ids);
    free(wts);
}

static void check_routing(void)
{
    float logits[40 * 130];
    int32_t ids[4];
    float wts[4], ties[8] = { 1, 3, 3, 0, 3, 1, 1, 2 };
    const kvant_moe_route_args tie = {
        .logits = ties, .ids = ids, .wts = wts, .n = 1, .n_expert = 8, .k = 4, .scale = 1
    };

    check_fill_normal(logits, 40 * 130, 1);
    route(logits, 40, 130, 8, 1.0f, "8 of 130");
    route(logits, 40, 8, 2, 2.5f, "2 of 8");
    route(logits, 5, 7, 7, 1.0f, "all of 7");
    route(logits, 3, 1, 1, 1.0f, "one expert");
    logits[5] = NAN;
    logits[131] = INFINITY;
    route(logits, 4, 130, 130, 1.0f, "NaN and infinity");
    op_run(KVANT_OP_MOE_ROUTE, kvant_op_reference(KVANT_OP_MOE_ROUTE), &tie, 1);
    CHECK(ids[0] == 1 && ids[1] == 2 && ids[2] == 4 && ids[3] == 7,
          "ties: %d %d %d %d, wanted the lower id first: 1 2 4 7", ids[0], ids[1], ids[2], ids[3]);
    CHECK_CLOSE((double)wts[0] + (double)wts[1] + (double)wts[2] + (double)wts[3], 1.0, 1e-6, "weights sum to one");
}

/* Two of eight experts under a gate; every kernel gives the hand-computed choice and weights. */
static void routed(const kvant_moe_route_args *gate, const int32_t want_ids[2], const double want[2], const char *what)
{
    static const float logits[8] = { 0.0f, 1.0f, -1.0f, 2.0f, 0.5f, 1.5f, 0.25f, 0.25f };
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_MOE_ROUTE, v, &name, &usable)) != NULL; v++) {
        int32_t ids[2] = { -1, -1 };
        float wts[2] = { 0 };
        kvant_moe_route_args a = *gate;

        if (!usable)
            continue;
        a.logits = logits;
        a.ids = ids;
        a.wts = wts;
        a.n = 1;
        a.n_expert = 8;
        a.k = 2;
        a.scale = 2.0f;
        op_run(KVANT_OP_MOE_ROUTE, kernel, &a, 1);
        for (int j = 0; j < 2; j++) {
            CHECK(ids[j] == want_ids[j], "moe_route %s, %s: expert %d, wanted %d", name, what, ids[j], want_ids[j]);
            CHECK_CLOSE((double)wts[j], want[j], 1e-5, "%s", what);
        }
    }
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void check_gatings(void)
{
    static const float bias[8] = { 0, 0, 0, -1, 0.9f, 0, 0, 0 };
    const double s5 = sigmoid(1.5), s3 = sigmoid(2.0), s4 = sigmoid(0.5), s1 = sigmoid(1.0), e = exp(-0.5);
    const double all = 1 + exp(1) + exp(-1) + exp(2) + exp(0.5) + exp(1.5) + 2 * exp(0.25);
    kvant_moe_route_args a = { .raw = 1 };

    routed(&a, (int32_t[]){ 3, 5 }, (double[]){ 2 * exp(2) / all, 2 * exp(1.5) / all }, "softmax, raw");
    a = (kvant_moe_route_args){ .gating = KVANT_GATING_SOFTMAX_CHOSEN };
    routed(&a, (int32_t[]){ 3, 5 }, (double[]){ 2 / (1 + e), 2 * e / (1 + e) }, "softmax of the chosen");
    a = (kvant_moe_route_args){ .gating = KVANT_GATING_SIGMOID };
    routed(&a, (int32_t[]){ 3, 5 }, (double[]){ 2 * s3 / (s3 + s5), 2 * s5 / (s3 + s5) }, "sigmoid");
    a.bias = bias;
    routed(&a, (int32_t[]){ 4, 5 }, (double[]){ 2 * s4 / (s4 + s5), 2 * s5 / (s4 + s5) }, "sigmoid with a bias");
    a.bias = NULL;
    a.raw = 1;
    a.n_group = 4;
    a.top_groups = 1;
    a.group_best = 2;
    routed(&a, (int32_t[]){ 5, 4 }, (double[]){ 2 * s5, 2 * s4 }, "the group with the best two");
    a.group_best = 1;
    routed(&a, (int32_t[]){ 3, 2 }, (double[]){ 2 * s3, 2 * sigmoid(-1.0) }, "the group with the best one");
    a.n_group = 2;
    routed(&a, (int32_t[]){ 3, 1 }, (double[]){ 2 * s3, 2 * s1 }, "the better half");
}

/* A sealed row is the row of the values as the exact tail held them, rounded to f16: what the reference means. */
static void check_sealed(const kvant_format *f, int d, int encoder)
{
    enum { ROW = 40 };
    static float projection[KVANT_QJL_VALUES];
    const size_t rb = kvant_format_row_bytes(f, d);
    uint8_t *page = check_guarded(rb * KVANT_PAGE, 1), row[2048];
    uint16_t *tail = check_guarded((size_t)(KVANT_PAGE * d) * sizeof(uint16_t), 2);
    float x[256] = { 0 };
    const int32_t zero = 0;
    kvant_kv_side side = { .fmt = f, .pages = page, .page_bytes = rb * KVANT_PAGE, .head_bytes = rb * KVANT_PAGE,
                           .row_bytes = rb, .tail = tail, .encoder = encoder };
    const kvant_page_seal_args seal = { side, &zero, &zero, 1, 1, d };
    kvant_page_seal_args with_param = seal;

    check_fill_normal(projection, KVANT_QJL_VALUES, 7);
    if (f->flags & KVANT_FORMAT_PARAM)
        with_param.side.param = projection;
    for (int i = 0; i < KVANT_PAGE * d; i++)
        tail[i] = f32_to_half((float)((i * 37) % 101 - 50) * 0.03f);
    for (int e = 0; e < d; e++)
        x[e] = half_to_f32(tail[ROW * d + e]);
    op_run(KVANT_OP_PAGE_SEAL, kvant_op_reference(KVANT_OP_PAGE_SEAL), &with_param, 1);
    if (f->flags & KVANT_FORMAT_PAGE) {
        float acc[256], y[256];
        kvant_page_decode_acc(f, NULL, page, ROW, acc, kvant_format_padded(f, d));
        f->ref.finish_out(NULL, acc, y, kvant_format_padded(f, d));
        CHECK(check_nmse(y, x, (size_t)d) < 0.2, "%s d %d: sealed row", f->name, d);
    } else {
        f->ref.encode(with_param.side.param, x, row, kvant_format_padded(f, d), encoder);
        CHECK(memcmp(row, page + ROW * rb, rb) == 0, "%s d %d encoder %d: sealed row", f->name, d, encoder);
    }
    CHECK(check_guard_ok(page) && check_guard_ok(tail), "%s d %d: wrote outside", f->name, d);
    check_guard_free(page);
    check_guard_free(tail);
}

static void check_slots(void)
{
    enum { SLOTS = 6, STRIDE = 24, BYTES = 19 };
    static const int32_t src[4][3] = { { 1, 2, 0 }, { 0, 1, 2 }, { 4, 4, 4 }, { 2, 1, 0 } },
                         dst[4][3] = { { 2, 1, 5 }, { 1, 2, 3 }, { 0, 1, 4 }, { 3, 2, 1 } };

    for (int i = 0; i < 4; i++) {
        uint8_t mem[SLOTS * STRIDE], before[SLOTS * STRIDE], expect[SLOTS * STRIDE];

        for (int b = 0; b < SLOTS * STRIDE; b++)
            mem[b] = (uint8_t)(b * 7 + 1);
        memcpy(before, mem, sizeof mem);
        memcpy(expect, mem, sizeof mem);
        for (int j = 0; j < 3; j++)
            memcpy(expect + dst[i][j] * STRIDE, before + src[i][j] * STRIDE, BYTES);
        const kvant_slot_copy_args copy = { mem, src[i], dst[i], 3, STRIDE, BYTES };
        op_run(KVANT_OP_SLOT_COPY, kvant_op_cpu(KVANT_OP_SLOT_COPY), &copy, 2);
        CHECK(memcmp(mem, expect, sizeof mem) == 0, "slot_copy pattern %d", i);
        const kvant_slot_zero_args zero = { mem, dst[i], 3, STRIDE, BYTES };
        op_run(KVANT_OP_SLOT_ZERO, kvant_op_cpu(KVANT_OP_SLOT_ZERO), &zero, 2);
        for (int j = 0; j < 3; j++)
            memset(expect + dst[i][j] * STRIDE, 0, BYTES);
        CHECK(memcmp(mem, expect, sizeof mem) == 0, "slot_zero pattern %d", i);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        for (size_t j = 0; j < sizeof WIDTHS / sizeof *WIDTHS; j++)
            check_fused(ROWS[i], WIDTHS[j]);
    check_routing();
    check_gatings();
    for (int i = 0; i < kvant_format_count(); i++)
        for (int d = 64; d <= 256; d = d == 64 ? 80 : d == 80 ? 128 : 2 * d)
            for (int encoder = 0; encoder < 2; encoder++)
                if (kvant_format_check(kvant_format_at(i), d, NULL) == KVANT_OK)
                    check_sealed(kvant_format_at(i), d, encoder);
    check_slots();
    check_argmax();
    for (int k = 1; k <= 128; k += k < 3 ? 1 : 25)
        for (int d = 1; d < 3000; d = 3 * d + 1)
            check_top_k(d, k);
    return check_end("check_ops");
}
