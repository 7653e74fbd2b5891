/* check_ops.c: the small ops: norms, rope, elementwise, routing, cache rows and slots.
 * Every variant against the scalar reference over odd shapes, strides with NaN in the gaps, several parts; fused forms
 * against their decomposition bit for bit; kvant_op_check on arguments that are wrong in one place each. */
#include <stdint.h>
#include "base/half.h"
#include "base/rng.h"
#include "support/check.h"
#include "support/op_run.h"

/* An op with the float buffers that it reads or writes; args points at buf[i].p already. */
typedef struct op_case {
    int id, n_buf;
    const void *args;
    struct {
        float *p, *before, *ref;
        size_t n;
    } buf[6];
    double tol;
    const char *what;
} op_case;

/* n floats in rows of `width` used values at distance ld; the gaps stay NaN. */
static float *add_buffer(op_case *c, size_t rows, size_t width, size_t ld, float lo, float hi)
{
    const size_t n = rows ? (rows - 1) * ld + width : 0;
    float *p = check_guarded(n * sizeof(float), 4);

    for (size_t i = 0; i < rows; i++)
        check_fill(p + i * ld, width, lo, hi, (uint64_t)(c->id * 1000 + c->n_buf * 100) + i);
    c->buf[c->n_buf].p = p;
    c->buf[c->n_buf].n = n;
    c->buf[c->n_buf].before = malloc(n * sizeof(float) + 1);
    c->buf[c->n_buf].ref = malloc(n * sizeof(float) + 1);
    memcpy(c->buf[c->n_buf].before, p, n * sizeof(float));
    c->n_buf++;
    return p;
}

/* An output buffer: all NaN before. */
static float *add_output(op_case *c, size_t rows, size_t width, size_t ld)
{
    float *p = add_buffer(c, rows, width, ld, 0, 1);

    memset(p, 0xFF, c->buf[c->n_buf - 1].n * sizeof(float));
    memset(c->buf[c->n_buf - 1].before, 0xFF, c->buf[c->n_buf - 1].n * sizeof(float));
    return p;
}

static void restore(op_case *c)
{
    for (int b = 0; b < c->n_buf; b++)
        memcpy(c->buf[b].p, c->buf[b].before, c->buf[b].n * sizeof(float));
}

/* NMSE against the reference; infinite where a NaN appears or disappears. */
static double compare_buffer(const op_case *c, int b)
{
    double err = 0, sum = 0;

    for (size_t i = 0; i < c->buf[b].n; i++) {
        const float x = c->buf[b].p[i], y = c->buf[b].ref[i];

        if (isnan(x) != isnan(y))
            return INFINITY;
        if (!isnan(y)) {
            err += ((double)x - y) * ((double)x - y);
            sum += (double)y * y;
        }
    }
    return sum > 0 ? err / sum : err;
}

static void run_case(op_case *c)
{
    static const int parts[] = { 1, 2, 7 };
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    op_run(c->id, kvant_op_reference(c->id), c->args, 1);
    for (int b = 0; b < c->n_buf; b++)
        memcpy(c->buf[b].ref, c->buf[b].p, c->buf[b].n * sizeof(float));
    for (int v = 0; (kernel = kvant_op_variant(c->id, v, &name, &usable)) != NULL; v++) {
        uint32_t bits[3] = { 0 };

        for (int k = 0; k < 3 && usable; k++) {
            restore(c);
            op_run(c->id, kernel, c->args, parts[k]);
            for (int b = 0; b < c->n_buf; b++) {
                const double nmse = compare_buffer(c, b);
                CHECK(nmse <= c->tol, "%s %s, %s, %d parts: buffer %d, NMSE %g", kvant_op_get(c->id)->name, name,
                      c->what, parts[k], b, nmse);
                CHECK(check_guard_ok(c->buf[b].p), "%s %s wrote outside", kvant_op_get(c->id)->name, name);
                for (size_t i = 0; i < c->buf[b].n; i++)
                    bits[k] = bits[k] * 31 + f32_bits(c->buf[b].p[i]);
            }
            CHECK(bits[k] == bits[0], "%s %s: %d parts change the bits", kvant_op_get(c->id)->name, name, parts[k]);
        }
    }
    for (int b = 0; b < c->n_buf; b++) {
        check_guard_free(c->buf[b].p);
        free(c->buf[b].before);
        free(c->buf[b].ref);
    }
}

static const int ROWS[] = { 0, 1, 3, 17 };
static const int WIDTHS[] = { 1, 7, 8, 31, 64, 80, 1000, 2500 };

static void check_norms(int n, int d)
{
    const size_t rows = (size_t)n, width = (size_t)d, h = 3;
    op_case c = { .id = KVANT_OP_NORM_RMS, .tol = 1e-7, .what = "groups with gaps" };
    const kvant_norm_rms_args rms = { .x = add_buffer(&c, rows * h, width, width + 2, -1, 1),
                                      .w = add_buffer(&c, 1, width, width, -1, 1),
                                      .y = add_output(&c, rows * h, width, width + 5),
                                      .eps = 1e-6f,
                                      .n = n,
                                      .h = 3,
                                      .d = d,
                                      .ldx = 3 * (d + 2),
                                      .gx = d + 2,
                                      .ldy = 3 * (d + 5),
                                      .gy = d + 5 };
    c.args = &rms;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_NORM_RMS, .tol = 1e-7, .what = "in place" };
    kvant_norm_rms_args same = { .x = add_buffer(&c, rows, width, width, -9, 9),
                                 .w = add_buffer(&c, 1, width, width, -1, 1),
                                 .eps = 0,
                                 .n = n,
                                 .h = 1,
                                 .d = d,
                                 .ldx = d,
                                 .gx = d,
                                 .ldy = d,
                                 .gy = d };
    same.y = c.buf[0].p;
    c.args = &same;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_NORM_ADD_RMS, .tol = 1e-7, .what = "dense" };
    const kvant_norm_add_rms_args add = { .x = add_buffer(&c, rows, width, width, -1, 1),
                                          .add = add_buffer(&c, rows, width, width, -1, 1),
                                          .w = add_buffer(&c, 1, width, width, -1, 1),
                                          .y = add_output(&c, rows, width, width),
                                          .eps = 1e-5f,
                                          .n = n,
                                          .d = d };
    c.args = &add;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_NORM_L2, .tol = 1e-7, .what = "groups with gaps" };
    const kvant_norm_l2_args l2 = { .x = add_buffer(&c, rows * h, width, width + 2, -1e-3f, 1e-3f),
                                    .eps = 1e-6f,
                                    .n = n,
                                    .h = 3,
                                    .d = d,
                                    .ldx = 3 * (d + 2),
                                    .gx = d + 2 };
    c.args = &l2;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_NORM_GATED, .tol = 1e-7, .what = "three heads" };
    const kvant_norm_gated_args gated = { .o = add_buffer(&c, rows, h * width, h * width, -1, 1),
                                          .z = add_buffer(&c, rows, h * width, h * width + 9, -30, 30),
                                          .w = add_buffer(&c, 1, width, width, -1, 1),
                                          .y = add_output(&c, rows, h * width, h * width),
                                          .eps = 1e-6f,
                                          .n = n,
                                          .h = 3,
                                          .dv = d,
                                          .ldz = 3 * d + 9 };
    c.args = &gated;
    run_case(&c);
}

static void check_elementwise(int n, int d)
{
    const size_t rows = (size_t)n, width = (size_t)d;
    op_case c = { .id = KVANT_OP_ADD, .tol = 0, .what = "dense" };
    const kvant_add_args add = {
        .x = add_buffer(&c, rows, width, width, -1, 1), .y = add_buffer(&c, rows, width, width, -1, 1), .n = n, .d = d
    };
    c.args = &add;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_SWIGLU, .tol = 1e-7, .what = "two halves, steep gates" };
    const kvant_swiglu_args swiglu = { .gate = add_buffer(&c, rows, width, 2 * width + 3, -100, 100),
                                       .up = add_buffer(&c, rows, width, width + 1, -1, 1),
                                       .y = add_output(&c, rows, width, width + 2),
                                       .n = n,
                                       .f = d,
                                       .ldg = 2 * d + 3,
                                       .ldu = d + 1,
                                       .ldy = d + 2 };
    c.args = &swiglu;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_GATE_MUL, .tol = 1e-7, .what = "heads with gates between them" };
    const kvant_gate_mul_args mul = { .y = add_buffer(&c, rows * 2, width, width + 4, -1, 1),
                                      .gate = add_buffer(&c, rows * 2, width, 2 * width + 1, -90, 90),
                                      .n = n,
                                      .h = 2,
                                      .d = d,
                                      .ldy = 2 * (d + 4),
                                      .gy = d + 4,
                                      .ldg = 2 * (2 * d + 1),
                                      .gg = 2 * d + 1 };
    c.args = &mul;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_GATE_ADD, .tol = 1e-7, .what = "one gate per row" };
    const kvant_gate_add_args gate = { .y = add_buffer(&c, rows, width, width, -1, 1),
                                       .x = add_buffer(&c, rows, width, width, -1, 1),
                                       .gate = add_buffer(&c, 1, rows, rows, -5, 5),
                                       .n = n,
                                       .d = d };
    c.args = &gate;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_GDN_GATES, .tol = 1e-7, .what = "small and large alpha" };
    const kvant_gdn_gates_args gates = { .alpha = add_buffer(&c, rows, width, width, -40, 40),
                                         .beta = add_buffer(&c, rows, width, width, -9, 9),
                                         .a = add_buffer(&c, 1, width, width, -4, 0),
                                         .dt = add_buffer(&c, 1, width, width, -1, 1),
                                         .n = n,
                                         .h = d };
    c.args = &gates;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_MOE_COMBINE, .tol = 1e-7, .what = "three slots" };
    const kvant_moe_combine_args combine = { .x = add_buffer(&c, rows * 3, width, width, -1, 1),
                                             .wts = add_buffer(&c, 1, rows * 3, rows * 3, 0, 1),
                                             .y = add_output(&c, rows, width, width),
                                             .n = n,
                                             .k = 3,
                                             .d = d };
    c.args = &combine;
    run_case(&c);
    c = (op_case){ .id = KVANT_OP_ROWS_GATHER, .tol = 0, .what = "some rows twice" };
    int32_t idx[32];
    for (int i = 0; i < n; i++)
        idx[i] = (i * 7 + 2) % 9;
    const kvant_rows_gather_args gather = {
        .x = add_buffer(&c, 9, width, width, -1, 1), .idx = idx, .y = add_output(&c, rows, width, width), .n = n, .d = d
    };
    c.args = &gather;
    run_case(&c);
}

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

static void check_rope(int n, int n_rot, int neox)
{
    const size_t rows = (size_t)n, width = (size_t)n_rot;
    op_case c = { .id = KVANT_OP_ROPE, .tol = 1e-7, .what = neox ? "halves" : "pairs" };
    int32_t pos[32];
    float inv_freq[128];

    for (int i = 0; i < n_rot / 2; i++)
        inv_freq[i] = powf(1e6f, -2.0f * (float)i / (float)n_rot);
    for (int i = 0; i < n; i++)
        pos[i] = i * i * 2500;
    const kvant_rope_args rope = { .x = add_buffer(&c, rows * 3, width, width + 5, -1, 1),
                                   .pos = pos,
                                   .inv_freq = inv_freq,
                                   .mscale = 1.1f,
                                   .neox = neox,
                                   .n_rot = n_rot,
                                   .n = n,
                                   .h = 3,
                                   .ldx = 3 * (n_rot + 5),
                                   .gx = n_rot + 5 };
    c.args = &rope;
    run_case(&c);
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
        const kvant_moe_route_args a = { logits, v ? ids : ref_ids, v ? wts : ref, n, n_expert, k, scale };

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
    const kvant_moe_route_args tie = { ties, ids, wts, 1, 8, 4, 1.0f };

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

enum { PAGES = 5, HEADS = 3, TOKENS = 70 };

/* Bytes that differ between two caches, of those that the reference wrote or left. */
static size_t bytes_differ(const uint8_t *a, const uint8_t *b, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += a[i] != b[i];
    return count;
}

/* Tokens of two sequences into pages (and tails), then whole pages sealed, then rows read back. */
static void check_cache_format(const kvant_format *f, int d, int encoder)
{
    static float projection[256 * 128];
    const size_t rb = kvant_format_row_bytes(f, d), page = rb * KVANT_PAGE * HEADS + 3, bytes = page * PAGES;
    const size_t tail_n = (size_t)PAGES * HEADS * KVANT_PAGE * (size_t)d;
    int32_t q0[3] = { 0, TOKENS - 3, TOKENS }, pos0[2] = { 30, 63 }, prompt[2] = { 1, 0 };
    int32_t table[4] = { 3, 0, 4, 1 }, tails[4] = { 1, 4, -1, 2 }, src[2] = { 1, 4 }, dst[2] = { 0, 2 };
    const int64_t ldx = HEADS * d + 4;
    float *x = malloc((size_t)(TOKENS * ldx) * sizeof(float));
    uint8_t *mem[2];
    uint16_t *tail[2];

    check_fill_normal(projection, 256 * 128, 7);
    check_fill_normal(x, (size_t)(TOKENS * ldx), 11);
    memset(x + ldx, 0, (size_t)(HEADS * d) * sizeof(float));
    for (int w = 0; w < 2; w++) {
        mem[w] = check_guarded(bytes, 1);
        tail[w] = check_guarded(tail_n * sizeof(uint16_t), 2);
    }
    for (int use_tail = 0; use_tail < 2; use_tail++)
        for (int w = 0; w < 2; w++) {
            const kvant_kv_side side = { f,
                                         (f->flags & KVANT_FORMAT_PARAM) ? projection : NULL,
                                         mem[w],
                                         page,
                                         rb * KVANT_PAGE,
                                         rb,
                                         use_tail ? tail[w] : NULL,
                                         encoder,
                                         KVANT_LAYOUT_ROWS };
            const kvant_cache_write_args a = { { .n_seqs = 2,
                                                 .n_tokens = TOKENS,
                                                 .q0 = q0,
                                                 .pos0 = pos0,
                                                 .prompt = prompt,
                                                 .table = table,
                                                 .tail_table = tails,
                                                 .table_stride = 2 },
                                               side,
                                               x,
                                               ldx,
                                               HEADS,
                                               d };

            op_run(KVANT_OP_CACHE_WRITE,
                   w ? kvant_op_cpu(KVANT_OP_CACHE_WRITE) : kvant_op_reference(KVANT_OP_CACHE_WRITE), &a, 1 + 6 * w);
            if (use_tail) {
                for (size_t i = 0; i < tail_n; i++) /* rows of the tail that were not written: any finite value */
                    tail[w][i] = (tail[w][i] & 0x7c00u) == 0x7c00u ? 0x3c00u : tail[w][i];
                const kvant_page_seal_args seal = { side, src, dst, 2, HEADS, d };
                op_run(KVANT_OP_PAGE_SEAL,
                       w ? kvant_op_cpu(KVANT_OP_PAGE_SEAL) : kvant_op_reference(KVANT_OP_PAGE_SEAL), &seal, 1 + 6 * w);
            }
        }
    CHECK(memcmp(tail[0], tail[1], tail_n * sizeof(uint16_t)) == 0, "%s d %d: exact tails differ", f->name, d);
    const size_t differ = bytes_differ(mem[0], mem[1], bytes);
    /* A code at a decision boundary is one byte; of two scales that fit equally well `best` may take the other one,
     * which changes a whole group (check_kernels bounds its error).  A wrong address would change far more than
     * either. */
    const double most = encoder == KVANT_ENCODER_BEST ? 1e-2 : 1e-3;
    CHECK((double)differ <= most * (double)bytes, "%s d %d encoder %d: %zu of %zu cache bytes differ", f->name, d,
          encoder, differ, bytes);
    CHECK(check_guard_ok(mem[1]) && check_guard_ok(tail[1]), "%s d %d: wrote outside", f->name, d);

    /* page_seal of a tail row is cache_write of the same value after rounding to f16: row 40 of page 1 is token 10 */
    float rounded[256], back[2][2 * HEADS * 256];
    uint8_t row[2048];
    const int dp = kvant_format_padded(f, d);
    memset(rounded, 0, sizeof rounded);
    for (int e = 0; e < d; e++)
        rounded[e] = half_to_f32(f32_to_half(x[10 * ldx + d + e]));
    f->ref.encode((f->flags & KVANT_FORMAT_PARAM) ? projection : NULL, rounded, row, dp, encoder);
    CHECK(memcmp(row, mem[0] + (size_t)dst[0] * page + rb * KVANT_PAGE + 40 * rb, rb) == 0, "%s d %d: sealed row",
          f->name, d);

    int32_t pages[2] = { 0, 2 }, rows[2] = { 40, 63 };
    for (int w = 0; w < 2; w++) {
        const kvant_kv_side side = {
            f,  (f->flags & KVANT_FORMAT_PARAM) ? projection : NULL, mem[0], page, rb * KVANT_PAGE,
            rb, NULL, encoder, KVANT_LAYOUT_ROWS
        };
        const kvant_cache_read_args read = { side, pages, rows, back[w], 2, HEADS, d };

        op_run(KVANT_OP_CACHE_READ, w ? kvant_op_cpu(KVANT_OP_CACHE_READ) : kvant_op_reference(KVANT_OP_CACHE_READ),
               &read, 1 + 2 * w);
    }
    const double nmse = check_nmse(back[1], back[0], (size_t)(2 * HEADS * d));
    CHECK(nmse <= 1e-10, "%s d %d: cache_read NMSE %g", f->name, d, nmse);
    for (int w = 0; w < 2; w++) {
        check_guard_free(mem[w]);
        check_guard_free(tail[w]);
    }
    free(x);
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
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        for (size_t j = 0; j < sizeof WIDTHS / sizeof *WIDTHS; j++) {
            check_norms(ROWS[i], WIDTHS[j]);
            check_elementwise(ROWS[i], WIDTHS[j]);
            check_fused(ROWS[i], WIDTHS[j]);
        }
        for (int neox = 0; neox < 2; neox++)
            for (int n_rot = 2; n_rot <= 128; n_rot *= 2)
                check_rope(ROWS[i], n_rot == 32 ? 40 : n_rot, neox);
    }
    check_routing();
    for (int i = 0; i < kvant_format_count(); i++)
        for (int d = 64; d <= 256; d = d == 64 ? 80 : d == 80 ? 128 : 2 * d)
            for (int encoder = 0; encoder < 2; encoder++)
                if (kvant_format_check(kvant_format_at(i), d, NULL) == KVANT_OK)
                    check_cache_format(kvant_format_at(i), d, encoder);
    check_slots();
    check_argmax();
    for (int k = 1; k <= 128; k += k < 3 ? 1 : 25)
        for (int d = 1; d < 3000; d = 3 * d + 1)
            check_top_k(d, k);
    return check_end("check_ops");
}
