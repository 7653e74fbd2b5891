/* check_formats.c: the cache formats: golden vectors, the registry, and properties every format must have.
 * It names no kernel: formats and variants are found through the registry, so a new one is tested without an edit here.
 *   build/release/bin/check_formats [GOLDEN_DIR] */
#include <math.h>
#include <stdint.h>
#include "base/cpu.h"
#include "base/half.h"
#include "base/rng.h"
#include "verify/golden/golden.h"
#include "kvant/fused.h"
#include "kvant/format.h"
#include "kvant/polar.h"
#include "kvant/qjl.h"
#include "support/check.h"

enum { MAX_D = 256, MAX_SDIM = 512, MAX_ROW = 4 * MAX_D };

static float projection[KVANT_QJL_VALUES];
static golden_report report;

static const void *param_of(const kvant_format *f)
{
    return f->flags & KVANT_FORMAT_PARAM ? projection : NULL;
}

static void check_golden(const char *dir)
{
    kvant_diag diag = { "" };
    int rc = golden_run_dir(dir, NULL, &report, &diag);
    CHECK(rc == KVANT_OK, "%s", diag.text);
    for (int i = 0; i < report.n_failures; i++)
        printf("golden: %s\n", report.failures[i]);
    CHECK(report.total.failed == 0, "%d golden comparisons failed", report.total.failed);
    CHECK(report.total.passed > 100, "only %d golden comparisons in %s", report.total.passed, dir);
    printf("golden: %d passed, %d failed, %d skipped, %d informative, %d accepted ties\n", report.total.passed,
           report.total.failed, report.total.skipped, report.total.informative, report.total.ties);
    CHECK(golden_run_dir("tests/no-such-folder", NULL, &report, &diag) == KVANT_ENOENT, "%s", diag.text);
}

/* Published by the makers of the formats; printed with 6 digits, sums in another order: 1e-5. */
static void check_selftest(void)
{
    static const float want[GOLDEN_SELFTEST] = { -2.501480f, -23.721790f, -4.822659f, 3.696591f, -1.994053f,
                                                 -1.438744f };
    float got[GOLDEN_SELFTEST];
    CHECK(golden_selftest(got, NULL) == KVANT_OK, "self-test");
    for (int i = 0; i < GOLDEN_SELFTEST; i++)
        CHECK_CLOSE(got[i], want[i], 1e-5, "self-test %d", i);
}

/* Every pointer of the format's scope, and none of the other. */
static int has_all(const kvant_format *f, const kvant_format_kernels *k)
{
    const int rows = (k->encode != NULL) + (k->decode_acc != NULL) + (k->score != NULL) + (k->axpy != NULL);
    const int pages = (k->encode_page != NULL) + (k->decode_page != NULL) + (k->score_page != NULL) +
                      (k->axpy_page != NULL);
    const int paged = (f->flags & KVANT_FORMAT_PAGE) != 0;

    return k->prep_q && k->finish_out && rows == (paged ? 0 : 4) && pages == (paged ? 4 : 0);
}

static void check_registry(void)
{
    kvant_diag diag = { "" };
    const kvant_format *f = NULL;
    CHECK(kvant_format_count() >= 15, "%d formats", kvant_format_count());
    CHECK(!kvant_format_at(-1) && !kvant_format_at(kvant_format_count()), "out of range");
    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *g = kvant_format_at(i);
        CHECK(kvant_format_find(g->name) == g, "%s", g->name);
        CHECK(has_all(g, &g->ref), "%s: a reference is missing", g->name);
    }
    CHECK(kvant_format_find("tbq3") == kvant_format_find("tbq3_0"), "alias");
    CHECK(kvant_format_find("fp16") == kvant_format_find("f16"), "alias");
    CHECK(!kvant_format_find("") && !kvant_format_find("tbq") && !kvant_format_find(NULL), "no such format");
    CHECK(!kvant_format_find("fp16 half"), "two words are no name");
    CHECK(kvant_format_parse("q9_9", &f, &diag) == KVANT_EINVAL && !f, "unknown format accepted");
    for (int i = 0; i < kvant_format_count(); i++)
        CHECK(strstr(diag.text, kvant_format_at(i)->name), "the message does not list %s: %s", kvant_format_at(i)->name,
              diag.text);
    CHECK(kvant_format_parse("tbq4", &f, &diag) == KVANT_OK && strcmp(f->name, "tbq4_0") == 0, "parse");
}

static void check_sizes(void)
{
    static const struct {
        const char *name;
        int d, ok;
        size_t bytes;
        int sdim;
    } cases[] = { { "f16", 80, 1, 160, 80 },       { "q8_0", 96, 1, 102, 96 },       { "q4_0", 80, 0, 0, 0 },
                  { "tbq3_0", 64, 1, 28, 64 },     { "tbq4_0", 128, 1, 72, 128 },    { "turbo3", 64, 1, 56, 128 },
                  { "turbo3", 256, 1, 112, 256 },  { "turbo4", 96, 0, 0, 0 },        { "turbo4_66", 128, 1, 66, 128 },
                  { "turbo3_tcq", 128, 1, 52, 128 }, { "qjl1_256", 256, 1, 68, 512 }, { "qjl1_256", 32, 0, 0, 0 },
                  { "q4_polar", 64, 1, 82, 128 },  { "q4_polar_r", 192, 0, 0, 0 },   { "f8_e4m3", 80, 1, 80, 80 },
                  { "ptcq2", 128, 1, 37, 128 },    { "ptcq3", 256, 1, 106, 256 },   { "ptcq4", 64, 1, 69, 128 },
                  { "ptcq3", 96, 0, 0, 0 },        { "ptcq3", 576, 0, 0, 0 },
                  { "f16", 576, 1, 1152, 576 }, { "q8_0", 544, 0, 0, 0 },
                  { "f32", 0, 0, 0, 0 },           { "f32", 577, 0, 0, 0 },          { "bf16", -1, 0, 0, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const kvant_format *f = kvant_format_find(cases[i].name);
        kvant_diag diag = { "" };
        int ok = kvant_format_check(f, cases[i].d, &diag) == KVANT_OK;
        CHECK(ok == cases[i].ok, "%s d=%d: %s", f->name, cases[i].d, diag.text);
        CHECK(ok || (strstr(diag.text, f->name) && strstr(diag.text, "want")), "%s", diag.text);
        CHECK(!ok || kvant_format_row_bytes(f, cases[i].d) == cases[i].bytes, "%s d=%d: %zu bytes", f->name, cases[i].d,
              kvant_format_row_bytes(f, cases[i].d));
        CHECK(!ok || kvant_format_sdim(f, cases[i].d) == cases[i].sdim, "%s d=%d", f->name, cases[i].d);
    }
}

/* B21: a format that needs a parameter says so, and its kernels without one give NaN instead of reading address 0. */
static void check_missing_param(const kvant_format *f)
{
    enum { D = 256, S = 1024, B = 1024 };
    float x[D], y[S];
    uint8_t row[B];
    kvant_diag diag = { "" };
    const kvant_format_kernels *k;
    const char *name;
    int usable, needs = (f->flags & KVANT_FORMAT_PARAM) != 0, code = kvant_format_check_param(f, NULL, &diag);

    CHECK(code == (needs ? KVANT_EINVAL : KVANT_OK), "%s: %d %s", f->name, code, diag.text);
    CHECK(!needs || (strstr(diag.text, f->name) && strstr(diag.text, "want its projection")), "%s", diag.text);
    CHECK(kvant_format_check_param(f, x, NULL) == KVANT_OK, "%s: refuses a parameter", f->name);
    for (int i = 0; i < D; i++)
        x[i] = (float)(i % 7) - 3.0f;
    for (int i = 0; needs && (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        k->prep_q(NULL, x, y, D);
        CHECK(isnan(y[0]) && isnan(y[kvant_format_sdim(f, D) - 1]), "%s %s: prep_q %g", f->name, name, (double)y[0]);
        k->encode(NULL, x, row, D, KVANT_ENCODER_BEST);
        k->decode_acc(NULL, row, 0, 1, y, D);
        CHECK(isnan(y[0]) && isnan(y[kvant_format_sdim(f, D) - 1]), "%s %s: encode %g", f->name, name, (double)y[0]);
        k->finish_out(NULL, y, x, D);
        CHECK(isnan(x[0]) && isnan(x[D - 1]), "%s %s: finish_out %g", f->name, name, (double)x[0]);
        for (int j = 0; j < D; j++)
            x[j] = (float)(j % 7) - 3.0f;
    }
}

/* The ladder: lowering the mask lowers the choice; every rung has every pointer. */
static void check_ladder(const kvant_format *f)
{
    const char *name;
    int usable;
    cpu_set_mask(0);
    CHECK(memcmp(kvant_format_best(f), &f->ref, sizeof f->ref) == 0, "%s: mask 0 does not give the reference", f->name);
    for (int i = 1; kvant_format_variant(f, i, &name, &usable); i++)
        CHECK(!usable, "%s %s: usable under mask 0", f->name, name);
    cpu_set_mask(~0u);
    const kvant_format_kernels *last = &f->ref, *k;
    for (int i = 0; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++) {
        CHECK(has_all(f, k), "%s %s: NULL", f->name, name);
        CHECK(i || strcmp(name, "ref") == 0, "%s: the first rung is %s", f->name, name);
        last = usable ? k : last;
    }
    CHECK(memcmp(kvant_format_best(f), last, sizeof *last) == 0, "%s: best is not the highest usable rung", f->name);
}

/* --- properties of one format at one head_dim --------------------------------------------------------------------- */

/* Largest relative squared error of a decoded Gaussian row of 128: about twice the mean of issue-level bounds. */
static double row_bound(const kvant_format *f)
{
    static const struct {
        const char *name;
        double bound;
    } bounds[] = { { "f32", 0 },        { "f16", 1e-6 },      { "bf16", 3e-5 },     { "q8_0", 2e-4 },
                   { "q4_0", 0.03 },    { "tbq4_0", 0.03 },   { "tbq3_0", 0.1 },    { "turbo3", 0.07 },
                   { "turbo4", 0.03 },  { "turbo4_66", 0.02 }, { "turbo3_tcq", 0.045 }, { "q4_polar", 0.02 },
                   { "q4_polar_r", 0.03 }, { "f8_e4m3", 2e-3 } };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (strcmp(bounds[i].name, f->name) == 0)
            return bounds[i].bound;
    return 3.0;                            /* qjl1_256: an estimator of scores, not of rows */
}

/* encode between poisoned guards; returns the row (to be freed with check_guard_free). */
static uint8_t *encode_guarded(const kvant_format *f, const float *x, int d, int encoder)
{
    size_t rb = kvant_format_row_bytes(f, d);
    float *in = check_guarded((size_t)d * sizeof *in, 0);
    uint8_t *row = check_guarded(rb, 1);   /* rows may be unaligned */
    memcpy(in, x, (size_t)d * sizeof *in);
    f->ref.encode(param_of(f), in, row, d, encoder);
    CHECK(check_guard_ok(in) && check_guard_ok(row), "%s d=%d: encode wrote outside", f->name, d);
    CHECK(memcmp(in, x, (size_t)d * sizeof *in) == 0, "%s d=%d: encode changed its input", f->name, d);
    check_guard_free(in);
    return row;
}

static void check_round_trip(const kvant_format *f, int d, int encoder)
{
    float x[MAX_D], y[MAX_D];
    for (unsigned seed = 1; seed <= 20; seed++) {
        check_fill_normal(x, (size_t)d, seed);
        uint8_t *row = encode_guarded(f, x, d, encoder);
        kvant_row_decode(f, param_of(f), row, y, d);
        CHECK(check_guard_ok(row), "%s d=%d: decode wrote outside", f->name, d);
        double nmse = check_nmse(y, x, (size_t)d);
        CHECK(nmse <= row_bound(f), "%s d=%d seed %u encoder %d: squared error %.4g, want at most %.4g", f->name, d,
              seed, encoder, nmse, row_bound(f));
        check_guard_free(row);
    }
}

static void check_special_rows(const kvant_format *f, int d, int encoder)
{
    float x[MAX_D] = { 0 }, y[MAX_D];
    uint8_t *row = encode_guarded(f, x, d, encoder);
    kvant_row_decode(f, param_of(f), row, y, d);
    for (int j = 0; j < d; j++)
        CHECK(y[j] == 0.0f, "%s d=%d: a zero row decodes to %g", f->name, d, (double)y[j]);
    check_guard_free(row);

    static const float specials[] = { NAN, INFINITY, -INFINITY, 1e-40f, 3e38f, -65520.0f, 1e-8f };
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        check_fill_normal(x, (size_t)d, 5);
        x[d - 1] = specials[i];            /* must neither crash nor write outside; other groups are untouched */
        row = encode_guarded(f, x, d, encoder);
        kvant_row_decode(f, param_of(f), row, y, d);
        if (d > f->group)
            CHECK(check_nmse(y, x, (size_t)f->group) <= row_bound(f), "%s d=%d: %g in the last group spoils the first",
                  f->name, d, (double)specials[i]);
        check_guard_free(row);
    }
}

/* score = <prep_q(q), decode_acc> for strided rows; axpy = sum w*decode_acc; both independent of tiling. */
static void check_products(const kvant_format *f, int d)
{
    enum { N = 9, R = 3, PAD = 5 };
    int sdim = kvant_format_sdim(f, d);
    size_t rb = kvant_format_row_bytes(f, d), stride = rb + 3;
    static float x[MAX_D], q[MAX_D], qp[R * (MAX_SDIM + PAD)], v[N * MAX_SDIM], acc[2][R * MAX_SDIM];
    float s[R * N], one[N], w[R * N];
    uint8_t *rows = check_guarded(N * stride - 3, 1);
    size_t ldq = (size_t)sdim + PAD;
    for (int i = 0; i < N; i++) {
        check_fill_normal(x, (size_t)d, 100 + (unsigned)i);
        f->ref.encode(param_of(f), x, rows + (size_t)i * stride, d, KVANT_ENCODER_UPSTREAM);
    }
    memset(qp, 0xFF, sizeof qp);           /* NaN between the queries */
    for (int j = 0; j < R; j++) {
        check_fill_normal(q, (size_t)d, 200 + (unsigned)j);
        f->ref.prep_q(param_of(f), q, qp + (size_t)j * ldq, d);
    }
    f->ref.decode_acc(param_of(f), rows, stride, N, v, d);
    f->ref.score(param_of(f), qp, ldq, R, rows, stride, N, s, N, d);
    for (int j = 0; j < R; j++) {
        f->ref.score(param_of(f), qp + (size_t)j * ldq, ldq, 1, rows + stride, stride, N - 1, one, N, d);
        for (int i = 0; i < N; i++) {
            double want = 0, size = 0;
            for (int k = 0; k < sdim; k++) {
                want += (double)qp[(size_t)j * ldq + (size_t)k] * v[i * sdim + k];
                size += fabs((double)qp[(size_t)j * ldq + (size_t)k] * v[i * sdim + k]);
            }
            CHECK_CLOSE(s[j * N + i], want, (sdim / 4 + 16) * 0x1p-24 * size, "%s d=%d score %d %d", f->name, d, j, i);
            CHECK(i == 0 || one[i - 1] == s[j * N + i], "%s d=%d: a score depends on its neighbours", f->name, d);
        }
    }
    check_fill(w, R * N, 0.0f, 1.0f, 7);
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < R * sdim; k++)
            acc[half][k] = 0.25f;
    f->ref.axpy(param_of(f), w, N, R, rows, stride, N, acc[0], (size_t)sdim, d);
    f->ref.axpy(param_of(f), w, N, R, rows, stride, 4, acc[1], (size_t)sdim, d);
    f->ref.axpy(param_of(f), w + 4, N, R, rows + 4 * stride, stride, N - 4, acc[1], (size_t)sdim, d);
    CHECK(memcmp(acc[0], acc[1], (size_t)(R * sdim) * sizeof(float)) == 0, "%s d=%d: axpy depends on its tiles",
          f->name, d);
    for (int j = 0; j < R; j++)
        for (int k = 0; k < sdim; k++) {
            double want = 0.25, size = 0.25;
            for (int i = 0; i < N; i++) {
                want += (double)w[j * N + i] * v[i * sdim + k];
                size += fabs((double)w[j * N + i] * v[i * sdim + k]);
            }
            CHECK_CLOSE(acc[0][j * sdim + k], want, N * 0x1p-24 * size, "%s d=%d axpy", f->name, d);
        }
    memcpy(acc[1], acc[0], sizeof acc[0]);
    f->ref.axpy(param_of(f), w, N, R, rows, stride, 0, acc[0], (size_t)sdim, d);
    CHECK(memcmp(acc[0], acc[1], sizeof acc[0]) == 0 && check_guard_ok(rows), "%s d=%d: n = 0 or guards", f->name, d);
    check_guard_free(rows);
}

/* <prep_q(q), decode_acc(k)> must be <q, decode(k)>, and finish_out its transpose. Not for a sketch. */
static void check_spaces(const kvant_format *f, int d)
{
    float x[MAX_D], q[MAX_D], y[MAX_D], qp[MAX_SDIM], s;
    uint8_t row[MAX_ROW];
    if (f->flags & KVANT_FORMAT_PARAM)
        return;
    check_fill_normal(x, (size_t)d, 11);
    check_fill_normal(q, (size_t)d, 12);
    f->ref.encode(NULL, x, row, d, KVANT_ENCODER_UPSTREAM);
    f->ref.prep_q(NULL, q, qp, d);
    f->ref.score(NULL, qp, MAX_SDIM, 1, row, MAX_ROW, 1, &s, 1, d);
    kvant_row_decode(f, NULL, row, y, d);
    double want = 0, nq = 0, ny = 0;
    for (int j = 0; j < d; j++) {
        want += (double)q[j] * y[j];
        nq += (double)q[j] * q[j];
        ny += (double)y[j] * y[j];
    }
    CHECK_CLOSE(s, want, (d / 4 + 16) * 0x1p-24 * sqrt(nq * ny), "%s d=%d: score and decode-then-dot", f->name, d);
}

/* Any bytes decode without reading outside; what is not finite may come only from the row's own scale. */
static void check_any_bytes(const kvant_format *f, int d)
{
    size_t rb = kvant_format_row_bytes(f, d);
    uint8_t *row = check_guarded(rb, 1);
    float y[MAX_D];
    rng r = { 77 };
    for (int n = 0; n < 200; n++) {
        for (size_t i = 0; i < rb; i++)
            row[i] = (uint8_t)rng_u64(&r);
        kvant_row_decode(f, param_of(f), row, y, d);
    }
    CHECK(check_guard_ok(row), "%s d=%d: decode wrote outside", f->name, d);
    check_guard_free(row);
}

typedef struct group_fit {
    double err, angle, gain;       /* |y - x|^2;  what the best scale would leave of it;  <x, y>/<x, x> */
} group_fit;

static group_fit group_fit_of(const float *x, const float *y, int n)
{
    double xx = 0, xy = 0, yy = 0, err = 0;
    for (int j = 0; j < n; j++) {
        xx += (double)x[j] * x[j];
        xy += (double)x[j] * y[j];
        yy += (double)y[j] * y[j];
        err += ((double)y[j] - x[j]) * ((double)y[j] - x[j]);
    }
    return (group_fit){ err, yy > 0 ? xx - xy * xy / yy : xx, xy / xx };
}

/* best, in every group: codes whose direction errs no more than upstream's bytes do, and a scale that leaves scores
 * unbiased: <x, decoded> = <x, x>. */
static void check_best_group(const kvant_format *f, const float *x, const float *up, const float *best, int row,
                             double sum[3])
{
    const group_fit u = group_fit_of(x, up, f->group), b = group_fit_of(x, best, f->group);
    double size = 0;
    for (int j = 0; j < f->group; j++)
        size += (double)x[j] * x[j];
    /* the search measures in rotated space: the rotation back rounds at 1e-7 of the row */
    CHECK(b.angle <= u.err * (1 + 1e-5) + 1e-13 * size, "%s row %d: direction of best errs %.6g, upstream %.6g",
          f->name, row, b.angle, u.err);
    CHECK(row % 4 == 2 || fabs(b.gain - 1) <= 0x1p-11 + 1e-5, "%s row %d: <x, best>/<x, x> = %.6f", f->name, row,
          b.gain);
    sum[0] += u.err / size;
    sum[1] += b.err / size;
    sum[2] += b.angle / size;
}

static void check_best(const kvant_format *f, int d)
{
    float x[MAX_D], y[2][MAX_D];
    uint8_t row[MAX_ROW];
    double sum[3] = { 0, 0, 0 };
    const int rows = strstr(f->name, "tcq") ? 150 : 1000;  /* the trellis takes 300 us a row */
    const int searched = f->name[0] == 't' || strncmp(f->name, "q4", 2) == 0 || strcmp(f->name, "q8_0") == 0;
    rng r = { 4242 };
    for (int i = 0; i < rows; i++) {
        check_fill_normal(x, (size_t)d, 1000 + (unsigned)i);
        if (i % 4 == 1)
            x[rng_below(&r, (uint32_t)d)] *= 12.0f;        /* an outlier */
        for (int j = 0; i % 4 == 2 && j < d; j++)
            x[j] *= 1e-4f;                                 /* scales that fp16 holds coarsely */
        for (int e = 0; e < 2; e++) {
            f->ref.encode(param_of(f), x, row, d, e);
            kvant_row_decode(f, param_of(f), row, y[e], d);
        }
        for (int g = 0; searched && g < d; g += f->group)
            check_best_group(f, x + g, y[0] + g, y[1] + g, i, sum);
        CHECK(searched || memcmp(y[0], y[1], (size_t)d * sizeof(float)) == 0, "%s: nothing to search, but best differs",
              f->name);
    }
    if (!searched)
        return;
    const double n = (double)rows * d / f->group;
    CHECK(sum[2] / sum[0] < 0.985, "%s: directions of best err %.4f of upstream", f->name, sum[2] / sum[0]);
    CHECK(sum[1] / sum[0] < 1, "%s: best errs %.4f of upstream", f->name, sum[1] / sum[0]);
    printf("%-11s squared error: upstream %.6f, best %.6f, its directions %.6f\n", f->name, sum[0] / n, sum[1] / n,
           sum[2] / n);
}

/* Blocks worked out by hand: the rounding of q8_0 is half away from zero, q4_0 truncates x/d + 8.5. */
static void check_plain_blocks(void)
{
    const kvant_format *q8 = kvant_format_find("q8_0"), *q4 = kvant_format_find("q4_0");
    float x[32] = { 127.0f, 0.5f, -0.5f, 2.5f, -3.5f, 0.49f };
    uint8_t row[34];
    q8->ref.encode(NULL, x, row, 32, 0);
    static const int8_t want8[6] = { 127, 1, -1, 3, -4, 0 };
    CHECK(load_u16(row) == 0x3c00 && memcmp(row + 2, want8, 6) == 0, "q8_0 block: %02x %02x %02x %02x", row[3], row[4],
          row[5], row[6]);
    float y[32] = { 8.0f, 0.5f, -0.5f, 7.6f, -7.5f };      /* d = -1: codes 8 - x, truncated after + 0.5 */
    q4->ref.encode(NULL, y, row, 32, 0);
    static const uint8_t want4[5] = { 0x80, 0x88, 0x89, 0x80, 0x8f };
    CHECK(load_u16(row) == 0xbc00 && memcmp(row + 2, want4, 5) == 0, "q4_0 block: %02x %02x %02x %02x %02x", row[2],
          row[3], row[4], row[5], row[6]);
}

/* --- single formats ---------------------------------------------------------------------------------------------- */

static void check_fp8(void)
{
    const kvant_format *f = kvant_format_find("f8_e4m3");
    for (int b = 0; b < 256; b++) {
        uint8_t code = (uint8_t)b, back;
        float v, scale = 0.5f, half;
        f->ref.decode_acc(NULL, &code, 1, 1, &v, 1);
        f->ref.encode(NULL, &v, &back, 1, 0);
        CHECK(back == code, "e4m3 %02x -> %g -> %02x", b, (double)v, back);
        f->ref.decode_acc(&scale, &code, 1, 1, &half, 1);
        CHECK((b & 0x7f) == 0x7f || half == 0.5f * v, "e4m3 scale");
    }
    static const struct {
        float x;
        uint8_t code;
    } cases[] = { { 448.0f, 0x7e }, { 460.0f, 0x7e }, { INFINITY, 0x7e }, { -1e30f, 0xfe }, { 0x1p-9f, 1 },
                  { 0x1p-10f, 0 },  { 0x1.8p-9f, 2 }, { 1.0f, 0x38 },     { 1.0625f, 0x38 }, { 1.1875f, 0x3a },
                  { -0.0f, 0x80 },  { 0x1.fp-7f, 8 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t got;
        f->ref.encode(NULL, &cases[i].x, &got, 1, 0);
        CHECK(got == cases[i].code, "e4m3 of %g: %02x, want %02x", (double)cases[i].x, got, cases[i].code);
    }
}

/* A file of the text, then of three matrices, of the seeds 42, 43 and 44. */
static void check_matrices(const char *path, const char *header)
{
    static float one[KVANT_QJL_VALUES], read[KVANT_QJL_VALUES];
    kvant_diag diag = { "" };
    int n = 0;
    FILE *file = fopen(path, "wb");

    CHECK(file != NULL, "cannot write %s", path);
    if (header[0] == '\x93')
        fwrite(header, 1, 10 + (size_t)(unsigned char)header[8], file);
    for (int i = 0; i < 3; i++) {
        kvant_qjl_projection_build(42 + (uint64_t)i, one);
        fwrite(one, sizeof *one, KVANT_QJL_VALUES, file);
    }
    fclose(file);
    CHECK(kvant_qjl_projection_count(path, &n, &diag) == KVANT_OK && n == 3, "%d matrices: %s", n, diag.text);
    for (int i = 0; i < 3; i++) {
        kvant_qjl_projection_build(42 + (uint64_t)i, one);
        CHECK(kvant_qjl_projection_read(path, i, read, &diag) == KVANT_OK && memcmp(one, read, sizeof one) == 0,
              "matrix %d: %s", i, diag.text);
    }
    CHECK(kvant_qjl_projection_read(path, 3, read, &diag) == KVANT_EINVAL, "a fourth of three: %s", diag.text);
    CHECK(kvant_qjl_projection_load(path, read, &diag) == KVANT_EFORMAT && strstr(diag.text, "3 matrices"), "%s",
          diag.text);
}

/* A header of version 1 as numpy writes it, into text[10 + 118]. */
static const char *npy(char *text, const char *fields)
{
    memset(text, ' ', 128);
    memcpy(text, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(text + 10, fields, strlen(fields));
    text[127] = '\n';
    return text;
}

static void check_npy(const char *path)
{
    static const char *const bad[][2] = {
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 128, 256), }", "'<f8'" },
        { "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 128, 256), }", "fortran_order" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 256, 128), }", "(3, 256, 128)" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 128, 256), }", "(-3, 128, 256)" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 128, 256), }", "393344 bytes" },
        { "{'descr': '<f4', 'fortran_order': False, }", "absent" },
        { "", "descr is absent" },
    };
    char text[128];
    kvant_diag diag = { "" };
    int n;

    check_matrices(path, npy(text, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 128, 256), }"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *file = fopen(path, "r+b");
        fwrite(npy(text, bad[i][0]), 1, sizeof text, file);
        fclose(file);
        CHECK(kvant_qjl_projection_count(path, &n, &diag) == KVANT_EFORMAT && strstr(diag.text, bad[i][1]),
              "header %zu: %s", i, diag.text);
    }
}

static void check_projection(void)
{
    static float loaded[KVANT_QJL_VALUES];
    kvant_diag diag = { "" };
    const char *path = "check_formats.projection.tmp";
    CHECK(f32_bits(projection[0]) == 0xbedc5dba, "projection[0] = %g", (double)projection[0]);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(projection, 4, KVANT_QJL_VALUES, file) == KVANT_QJL_VALUES, "cannot write %s", path);
    fclose(file);
    CHECK(kvant_qjl_projection_load(path, loaded, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(memcmp(loaded, projection, sizeof loaded) == 0, "loaded projection differs");
    memcpy(loaded, projection, sizeof loaded);
    for (int fault = 0; fault < 3; fault++) {
        float keep = loaded[777];
        loaded[777] = fault == 0 ? NAN : keep;
        for (int i = 0; fault == 1 && i < 128; i++)
            loaded[i * 256 + 3] = 0.0f;
        file = fopen(path, "wb");
        size_t n = fault == 2 ? KVANT_QJL_VALUES - 1 : KVANT_QJL_VALUES;
        CHECK(file && fwrite(loaded, 4, n, file) == n, "cannot write %s", path);
        fclose(file);
        CHECK(kvant_qjl_projection_load(path, projection, &diag) == KVANT_EFORMAT, "fault %d accepted", fault);
        CHECK(strstr(diag.text, fault == 0 ? "value 777" : fault == 1 ? "column 3" : "131068 bytes"), "%s", diag.text);
        loaded[777] = keep;
    }
    check_matrices(path, "");
    check_npy(path);
    remove(path);
    CHECK(kvant_qjl_projection_load(path, loaded, &diag) == KVANT_ENOENT, "%s", diag.text);
    CHECK(f32_bits(projection[0]) == 0xbedc5dba, "a failed load wrote its result");
}

/* QJL estimates <q, k>: over 4096 random pairs of a fixed angle the mean error is 0 within 4 standard errors (and the
 * 0.5 % that one fixed projection may be off), and the variance is (pi/2 |q|^2|k|^2 - <q,k>^2)/256. */
static void check_estimator(void)
{
    enum { PAIRS = 4096 };
    const kvant_format *f = kvant_format_find("qjl1_256");
    double sum = 0, sum2 = 0, dots = 0, var = 0;
    for (unsigned i = 0; i < PAIRS; i++) {
        float q[128], k[128], sk[256], s;
        uint8_t row[34];
        check_fill_normal(q, 128, 2 * i + 1);
        check_fill_normal(k, 128, 2 * i + 2);
        double qq = 0, kk = 0, qk = 0;
        for (int j = 0; j < 128; j++) {
            k[j] = 0.6f * q[j] + 0.8f * k[j];
            qq += (double)q[j] * q[j];
            kk += (double)k[j] * k[j];
            qk += (double)q[j] * k[j];
        }
        f->ref.encode(projection, k, row, 128, 0);
        f->ref.prep_q(projection, q, sk, 128);
        f->ref.score(projection, sk, 256, 1, row, 34, 1, &s, 1, 128);
        sum += s - qk;
        sum2 += (s - qk) * (s - qk);
        dots += qk;
        var += (1.5707963267948966 * qq * kk - qk * qk) / 256;
    }
    double bias = fabs(sum / PAIRS), error = sqrt(sum2 / PAIRS / PAIRS);
    CHECK(bias <= 4 * error + 0.005 * dots / PAIRS, "QJL bias %.4g, standard error %.4g", bias, error);
    CHECK_CLOSE(sum2 / var, 1.0, 0.15, "QJL variance over theory");
}

static void check_fused_edges(void)
{
    float q[256], out[2 * 128];
    uint8_t k[3 * 34] = { 0 }, v[3 * 56] = { 0 };
    kvant_diag diag = { "" };
    check_fill_normal(q, 256, 3);
    kvant_attn_fused a = { .q_sketch = q, .k = k, .v = v, .out = out, .n_q_pos = 1, .n_heads = 1, .n_kv_heads = 1,
                           .n_tokens = 0, .sm_scale = 0.1f };
    memset(out, 0xFF, sizeof out);
    kvant_attn_fused_qjl_tbq_ref(&a);
    CHECK(out[0] == 0.0f && out[127] == 0.0f && out[128] != out[128], "no tokens: zeros, and nothing else written");
    a.n_tokens = 3;
    a.causal = 1;
    a.q_pos_base = -1;
    out[0] = 1.0f;
    kvant_attn_fused_qjl_tbq_ref(&a);
    CHECK(out[0] == 0.0f, "no visible token: zeros");
    store_u16(k + 34 + 32, 0x7fc0);        /* a NaN norm: a NaN score, so zeros */
    a.causal = 0;
    out[0] = 1.0f;
    kvant_attn_fused_qjl_tbq_ref(&a);
    CHECK(out[0] == 0.0f, "NaN score: zeros");
    CHECK(kvant_attn_fused_check(&a, &diag) == KVANT_OK, "%s", diag.text);
    a.n_kv_heads = 2;
    CHECK(kvant_attn_fused_check(&a, &diag) == KVANT_EINVAL && strstr(diag.text, "multiple"), "%s", diag.text);
    a.n_kv_heads = 1;
    a.k = NULL;
    CHECK(kvant_attn_fused_check(&a, &diag) == KVANT_EINVAL, "NULL accepted");
}

int main(int argc, char **argv)
{
    static const int dims[] = { 32, 64, 96, 128, 256 };
    kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
    check_golden(argc > 1 ? argv[1] : "tests/golden");         /* made by other programs */
    if (argc == 1)
        check_golden("tests/golden/own");                      /* made by tools/make_golden.py --seed 1 */
    check_selftest();
    check_registry();
    check_sizes();
    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        check_ladder(f);
        check_missing_param(f);
        if (f->flags & KVANT_FORMAT_PAGE)
            continue;                      /* check_pages */
        for (size_t j = 0; j < sizeof dims / sizeof dims[0]; j++) {
            if (kvant_format_check(f, dims[j], NULL) != KVANT_OK)
                continue;
            int d = kvant_format_padded(f, dims[j]);
            for (int e = 0; e < 2; e++) {
                check_round_trip(f, d, e);
                check_special_rows(f, d, e);
            }
            check_products(f, d);
            check_spaces(f, d);
            check_any_bytes(f, d);
        }
        check_best(f, 128);
    }
    check_plain_blocks();
    check_fp8();
    check_projection();
    check_estimator();
    check_fused_edges();
    return check_end("check_formats");
}
