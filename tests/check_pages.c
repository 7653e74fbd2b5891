/* check_pages.c: formats of page scope: golden vectors of another implementation, what a page's rows have to do with
 * each other, and pages of any bytes.
 *   build/release/bin/check_pages [GOLDEN_DIR] */
#include <math.h>
#include "base/rng.h"
#include "kvant/format.h"
#include "support/check.h"
#include "verify/golden/golden.h"

enum { D = 128, VALUES = KVANT_PAGE * D, MOST = KVANT_PAGE * 80 };

static float x[VALUES], y[VALUES], z[VALUES];
static uint8_t *page;                      /* between guards */

static void check_golden(const char *dir)
{
    static golden_report report;
    kvant_diag diag = { "" };
    const int rc = golden_run_dir(dir, NULL, &report, &diag);

    CHECK(rc == KVANT_OK, "%s", diag.text);
    for (int i = 0; i < report.n_failures; i++)
        printf("golden: %s\n", report.failures[i]);
    CHECK(report.total.failed == 0, "%d golden comparisons failed", report.total.failed);
    CHECK(report.total.passed >= 3 * 4 * 4, "only %d golden comparisons in %s", report.total.passed, dir);
}

static void encode(const kvant_format *f)
{
    f->ref.encode_page(NULL, x, D, page, D, KVANT_ENCODER_BEST);
    CHECK(check_guard_ok(page), "%s: encode_page wrote outside", f->name);
}

static void decode(const kvant_format *f, float *to)
{
    f->ref.decode_page(NULL, page, 0, KVANT_PAGE, z, D);
    for (int i = 0; i < VALUES; i += D)
        f->ref.finish_out(NULL, z + i, to + i, D);
}

static void fill(float mean)
{
    float m[D];

    check_fill_normal(x, VALUES, 3);
    check_fill_normal(m, D, 4);
    for (int i = 0; i < VALUES; i++)
        x[i] += mean * m[i % D];
}

/* Mean squared errors of the specification's page: 64 Gaussian rows around a mean.  They do not grow with the mean. */
static void check_errors(const kvant_format *f, double bound)
{
    static const float means[] = { 0.0f, 0.7f, 10.0f };

    for (size_t t = 0; t < 3; t++) {
        double err = 0;
        fill(means[t]);
        encode(f);
        decode(f, y);
        for (int i = 0; i < VALUES; i++)
            err += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]) / VALUES;
        /* the mean's own steps, a 127th of its largest value, add their square over 12 */
        CHECK(err <= bound * (means[t] > 1 ? 1.2 : 1.0), "%s: mean squared error %.5f around a mean of %g, bound %.4f",
              f->name, err, (double)means[t], bound);
    }
}

static void check_zeros(const kvant_format *f)
{
    int other = 0;

    memset(x, 0, sizeof x);
    encode(f);
    decode(f, y);
    for (int i = 0; i < VALUES; i++)
        other += y[i] != 0.0f;
    CHECK(other == 0, "%s: a page of zeros decodes to %d other values", f->name, other);
}

/* A row that is not finite is lost; the others are what they are without it. */
static void check_not_finite(const kvant_format *f)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (int t = 0; t < 3; t++) {
        int lost = 0, wrong = 0;
        fill(0.7f);
        x[7 * D + 11] = bad[t];
        encode(f);
        decode(f, y);
        for (int e = 0; e < D; e++)
            lost += !isfinite(y[7 * D + e]);
        x[7 * D + 11] = 0.0f;
        for (int i = 0; i < KVANT_PAGE; i++)
            wrong += i != 7 && !(check_nmse(y + i * D, x + i * D, D) < 0.2);
        CHECK(lost == D && wrong == 0, "%s: %g loses %d values of its row, and %d other rows", f->name, (double)bad[t],
              lost, wrong);
    }
}

/* Rows decode, score and sum alike alone, in any part of the page and in all variants; scores are those of the rows. */
static void check_alone(const kvant_format *f)
{
    const kvant_format_kernels *k;
    const char *name;
    int usable;
    float q[D], qp[D], s[KVANT_PAGE], one;

    fill(0.7f);
    encode(f);
    decode(f, y);
    check_fill_normal(q, D, 9);
    for (int v = 0; (k = kvant_format_variant(f, v, &name, &usable)) != NULL; v++) {
        if (!usable)
            continue;
        k->prep_q(NULL, q, qp, D);
        k->score_page(NULL, qp, D, 1, page, 0, KVANT_PAGE, s, KVANT_PAGE, D);
        for (int i = 0; i < KVANT_PAGE; i++) {
            double want = 0, size = 0;
            for (int e = 0; e < D; e++) {
                want += (double)q[e] * (double)y[i * D + e];
                size += fabs((double)q[e] * (double)y[i * D + e]);
            }
            k->score_page(NULL, qp, D, 1, page, i, 1, &one, 1, D);
            CHECK(one == s[i], "%s %s: the score of row %d depends on its neighbours", f->name, name, i);
            CHECK_CLOSE(s[i], want, (D / 4 + 16) * 0x1p-22 * size, "%s %s: score of row %d", f->name, name, i);
            k->decode_page(NULL, page, i, 1, z, D);
            k->finish_out(NULL, z, z + D, D);
            CHECK(check_nmse(z + D, y + i * D, D) < 1e-12, "%s %s: row %d alone decodes differently", f->name, name, i);
        }
    }
}

/* Any bytes are a page: nothing else is read (address sanitizer), every variant decodes the same values. */
static void check_any_bytes(const kvant_format *f)
{
    const size_t bytes = KVANT_PAGE * kvant_format_row_bytes(f, D);
    const kvant_format_kernels *k;
    const char *name;
    rng r = { 5 };
    int usable, differ = 0;

    for (int t = 0; t < 40; t++) {
        uint8_t *exact = malloc(bytes);
        for (size_t i = 0; i < bytes; i++)
            exact[i] = t == 0 ? 0xff : (uint8_t)rng_below(&r, 256);
        f->ref.decode_page(NULL, exact, 0, KVANT_PAGE, y, D);
        for (int v = 1; (k = kvant_format_variant(f, v, &name, &usable)) != NULL; v++) {
            if (usable)
                k->decode_page(NULL, exact, 0, KVANT_PAGE, z, D);
            for (int i = 0; usable && i < VALUES; i++)
                differ += !(z[i] == y[i] || (isnan(z[i]) && isnan(y[i])));
        }
        free(exact);
    }
    CHECK(differ == 0, "%s: %d values of pages of any bytes differ", f->name, differ);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        double error;
    } formats[] = { { "ptcq2", 0.085 }, { "ptcq3", 0.0222 }, { "ptcq4", 0.0065 } };
    int scoped = 0;

    check_golden(argc > 1 ? argv[1] : "tests/golden/pages");
    page = check_guarded(MOST, 1);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const kvant_format *f = kvant_format_find(formats[i].name);
        check_errors(f, formats[i].error);
        check_zeros(f);
        check_not_finite(f);
        check_alone(f);
        check_any_bytes(f);
    }
    for (int i = 0; i < kvant_format_count(); i++)
        scoped += (kvant_format_at(i)->flags & KVANT_FORMAT_PAGE) != 0;
    CHECK(scoped == 3, "%d formats of page scope, %d are checked here", scoped, 3);
    check_guard_free(page);
    return check_end("check_pages");
}
