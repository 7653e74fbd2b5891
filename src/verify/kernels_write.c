/* kernels_write.c: the cases of encode, both encoders, and of the integer path (prep_q8, score_q8, axpy_q8).
 * Bounds: kernels.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "verify/kernels_case.h"
#include "verify/vcase.h"

/* ---- encode ---- */

typedef struct encode_sum {
    int differ;
    double ratios;              /* of the error to the reference's */
} encode_sum;

static double energy_of(const float *x, int d)
{
    double sum = 0;

    for (int j = 0; j < d; j++)
        sum += (double)x[j] * (double)x[j];
    return sum;
}

static void encode_row(kcase *c, const float *x, uint8_t *row, uint8_t *again, int encoder, encode_sum *s)
{
    uint8_t ref[KCASE_MAX_ROW];
    const double floor = 1e-7 * energy_of(x, c->d) + 1e-30;

    c->k->encode(c->param, x, row, c->d, encoder);
    c->k->encode(c->param, x, again, c->d, encoder);
    c->f->ref.encode(c->param, x, ref, c->d, encoder);
    kcase_want(c, kcase_same(row, again, c->row_bytes), "not the same twice");
    if (kcase_same(row, ref, c->row_bytes)) {
        s->ratios += 1;
        return;
    }
    const double e = kcase_row_error(c, row, x) + floor, e_ref = kcase_row_error(c, ref, x) + floor;
    s->differ++;
    s->ratios += e / e_ref;
    kcase_note(c, e > e_ref ? e - e_ref : 0, e_ref * (encoder == KVANT_ENCODER_BEST ? 0.5 : 0.001), "a row's error");
}

/* Not finite: no crash, nothing outside. */
static void encode_special(kcase *c, float *x, uint8_t *row)
{
    for (int i = 0; i < 4; i++) {
        kcase_fill_row(x, c->d, 0, 5);
        x[i * 7 % c->d] = i % 2 ? NAN : INFINITY;
        c->k->encode(c->param, x, row, c->d, i / 2);
    }
}

/* A page's bytes equal the reference's: rungs share all but the search, which is exact. */
static void encode_page(kcase *c)
{
    const size_t bytes = kcase_rows_bytes(c, KVANT_PAGE), values = (size_t)(KVANT_PAGE * c->d);
    uint8_t *page = kcase_take(c, bytes, 1), *again = kcase_take(c, bytes, 0), *ref = kcase_take(c, bytes, 0);
    float *x = kcase_take(c, values * sizeof *x, 4);

    for (int t = 0; t < 6 && kcase_ready(c); t++) {
        for (int i = 0; i < KVANT_PAGE; i++)
            kcase_fill_row(x + i * c->d, c->d, t < 2 ? i % 11 : t == 2 ? 1 : 7, 3000u + (unsigned)(t * KVANT_PAGE + i));
        if (t > 3)                         /* not finite: no crash, nothing outside, and the other rows as they were */
            x[(t * 31 % KVANT_PAGE) * c->d + 5] = t == 4 ? NAN : INFINITY;
        c->k->encode_page(c->param, x, (size_t)c->d, page, c->d, t & 1);
        c->k->encode_page(c->param, x, (size_t)c->d, again, c->d, t & 1);
        c->f->ref.encode_page(c->param, x, (size_t)c->d, ref, c->d, t & 1);
        kcase_want(c, kcase_same(page, again, bytes), "not the same twice");
        kcase_want(c, kcase_same(page, ref, bytes), "a page differs from the reference's");
        c->out->op[c->op].rows += KVANT_PAGE;
    }
}

static void encode_rows(kcase *c)
{
    const int rows = c->d > 256 ? 66 : 220;
    uint8_t *row = kcase_take(c, c->row_bytes, 1), *again = kcase_take(c, c->row_bytes, 0);
    float *x = kcase_take(c, (size_t)c->d * sizeof *x, 4);
    verify_tally *t = &c->out->op[c->op];

    for (int encoder = 0; encoder < 2 && kcase_ready(c); encoder++) {
        encode_sum s = { 0, 0 };
        for (int i = 0; i < rows; i++) {
            kcase_fill_row(x, c->d, i % 11, 3000u + (unsigned)i);
            encode_row(c, x, row, again, encoder, &s);
        }
        t->rows += encoder == KVANT_ENCODER_UPSTREAM ? rows : 0;
        t->boundary += encoder == KVANT_ENCODER_UPSTREAM ? s.differ : 0;
        t->searched += encoder == KVANT_ENCODER_BEST ? s.differ : 0;
        kcase_want(c, encoder == KVANT_ENCODER_BEST || s.differ * 50 <= rows, "more than 2 % of the rows differ");
        kcase_want(c, s.ratios <= 1.002 * rows, "mean error more than 0.2 % above the reference's");
    }
    if (kcase_ready(c))
        encode_special(c, x, row);
}

void kcase_encode(kcase *c)
{
    if (c->k->encode_page)
        encode_page(c);
    else
        encode_rows(c);
}

/* ---- the integer path ---- */

/* The error of a page of Gaussian rows, and the rows' energy. */
static void page_error(const kcase *c, double *num, double *den)
{
    uint8_t *page = malloc(KVANT_PAGE * c->row_bytes);
    float *x = malloc((size_t)(2 * KVANT_PAGE * c->d) * sizeof *x), *y = x ? x + KVANT_PAGE * c->d : NULL;

    if (page && x) {
        vcase_fill(x, (size_t)(KVANT_PAGE * c->d), 60);
        kvant_format_best(c->f)->encode_page(c->param, x, (size_t)c->d, page, c->d, KVANT_ENCODER_UPSTREAM);
        kcase_run_decode(c, &c->f->ref, page, 0, KVANT_PAGE, y);
        for (int i = 0; i < KVANT_PAGE; i++) {
            float real[KVANT_MAX_HEAD_DIM];
            c->f->ref.finish_out(c->param, y + i * c->d, real, c->d);
            for (int j = 0; j < c->d; j++)
                real[j] -= x[i * c->d + j];
            *num += energy_of(real, c->d);
            *den += energy_of(x + i * c->d, c->d);
        }
    }
    free(page);
    free(x);
}

/* The format's own squared error on Gaussian rows, relative: what the integer path is measured against. */
static double own_error(const kcase *c)
{
    uint8_t row[KCASE_MAX_ROW];
    float x[KVANT_MAX_HEAD_DIM];
    double num = 0, den = 1e-30;

    if (c->k->encode_page)
        page_error(c, &num, &den);
    for (int i = 0; i < 16 && !c->k->encode_page; i++) {
        vcase_fill(x, (size_t)c->d, 60u + (unsigned)i);
        kvant_format_best(c->f)->encode(c->param, x, row, c->d, KVANT_ENCODER_UPSTREAM);
        num += kcase_row_error(c, row, x);
        den += energy_of(x, c->d);
    }
    return num / den;
}

static int few(const kcase *c)
{
    return c->n * c->r < 120 ? 3 : 1;
}

typedef struct q8_sum {
    double err, scale;
} q8_sum;

static void run_score_q8(const kcase *c, const uint8_t *q8, size_t ldq8, int r, const uint8_t *rows, int first, int n,
                         float *s, size_t lds)
{
    if (c->k->encode_page)
        c->k->score_page_q8(c->param, q8, ldq8, r, rows, first, n, s, lds, c->d);
    else
        c->k->score_q8(c->param, q8, ldq8, r, rows + (size_t)first * c->stride, c->stride, n, s, lds, c->d);
}

static void run_axpy_q8(const kcase *c, const float *w, size_t ldw, int r, const uint8_t *rows, float *acc, size_t lda)
{
    if (c->k->encode_page)
        c->k->axpy_page_q8(c->param, w, ldw, r, rows, 0, c->n, acc, lda, c->d);
    else
        c->k->axpy_q8(c->param, w, ldw, r, rows, c->stride, c->n, acc, lda, c->d);
}

/* The mean of a page's rows, f32[sdim], which integers do not hold: it is added in f32.  0 for other formats. */
static float *page_mean(kcase *c, const uint8_t *rows)
{
    const size_t wide = (size_t)c->sdim;
    float *all = kcase_take(c, KVANT_PAGE * wide * sizeof *all, 0), *mean = kcase_take(c, wide * sizeof *mean, 0);

    if (!kcase_ready(c))
        return mean;
    memset(mean, 0, wide * sizeof *mean);
    if (!c->k->encode_page)
        return mean;
    kcase_run_decode(c, &c->f->ref, rows, 0, KVANT_PAGE, all);
    for (size_t i = 0; i < KVANT_PAGE * wide; i++)
        mean[i % wide] += all[i] / KVANT_PAGE;
    return mean;
}

/* One score's squared error relative to |q|^2|k|^2/sdim, k without the page's mean; a zero row must score 0. */
static void score_q8_error(const kcase *c, const float *q, const float *key, const float *mean, double got, q8_sum *s)
{
    const double qq = energy_of(q, c->sdim);
    double sum = 0, kk = 0;

    for (int e = 0; e < c->sdim; e++) {
        const double rest = (double)key[e] - (double)mean[e];
        sum += (double)q[e] * (double)key[e];
        kk += rest * rest;
    }
    if (kk > 0) {
        s->err += (got - sum) * (got - sum) / (qq * kk / c->sdim);
        s->scale += 1;
    } else {
        s->err += got * got;
    }
}

void kcase_score_q8(kcase *c)
{
    const size_t ldq8 = kvant_format_q8_bytes(c->f, c->d) + 32, lds = (size_t)c->n + KCASE_PAD;
    const size_t s_bytes = (((size_t)c->r - 1) * lds + (size_t)c->n) * sizeof(float), wide = (size_t)c->sdim;
    uint8_t *rows = kcase_rows(c, c->n), *q8 = kcase_take(c, (size_t)c->r * ldq8 + 32, 0);
    float *s = kcase_take(c, s_bytes, 4), *again = kcase_take(c, s_bytes, 0);
    float *decoded = kcase_take(c, (size_t)c->n * wide * sizeof(float), 0);
    float *q = kcase_take(c, (size_t)c->r * wide * sizeof(float), 0);
    const float *mean = page_mean(c, rows);
    q8_sum sum = { 0, 0 };
    int bits = 1;

    if (!kcase_ready(c))
        return;
    q8 += -(uintptr_t)q8 & 31;
    for (int j = 0; j < c->r; j++) {
        vcase_fill(q + (size_t)j * wide, wide, 500u + (unsigned)j);
        c->k->prep_q8(c->param, q + (size_t)j * wide, q8 + (size_t)j * ldq8, c->d);
    }
    kcase_run_decode(c, &c->f->ref, rows, 0, c->n, decoded);
    run_score_q8(c, q8, ldq8, c->r, rows, 0, c->n, s, lds);
    run_score_q8(c, q8, ldq8, c->r, rows, 0, c->n, again, lds);
    kcase_want(c, kcase_same(s, again, s_bytes), "not the same twice, or wrote between rows");
    for (int j = 0; j < c->r; j++)
        for (int i = 0; i < c->n; i++) {
            const float *got = &s[(size_t)j * lds + (size_t)i];
            float one;
            run_score_q8(c, q8 + (size_t)j * ldq8, ldq8, 1, rows, i, 1, &one, 1);
            bits &= kcase_same(&one, got, sizeof one);
            score_q8_error(c, q + (size_t)j * wide, decoded + (size_t)i * wide, mean, (double)*got, &sum);
        }
    kcase_note(c, sum.err, (0.025 * own_error(c) + 6e-5) * sum.scale * few(c), "mean squared error");
    kcase_want(c, bits, "bit rule: a score depends on its neighbours");
}

/* Squared error of one accumulated row, and the sum of squared terms, without the page's mean. */
static void axpy_q8_error(const kcase *c, const float *w, const float *decoded, const float *mean, const float *start,
                          const float *acc, q8_sum *s)
{
    for (int e = 0; e < c->sdim; e++) {
        double sum = (double)start[e];
        for (int i = 0; i < c->n; i++) {
            const double x = (double)decoded[(size_t)(i * c->sdim + e)], t = (double)w[i] * (x - (double)mean[e]);
            sum += (double)w[i] * x;
            s->scale += t * t;
        }
        s->err += ((double)acc[e] - sum) * ((double)acc[e] - sum);
    }
}

void kcase_axpy_q8(kcase *c)
{
    const size_t lda = (size_t)c->sdim + 5, ldw = (size_t)c->n + KCASE_PAD, r1 = (size_t)c->r - 1;
    const size_t a_bytes = (r1 * lda + (size_t)c->sdim) * sizeof(float);
    const size_t w_bytes = (r1 * ldw + (size_t)c->n) * sizeof(float);
    uint8_t *rows = kcase_rows(c, c->n);
    float *w = kcase_take(c, w_bytes, 4), *acc = kcase_take(c, a_bytes, 4), *start = kcase_take(c, a_bytes, 0);
    float *again = kcase_take(c, a_bytes, 0), *decoded = kcase_take(c, (size_t)(c->n * c->sdim) * sizeof(float), 0);
    const float *mean = page_mean(c, rows);
    q8_sum sum = { 0, 0 };

    if (!kcase_ready(c))
        return;
    for (int j = 0; j < c->r; j++) {
        vcase_fill(w + (size_t)j * ldw, (size_t)c->n, 900u + (unsigned)j);
        for (int i = 0; i < c->n; i++)          /* softmax weights: between 0 and 1 */
            w[(size_t)j * ldw + (size_t)i] = fabsf(w[(size_t)j * ldw + (size_t)i]) / 4.0f;
        vcase_fill(acc + (size_t)j * lda, (size_t)c->sdim, 700u + (unsigned)j);
    }
    memcpy(start, acc, a_bytes);
    memcpy(again, acc, a_bytes);
    kcase_run_decode(c, &c->f->ref, rows, 0, c->n, decoded);
    run_axpy_q8(c, w, ldw, c->r, rows, acc, lda);
    for (int j = 0; j < c->r; j++) {
        const float *wj = w + (size_t)j * ldw;
        float *to = again + (size_t)j * lda;
        run_axpy_q8(c, wj, ldw, 1, rows, to, lda);
        axpy_q8_error(c, wj, decoded, mean, start + (size_t)j * lda, acc + (size_t)j * lda, &sum);
    }
    /* Three rows of a page are few, however many queries share their rounding. */
    const int share = c->k->encode_page && c->n < 4 ? 3 : few(c);
    kcase_note(c, sum.err, (0.015 * own_error(c) + 1e-7) * sum.scale * share + 1e-12 * c->sdim * c->r, "squared error");
    kcase_want(c, kcase_same(acc, again, a_bytes), "bit rule: depends on r, or wrote between rows");
}
