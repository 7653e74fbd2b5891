/* check_kernels.c: every kernel variant of every cache format against its reference, over shapes, alignments and
 * guards.  It walks kvant_format_at and kvant_format_variant, so a new kernel is checked without a line here.
 *
 *   check_kernels [format [variant [op [d [r [n]]]]]]     "-" for any; a failure prints the command that repeats it
 *
 * Tolerances (spec architecture 5), e = 2^-24:
 *   decode_acc      equal by value
 *   score           DOT: |s' - s| <= (sdim/4 + 16) e sum|q k|, s in double from the reference's decoded rows
 *   axpy            (n + 2) e (|acc| + sum|w v|): one rounding per row
 *   prep_q, finish  (sdim/4 + 16) e sum|x| max|param|: sums of at most d terms
 *   encode          upstream, CODE: equal bytes, or a row that reconstructs as well as the reference's (a code at a
 *                   decision boundary); the rows that differ are counted, printed, and at most 2 % of all.
 *                   best: a search may settle in another valley, so errors count: at most half above the reference's
 *                   in a row, 0.2 % in the mean (beside 1e-7 of the energy of a row, where f32 sums end)
 * Bit rule, per variant: a result does not depend on r, n, or on how rows are split over calls; score and axpy equal
 * the f32 kernels of the same variant on decoded rows.  Everything: same bits twice, inputs and guards untouched. */
#include "support/check.h"

#include <stdint.h>
#include "base/cpu.h"
#include "base/rng.h"
#include "kvant/format.h"

enum { MAX_N = 64, PAD = 3 };

static const char *want[6];                /* the arguments, NULL: any */
static float projection[128 * 256];

/* The case at hand: what is tested, and its buffers. */
typedef struct kase {
    const kvant_format *f;
    const kvant_format_kernels *k, *f32;
    const char *isa, *op;
    const void *param;
    int d, sdim, r, n;
    size_t row_bytes, stride;
} kase;

static int wanted(int i, const char *value)
{
    return !want[i] || strcmp(want[i], "-") == 0 || strcmp(want[i], value) == 0;
}

static int wanted_int(int i, int value)
{
    return !want[i] || strcmp(want[i], "-") == 0 || atoi(want[i]) == value;
}

static const char *rerun(const kase *c)
{
    static char text[160];
    snprintf(text, sizeof text, "rerun: check_kernels %s %s %s %d %d %d", c->f->name, c->isa, c->op, c->d, c->r, c->n);
    return text;
}

/* ---- data ---- */

/* Rows of n values with magnitudes over a few orders; some are special. */
static void fill_row(float *x, int d, int kind, unsigned long long seed)
{
    check_fill_normal(x, (size_t)d, seed);
    for (int j = 0; j < d; j++) {
        if (kind == 1)
            x[j] = 0.0f;
        else if (kind == 2)
            x[j] = j % 32 == 5 ? 3.0f : 0.0f;
        else if (kind == 3)
            x[j] = j % 32 == 1 || j % 32 == 9 ? -1.0f : 0.0f;
        else if (kind == 4)
            x[j] *= 1e-6f;
        else if (kind == 5)
            x[j] *= 900.0f;
        else if (kind == 6)
            x[j] = 0.25f;
        else if (kind == 7)
            x[j] += 4.0f;
    }
}

static uint8_t *make_rows(const kase *c, int n)
{
    uint8_t *rows = check_guarded((size_t)n * c->stride, 1);
    float x[KVANT_MAX_HEAD_DIM];
    memset(rows, 0xFF, (size_t)n * c->stride);       /* between the rows: NaN, should anything read it */
    for (int i = 0; i < n; i++) {
        fill_row(x, c->d, i % 11, 77u + (unsigned)i);
        c->f->ref.encode(c->param, x, rows + (size_t)i * c->stride, c->d, KVANT_ENCODER_UPSTREAM);
    }
    return rows;
}

static void *copy_of(const void *p, size_t n)
{
    void *c = malloc(n + 1);
    memcpy(c, p, n);
    return c;
}

static int same_bits(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

/* ---- ops ---- */

static void check_decode(kase *c)
{
    size_t count = (size_t)c->n * (size_t)c->sdim;
    uint8_t *rows = make_rows(c, c->n);
    float *out = check_guarded(count * 4, 4), *again = malloc(count * 4 + 4), *ref = malloc(count * 4 + 4);
    int equal = 1;

    c->k->decode_acc(c->param, rows, c->stride, c->n, out, c->d);
    c->k->decode_acc(c->param, rows, c->stride, c->n, again, c->d);
    c->f->ref.decode_acc(c->param, rows, c->stride, c->n, ref, c->d);
    for (size_t i = 0; i < count; i++)
        if (!(out[i] == ref[i] || (out[i] != out[i] && ref[i] != ref[i])))
            equal = 0;
    CHECK(equal, "decoded values differ from the reference; %s", rerun(c));
    CHECK(same_bits(out, again, count * 4), "not the same twice; %s", rerun(c));
    CHECK(check_guard_ok(out) && check_guard_ok(rows), "wrote outside; %s", rerun(c));
    check_guard_free(out);
    check_guard_free(rows);
    free(again);
    free(ref);
}

/* One check per matrix: the first value outside of its tolerance is reported. */
static void compare_scores(kase *c, const float *q, size_t ldq, const float *rows, const float *s, size_t lds)
{
    int bad = 0;
    for (int j = 0; j < c->r; j++)
        for (int i = 0; i < c->n; i++) {
            double sum = 0, mag = 0;
            for (int e = 0; e < c->sdim; e++) {
                double t = (double)q[(size_t)j * ldq + (size_t)e] * rows[(size_t)i * (size_t)c->sdim + (size_t)e];
                sum += t;
                mag += fabs(t);
            }
            if (!(fabs(s[(size_t)j * lds + (size_t)i] - sum) <= (c->sdim / 4 + 16) * 0x1p-24 * mag) && !bad++)
                CHECK(0, "query %d key %d: %.9g, want %.9g; %s", j, i, s[(size_t)j * lds + (size_t)i], sum, rerun(c));
        }
    CHECK(bad == 0, "%d scores are wrong; %s", bad, rerun(c));
}

static void check_score(kase *c)
{
    size_t ldq = (size_t)c->sdim + 5, lds = (size_t)c->n + PAD,
           q_bytes = ((size_t)c->r - 1) * ldq * 4 + (size_t)c->sdim * 4;
    size_t s_bytes = ((size_t)c->r - 1) * lds * 4 + (size_t)c->n * 4;
    uint8_t *rows = make_rows(c, c->n);
    float *q = check_guarded(q_bytes, 4), *s = check_guarded(s_bytes, 4), *again = malloc(s_bytes + 4);
    float *decoded = malloc((size_t)(c->n + 1) * (size_t)c->sdim * 4);
    void *q_copy, *rows_copy = copy_of(rows, (size_t)c->n * c->stride);
    int bits = 1;

    memset(q, 0xFF, q_bytes);
    for (int j = 0; j < c->r; j++)
        check_fill_normal(q + (size_t)j * ldq, (size_t)c->sdim, 500u + (unsigned)j);
    q_copy = copy_of(q, q_bytes);
    memset(s, 0xFF, s_bytes);
    memset(again, 0xFF, s_bytes);
    c->k->score(c->param, q, ldq, c->r, rows, c->stride, c->n, s, lds, c->d);
    c->k->score(c->param, q, ldq, c->r, rows, c->stride, c->n, again, lds, c->d);
    CHECK(same_bits(s, again, s_bytes), "not the same twice, or wrote between rows; %s", rerun(c));
    c->f->ref.decode_acc(c->param, rows, c->stride, c->n, decoded, c->d);
    compare_scores(c, q, ldq, decoded, s, lds);

    for (int j = 0; j < c->r; j++)
        for (int i = 0; i < c->n; i++) {
            float one;
            c->k->score(c->param, q + (size_t)j * ldq, ldq, 1, rows + (size_t)i * c->stride, c->stride, 1, &one, 1,
                        c->d);
            bits &= same_bits(&one, &s[(size_t)j * lds + (size_t)i], 4);
        }
    CHECK(bits, "bit rule: a score depends on its neighbours; %s", rerun(c));
    if (c->f32) {
        size_t wide = (size_t)c->sdim * 4;
        c->k->decode_acc(c->param, rows, c->stride, c->n, decoded, c->d);
        c->f32->score(NULL, q, ldq, c->r, (uint8_t *)decoded, wide, c->n, again, lds, c->sdim);
        CHECK(same_bits(s, again, s_bytes), "bit rule: differs from f32 on decoded rows; %s", rerun(c));
    }
    CHECK(check_guard_ok(q) && check_guard_ok(s) && check_guard_ok(rows), "wrote outside; %s", rerun(c));
    CHECK(same_bits(q, q_copy, q_bytes) && same_bits(rows, rows_copy, (size_t)c->n * c->stride), "inputs changed; %s",
          rerun(c));
    check_guard_free(q);
    check_guard_free(s);
    check_guard_free(rows);
    free(q_copy);
    free(rows_copy);
    free(again);
    free(decoded);
}

static void compare_axpy(kase *c, const float *w, size_t ldw, const float *rows, const float *start, const float *acc,
                         size_t lda)
{
    int bad = 0;
    for (int j = 0; j < c->r; j++)
        for (int e = 0; e < c->sdim; e++) {
            double sum = start[(size_t)j * lda + (size_t)e], mag = fabs(sum);
            for (int i = 0; i < c->n; i++) {
                double t = (double)w[(size_t)j * ldw + (size_t)i] * rows[(size_t)i * (size_t)c->sdim + (size_t)e];
                sum += t;
                mag += fabs(t);
            }
            if (!(fabs(acc[(size_t)j * lda + (size_t)e] - sum) <= (c->n + 2) * 0x1p-24 * mag) && !bad++)
                CHECK(0, "row %d column %d: %.9g, want %.9g; %s", j, e, acc[(size_t)j * lda + (size_t)e], sum,
                      rerun(c));
        }
    CHECK(bad == 0, "%d sums are wrong; %s", bad, rerun(c));
}

/* The same sum again: row by row of w, and the rows of the page in two calls. */
static void axpy_again(kase *c, const float *w, size_t ldw, const uint8_t *rows, float *acc, size_t lda)
{
    int cut = c->n / 3;
    for (int j = 0; j < c->r; j++) {
        c->k->axpy(c->param, w + (size_t)j * ldw, ldw, 1, rows, c->stride, cut, acc + (size_t)j * lda, lda, c->d);
        c->k->axpy(c->param, w + (size_t)j * ldw + cut, ldw, 1, rows + (size_t)cut * c->stride, c->stride, c->n - cut,
                   acc + (size_t)j * lda, lda, c->d);
    }
}

static void check_axpy(kase *c)
{
    size_t lda = (size_t)c->sdim + 5, ldw = (size_t)c->n + PAD,
           a_bytes = ((size_t)c->r - 1) * lda * 4 + (size_t)c->sdim * 4;
    size_t w_bytes = ((size_t)c->r - 1) * ldw * 4 + (size_t)c->n * 4;
    uint8_t *rows = make_rows(c, c->n);
    float *w = check_guarded(w_bytes, 4), *acc = check_guarded(a_bytes, 4), *start, *again;
    float *decoded = malloc((size_t)(c->n + 1) * (size_t)c->sdim * 4);
    void *w_copy, *rows_copy = copy_of(rows, (size_t)c->n * c->stride);

    memset(w, 0xFF, w_bytes);
    memset(acc, 0xFF, a_bytes);
    for (int j = 0; j < c->r; j++) {
        check_fill(w + (size_t)j * ldw, (size_t)c->n, 0.0f, 1.0f, 900u + (unsigned)j);
        check_fill_normal(acc + (size_t)j * lda, (size_t)c->sdim, 700u + (unsigned)j);
    }
    start = copy_of(acc, a_bytes);
    again = copy_of(acc, a_bytes);
    w_copy = copy_of(w, w_bytes);
    c->k->axpy(c->param, w, ldw, c->r, rows, c->stride, c->n, acc, lda, c->d);
    c->f->ref.decode_acc(c->param, rows, c->stride, c->n, decoded, c->d);
    compare_axpy(c, w, ldw, decoded, start, acc, lda);
    axpy_again(c, w, ldw, rows, again, lda);
    CHECK(same_bits(acc, again, a_bytes), "bit rule: depends on r or on the split, or wrote between rows; %s",
          rerun(c));
    if (c->f32) {
        memcpy(again, start, a_bytes);
        c->k->decode_acc(c->param, rows, c->stride, c->n, decoded, c->d);
        c->f32->axpy(NULL, w, ldw, c->r, (uint8_t *)decoded, (size_t)c->sdim * 4, c->n, again, lda, c->sdim);
        CHECK(same_bits(acc, again, a_bytes), "bit rule: differs from f32 on decoded rows; %s", rerun(c));
    }
    CHECK(check_guard_ok(w) && check_guard_ok(acc) && check_guard_ok(rows), "wrote outside; %s", rerun(c));
    CHECK(same_bits(w, w_copy, w_bytes) && same_bits(rows, rows_copy, (size_t)c->n * c->stride), "inputs changed; %s",
          rerun(c));
    check_guard_free(w);
    check_guard_free(acc);
    check_guard_free(rows);
    free(start);
    free(again);
    free(w_copy);
    free(rows_copy);
    free(decoded);
}

/* ---- the integer path ---- */

/* The format's own squared error on Gaussian rows, relative: what the integer path is measured against. */
static double own_error(const kase *c)
{
    static const kvant_format *last;
    static double error;
    uint8_t row[4096];
    float x[KVANT_MAX_HEAD_DIM], y[KVANT_MAX_HEAD_DIM];
    double num = 0, den = 0;
    if (c->f == last)
        return error;
    for (int i = 0; i < 64; i++) {
        check_fill_normal(x, (size_t)c->d, 60u + (unsigned)i);
        c->f->ref.encode(c->param, x, row, c->d, KVANT_ENCODER_UPSTREAM);
        kvant_row_decode(c->f, c->param, row, y, c->d);
        for (int j = 0; j < c->d; j++) {
            num += ((double)y[j] - x[j]) * ((double)y[j] - x[j]);
            den += (double)x[j] * x[j];
        }
    }
    last = c->f;
    return error = num / den;
}

/* The scores' mean squared error against |q|^2|k|^2/sdim: at most 2.5 % of the format's own (7-bit centroids), and
 * 6e-5 for an 8-bit query; three times that over a few samples. */
static void check_score_q8(kase *c)
{
    size_t ldq8 = kvant_format_q8_bytes(c->f, c->d) + 32, lds = (size_t)c->n + PAD;
    size_t s_bytes = ((size_t)c->r - 1) * lds * 4 + (size_t)c->n * 4, wide = (size_t)c->sdim;
    uint8_t *rows = make_rows(c, c->n), *q8 = check_guarded((size_t)c->r * ldq8 + 32, 0),
            *at = q8 + (-(uintptr_t)q8 & 31);
    float *s = check_guarded(s_bytes, 4), *again = malloc(s_bytes + 4),
          *decoded = malloc((size_t)(c->n + 1) * wide * 4);
    float *q = malloc((size_t)c->r * wide * 4);
    double err = 0, scale = 0;
    int bits = 1;

    memset(s, 0xFF, s_bytes);
    memset(again, 0xFF, s_bytes);
    for (int j = 0; j < c->r; j++) {
        check_fill_normal(q + (size_t)j * wide, wide, 500u + (unsigned)j);
        c->k->prep_q8(c->param, q + (size_t)j * wide, at + (size_t)j * ldq8, c->d);
    }
    c->f->ref.decode_acc(c->param, rows, c->stride, c->n, decoded, c->d);
    c->k->score_q8(c->param, at, ldq8, c->r, rows, c->stride, c->n, s, lds, c->d);
    c->k->score_q8(c->param, at, ldq8, c->r, rows, c->stride, c->n, again, lds, c->d);
    CHECK(same_bits(s, again, s_bytes), "not the same twice, or wrote between rows; %s", rerun(c));
    for (int j = 0; j < c->r; j++)
        for (int i = 0; i < c->n; i++) {
            double sum = 0, qq = 0, kk = 0, got = s[(size_t)j * lds + (size_t)i];
            for (size_t e = 0; e < wide; e++) {
                double a = q[(size_t)j * wide + e], b = decoded[(size_t)i * wide + e];
                sum += a * b;
                qq += a * a;
                kk += b * b;
            }
            if (kk > 0) {
                err += (got - sum) * (got - sum) / (qq * kk / c->sdim);
                scale += 1;
            } else {
                err += got * got;
            }
            float one;
            c->k->score_q8(c->param, at + (size_t)j * ldq8, ldq8, 1, rows + (size_t)i * c->stride, c->stride, 1, &one,
                           1, c->d);
            bits &= same_bits(&one, &s[(size_t)j * lds + (size_t)i], 4);
        }
    CHECK(err <= (0.025 * own_error(c) + 6e-5) * scale * (c->n * c->r < 120 ? 3 : 1),
          "mean squared error %.3g of the variance; %s", err / scale, rerun(c));
    CHECK(bits, "bit rule: a score depends on its neighbours; %s", rerun(c));
    CHECK(check_guard_ok(s) && check_guard_ok(rows) && check_guard_ok(q8), "wrote outside; %s", rerun(c));
    check_guard_free(s);
    check_guard_free(rows);
    check_guard_free(q8);
    free(again);
    free(decoded);
    free(q);
}

/* Squared error against sum (w v)^2: at most 1.5 % of the format's own. */
static void check_axpy_q8(kase *c)
{
    size_t lda = (size_t)c->sdim + 5, ldw = (size_t)c->n + PAD,
           a_bytes = ((size_t)c->r - 1) * lda * 4 + (size_t)c->sdim * 4;
    size_t w_bytes = ((size_t)c->r - 1) * ldw * 4 + (size_t)c->n * 4, wide = (size_t)c->sdim;
    uint8_t *rows = make_rows(c, c->n);
    float *w = check_guarded(w_bytes, 4), *acc = check_guarded(a_bytes, 4), *start, *again;
    float *decoded = malloc((size_t)(c->n + 1) * wide * 4);
    double err = 0, scale = 0;

    memset(w, 0xFF, w_bytes);
    memset(acc, 0xFF, a_bytes);
    for (int j = 0; j < c->r; j++) {
        check_fill(w + (size_t)j * ldw, (size_t)c->n, 0.0f, 1.0f, 900u + (unsigned)j);
        check_fill_normal(acc + (size_t)j * lda, wide, 700u + (unsigned)j);
    }
    start = copy_of(acc, a_bytes);
    again = copy_of(acc, a_bytes);
    c->f->ref.decode_acc(c->param, rows, c->stride, c->n, decoded, c->d);
    c->k->axpy_q8(c->param, w, ldw, c->r, rows, c->stride, c->n, acc, lda, c->d);
    for (int j = 0; j < c->r; j++) {
        c->k->axpy_q8(c->param, w + (size_t)j * ldw, ldw, 1, rows, c->stride, c->n, again + (size_t)j * lda, lda, c->d);
        for (size_t e = 0; e < wide; e++) {
            double sum = start[(size_t)j * lda + e];
            for (int i = 0; i < c->n; i++) {
                double t = (double)w[(size_t)j * ldw + (size_t)i] * decoded[(size_t)i * wide + e];
                sum += t;
                scale += t * t;
            }
            err += (acc[(size_t)j * lda + e] - sum) * (acc[(size_t)j * lda + e] - sum);
        }
    }
    CHECK(err <= (0.015 * own_error(c) + 1e-7) * scale * (c->n * c->r < 120 ? 3 : 1) + 1e-12 * (double)wide * c->r,
          "squared error %.3g of the terms'; %s", err / scale, rerun(c));
    CHECK(same_bits(acc, again, a_bytes), "bit rule: depends on r, or wrote between rows; %s", rerun(c));
    CHECK(check_guard_ok(w) && check_guard_ok(acc) && check_guard_ok(rows), "wrote outside; %s", rerun(c));
    check_guard_free(w);
    check_guard_free(acc);
    check_guard_free(rows);
    free(start);
    free(again);
    free(decoded);
}

/* prep_q and finish_out: linear maps, in_n values to out_n. */
static void check_linear(kase *c, void (*fn)(const void *, const float *, float *, int),
                         void (*ref)(const void *, const float *, float *, int), int in_n, int out_n)
{
    float *in = check_guarded((size_t)in_n * 4, 4), *out = check_guarded((size_t)out_n * 4, 4);
    float again[2 * KVANT_MAX_HEAD_DIM], want_out[2 * KVANT_MAX_HEAD_DIM];

    for (int kind = 0; kind < 8; kind++) {
        double sum = 0;
        fill_row(in, in_n, kind, 40u + (unsigned)kind);
        for (int e = 0; e < in_n; e++)
            sum += fabs(in[e]);
        fn(c->param, in, out, c->d);
        fn(c->param, in, again, c->d);
        ref(c->param, in, want_out, c->d);
        CHECK(same_bits(out, again, (size_t)out_n * 4), "not the same twice; %s", rerun(c));
        for (int e = 0; e < out_n; e++)
            CHECK_CLOSE(out[e], want_out[e], (c->sdim / 4 + 16) * 0x1p-24 * sum * (c->param ? 5.0 : 1.0),
                        "value %d; %s", e, rerun(c));
    }
    CHECK(check_guard_ok(in) && check_guard_ok(out), "wrote outside; %s", rerun(c));
    check_guard_free(in);
    check_guard_free(out);
}

/* Squared error of a row against x, in real space where the format has one. */
static double row_error(const kase *c, const uint8_t *row, const float *x)
{
    float y[KVANT_MAX_HEAD_DIM];
    double err = 0;
    kvant_row_decode(c->f, c->param, row, y, c->d);
    for (int j = 0; j < c->d; j++)
        err += ((double)y[j] - x[j]) * ((double)y[j] - x[j]);
    return err;
}

static void check_encode(kase *c)
{
    enum { ROWS = 220 };
    uint8_t *row = check_guarded(c->row_bytes, 1), ref[4096], again[4096];
    float *x = check_guarded((size_t)c->d * 4, 4);

    for (int encoder = 0; encoder < 2; encoder++) {
        int differ = 0;
        double ratios = 0;
        for (int i = 0; i < ROWS; i++) {
            double energy = 0;
            fill_row(x, c->d, i % 11, 3000u + (unsigned)i);
            for (int j = 0; j < c->d; j++)
                energy += (double)x[j] * x[j];
            c->k->encode(c->param, x, row, c->d, encoder);
            c->k->encode(c->param, x, again, c->d, encoder);
            c->f->ref.encode(c->param, x, ref, c->d, encoder);
            CHECK(same_bits(row, again, c->row_bytes), "not the same twice; %s", rerun(c));
            double e = row_error(c, row, x) + 1e-7 * energy + 1e-30,
                   e_ref = row_error(c, ref, x) + 1e-7 * energy + 1e-30;
            ratios += e / e_ref;
            if (same_bits(row, ref, c->row_bytes))
                continue;
            differ++;
            CHECK(e <= e_ref * (encoder ? 1.5 : 1.001), "row %d encoder %d: error %.9g, reference %.9g; %s", i, encoder,
                  e, e_ref, rerun(c));
        }
        CHECK(encoder || differ * 50 <= ROWS, "%d of %d rows differ; %s", differ, ROWS, rerun(c));
        CHECK(ratios <= 1.002 * ROWS, "encoder %d: %.5f of the reference's error; %s", encoder, ratios / ROWS,
              rerun(c));
        if (differ)
            printf("  %s %s encode d=%d encoder %d: %d of %d rows differ at a boundary\n", c->f->name, c->isa, c->d,
                   encoder, differ, ROWS);
    }
    for (int i = 0; i < 4; i++) {          /* not finite: no crash, nothing outside */
        fill_row(x, c->d, 0, 5u);
        x[i * 7 % c->d] = i % 2 ? NAN : INFINITY;
        c->k->encode(c->param, x, row, c->d, i / 2);
    }
    CHECK(check_guard_ok(row) && check_guard_ok(x), "wrote outside; %s", rerun(c));
    check_guard_free(row);
    check_guard_free(x);
}

/* Any bytes are a row: decode and score must stay inside and agree with the reference where it is finite. */
static void check_any_bytes(kase *c)
{
    uint8_t *row = check_guarded(c->row_bytes, 1);
    float out[2 * KVANT_MAX_HEAD_DIM], ref[2 * KVANT_MAX_HEAD_DIM];
    rng g = { 11 };
    for (int t = 0; t < 50; t++) {
        int equal = 1;
        for (size_t i = 0; i < c->row_bytes; i++)
            row[i] = (uint8_t)rng_u64(&g);
        c->k->decode_acc(c->param, row, c->row_bytes, 1, out, c->d);
        c->f->ref.decode_acc(c->param, row, c->row_bytes, 1, ref, c->d);
        for (int e = 0; e < c->sdim; e++)
            equal &= out[e] == ref[e] || (out[e] != out[e] && ref[e] != ref[e]);
        CHECK(equal, "random bytes decode differently; %s", rerun(c));
    }
    CHECK(check_guard_ok(row), "wrote outside; %s", rerun(c));
    check_guard_free(row);
}

/* ---- walk ---- */

static void check_shapes(kase *c, const char *op, void (*fn)(kase *))
{
    static const int rs[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 64 }, ns[] = { 0, 1, 2, 3, 5, 8, 31, 64 };
    c->op = op;
    if (!wanted(2, op))
        return;
    for (size_t a = 0; a < sizeof rs / sizeof *rs; a++)
        for (size_t b = 0; b < sizeof ns / sizeof *ns; b++) {
            c->r = rs[a];
            c->n = ns[b];
            if ((c->r == 64 || c->d > 256) && c->n != 3 && c->n != 64)
                continue;
            if (wanted_int(4, c->r) && wanted_int(5, c->n))
                fn(c);
        }
}

static void check_single(kase *c, const char *op)
{
    c->op = op;
    c->r = 1;
    c->n = MAX_N;
    if (!wanted(2, op))
        return;
    if (strcmp(op, "decode_acc") == 0) {
        check_decode(c);
        check_any_bytes(c);
    } else if (strcmp(op, "prep_q") == 0) {
        check_linear(c, c->k->prep_q, c->f->ref.prep_q, c->d, c->sdim);
    } else if (strcmp(op, "finish_out") == 0) {
        check_linear(c, c->k->finish_out, c->f->ref.finish_out, c->sdim, c->d);
    } else {
        check_encode(c);
    }
}

static const kvant_format_kernels *f32_of(const char *isa)
{
    const kvant_format *f = kvant_format_find("f32");
    const kvant_format_kernels *k;
    const char *name;
    int usable;
    for (int i = 1; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++)
        if (strcmp(name, isa) == 0)
            return k;
    return NULL;
}

static void check_variant(const kvant_format *f, const kvant_format_kernels *k, const char *isa)
{
    static const int dims[] = { 32, 41, 64, 67, 80, 96, 128, 192, 256, 512 };
    int before = check_passed + check_failed;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        int d = dims[i];
        if (d % f->group || kvant_format_check(f, d, NULL) || !wanted_int(3, d))
            continue;
        kase c = { .f = f, .k = k, .f32 = f32_of(isa), .isa = isa, .d = d, .sdim = kvant_format_sdim(f, d) };
        c.param = f->flags & KVANT_FORMAT_PARAM ? projection : NULL;
        c.row_bytes = kvant_format_row_bytes(f, d);
        c.stride = c.row_bytes + PAD;
        check_single(&c, "decode_acc");
        check_single(&c, "prep_q");
        check_single(&c, "finish_out");
        check_single(&c, "encode");
        check_shapes(&c, "score", check_score);
        check_shapes(&c, "axpy", check_axpy);
        CHECK(!k->prep_q8 == !k->score_q8 && !k->prep_q8 == !k->axpy_q8, "%s %s: half an integer path", f->name, isa);
        if (k->prep_q8) {
            check_shapes(&c, "score_q8", check_score_q8);
            check_shapes(&c, "axpy_q8", check_axpy_q8);
        }
    }
    printf("%-11s %-10s %d checks\n", f->name, isa, check_passed + check_failed - before);
}

/* A CPU without a feature never reaches its code. */
static void check_masks(const kvant_format *f)
{
    const char *isa;
    int usable;
    cpu_set_mask(0);
    CHECK(memcmp(kvant_format_best(f), &f->ref, sizeof f->ref) == 0, "%s: not the reference without features", f->name);
    for (int i = 0; kvant_format_variant(f, i, &isa, &usable); i++)
        CHECK(usable == (i == 0), "%s %s: usable %d without features", f->name, isa, usable);
    cpu_set_mask(~0u);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc && i <= 6; i++)
        want[i - 1] = argv[i];
    check_fill_normal(projection, 128 * 256, 42);
    for (int i = 0; i < 128 * 256; i++)    /* the tolerance of check_linear counts on it */
        projection[i] = projection[i] > 5.0f ? 5.0f : projection[i] < -5.0f ? -5.0f : projection[i];
    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        const kvant_format_kernels *k;
        const char *isa;
        int usable;
        if (!wanted(0, f->name))
            continue;
        check_masks(f);
        for (int v = 1; (k = kvant_format_variant(f, v, &isa, &usable)) != NULL; v++) {
            if (!wanted(1, isa))
                continue;
            if (usable)
                check_variant(f, k, isa);
            else
                printf("%-11s %-10s SKIP: this CPU cannot run it\n", f->name, isa);
        }
    }
    return check_end("check_kernels");
}
