/* kernels_read.c: the cases of the kernels that read rows: decode_acc, score, axpy; and of the linear maps prep_q and
 * finish_out.  Bounds: kernels.h. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "base/rng.h"
#include "verify/kernels_case.h"
#include "verify/vcase.h"

static int equal_values(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))))
            return 0;
    return 1;
}

static void same_row(kcase *c, const uint8_t *rows, int at, float *out, float *want, const char *what)
{
    kcase_run_decode(c, c->k, rows, at, 1, out);
    kcase_run_decode(c, &c->f->ref, rows, at, 1, want);
    kcase_note(c, equal_values(out, want, (size_t)c->sdim) ? 0 : INFINITY, 1, what);
}

/* Any bytes are a row, or a page: what is decoded from them equals the reference's, NaN for NaN; and with Inf, NaN, the
 * least and the largest number of 16 bits at every place where a format might keep its scale. */
static void any_bytes(kcase *c, uint8_t *row, float *out, float *want)
{
    static const uint16_t special[] = { 0x7c00, 0xfc00, 0x7e01, 0x0001, 0x8001, 0x7bff, 0x8000, 0x7f80, 0xff80 };
    const size_t bytes = kcase_rows_bytes(c, 1);
    const int rows = c->k->decode_page ? KVANT_PAGE : 1;
    rng g = { 11 };

    for (int t = 0; t < 50; t++) {
        for (size_t i = 0; i < bytes; i++)
            row[i] = (uint8_t)rng_u64(&g);
        same_row(c, row, t % rows, out, want, "random bytes decode differently");
    }
    for (size_t i = 0; i + 1 < bytes; i += c->d > 128 ? 2 : 1) {
        const uint8_t keep[2] = { row[i], row[i + 1] };
        for (size_t k = 0; k < sizeof special / sizeof *special; k++) {
            store_u16(row + i, special[k]);
            same_row(c, row, (int)(i + k) % rows, out, want, "a special scale decodes differently");
        }
        memcpy(row + i, keep, 2);
    }
}

void kcase_decode(kcase *c)
{
    const size_t count = (size_t)c->n * (size_t)c->sdim, rows_bytes = kcase_rows_bytes(c, c->n);
    uint8_t *rows = kcase_rows(c, c->n), *row = kcase_take(c, kcase_rows_bytes(c, 1), 1);
    uint8_t *copy = kcase_take(c, rows_bytes, 0);
    float *out = kcase_take(c, count * sizeof *out, 4), *again = kcase_take(c, count * sizeof *out, 0);
    float *want = kcase_take(c, count * sizeof *out, 0);

    if (!kcase_ready(c))
        return;
    memcpy(copy, rows, rows_bytes);
    kcase_run_decode(c, c->k, rows, 0, c->n, out);
    kcase_run_decode(c, c->k, rows, 0, c->n, again);
    kcase_run_decode(c, &c->f->ref, rows, 0, c->n, want);
    kcase_note(c, equal_values(out, want, count) ? 0 : INFINITY, 1, "decoded values");
    kcase_want(c, kcase_same(out, again, count * sizeof *out), "not the same twice");
    kcase_want(c, kcase_same(rows, copy, rows_bytes), "inputs changed");
    any_bytes(c, row, out, want);
}

/* ---- score ---- */

static void compare_scores(kcase *c, const float *q, size_t ldq, const float *rows, const float *s, size_t lds)
{
    for (int j = 0; j < c->r; j++)
        for (int i = 0; i < c->n; i++) {
            double sum = 0, mag = 0;
            for (int e = 0; e < c->sdim; e++) {
                const double t = (double)q[(size_t)j * ldq + (size_t)e] * (double)rows[(size_t)(i * c->sdim + e)];
                sum += t;
                mag += fabs(t);
            }
            kcase_note(c, fabs((double)s[(size_t)j * lds + (size_t)i] - sum), (c->sdim / 4 + 16) * 0x1p-24 * mag,
                       "score");
        }
}

/* Each score alone; and through the f32 kernels of the same variant. */
static void score_bits(kcase *c, const float *q, size_t ldq, const uint8_t *rows, const float *s, size_t lds,
                       float *decoded, float *again, size_t s_bytes)
{
    int bits = 1;

    for (int j = 0; j < c->r; j++)
        for (int i = 0; i < c->n; i++) {
            float one;
            kcase_run_score(c, q + (size_t)j * ldq, ldq, 1, rows, i, 1, &one, 1);
            bits &= kcase_same(&one, &s[(size_t)j * lds + (size_t)i], sizeof one);
        }
    kcase_want(c, bits, "bit rule: a score depends on its neighbours");
    if (!c->f32)
        return;
    kcase_run_decode(c, c->k, rows, 0, c->n, decoded);
    c->f32->score(NULL, q, ldq, c->r, (const uint8_t *)decoded, (size_t)c->sdim * sizeof(float), c->n, again, lds,
                  c->sdim);
    kcase_want(c, kcase_same(s, again, s_bytes), "bit rule: differs from f32 on decoded rows");
}

void kcase_score(kcase *c)
{
    const size_t ldq = (size_t)c->sdim + 5, lds = (size_t)c->n + KCASE_PAD, r1 = (size_t)c->r - 1;
    const size_t q_bytes = (r1 * ldq + (size_t)c->sdim) * sizeof(float);
    const size_t s_bytes = (r1 * lds + (size_t)c->n) * sizeof(float), rows_bytes = kcase_rows_bytes(c, c->n);
    uint8_t *rows = kcase_rows(c, c->n), *copy = kcase_take(c, rows_bytes, 0), *q_copy = kcase_take(c, q_bytes, 0);
    float *q = kcase_take(c, q_bytes, 4), *s = kcase_take(c, s_bytes, 4), *again = kcase_take(c, s_bytes, 0);
    float *decoded = kcase_take(c, (size_t)c->n * (size_t)c->sdim * sizeof(float), 0);

    if (!kcase_ready(c))
        return;
    for (int j = 0; j < c->r; j++)
        vcase_fill(q + (size_t)j * ldq, (size_t)c->sdim, 500u + (unsigned)j);
    memcpy(q_copy, q, q_bytes);
    memcpy(copy, rows, rows_bytes);
    kcase_run_score(c, q, ldq, c->r, rows, 0, c->n, s, lds);
    kcase_run_score(c, q, ldq, c->r, rows, 0, c->n, again, lds);
    kcase_want(c, kcase_same(s, again, s_bytes), "not the same twice, or wrote between rows");
    kcase_run_decode(c, &c->f->ref, rows, 0, c->n, decoded);
    compare_scores(c, q, ldq, decoded, s, lds);
    score_bits(c, q, ldq, rows, s, lds, decoded, again, s_bytes);
    kcase_want(c, kcase_same(q, q_copy, q_bytes) && kcase_same(rows, copy, rows_bytes), "inputs changed");
}

/* ---- axpy ---- */

static void compare_axpy(kcase *c, const float *w, size_t ldw, const float *rows, const float *start, const float *acc,
                         size_t lda)
{
    for (int j = 0; j < c->r; j++)
        for (int e = 0; e < c->sdim; e++) {
            double sum = (double)start[(size_t)j * lda + (size_t)e], mag = fabs(sum);
            for (int i = 0; i < c->n; i++) {
                const double t = (double)w[(size_t)j * ldw + (size_t)i] * (double)rows[(size_t)(i * c->sdim + e)];
                sum += t;
                mag += fabs(t);
            }
            kcase_note(c, fabs((double)acc[(size_t)j * lda + (size_t)e] - sum), (c->n + 2) * 0x1p-24 * mag, "sum");
        }
}

/* Computes this sum again: one row of w at a time, and the rows of the page in two calls. */
static void axpy_split(kcase *c, const float *w, size_t ldw, const uint8_t *rows, float *acc, size_t lda)
{
    const int cut = c->n / 3;

    for (int j = 0; j < c->r; j++) {
        const float *wj = w + (size_t)j * ldw;
        float *to = acc + (size_t)j * lda;
        kcase_run_axpy(c, wj, ldw, 1, rows, 0, cut, to, lda);
        kcase_run_axpy(c, wj + cut, ldw, 1, rows, cut, c->n - cut, to, lda);
    }
}

void kcase_axpy(kcase *c)
{
    const size_t lda = (size_t)c->sdim + 5, ldw = (size_t)c->n + KCASE_PAD, r1 = (size_t)c->r - 1;
    const size_t a_bytes = (r1 * lda + (size_t)c->sdim) * sizeof(float);
    const size_t w_bytes = (r1 * ldw + (size_t)c->n) * sizeof(float), rows_bytes = kcase_rows_bytes(c, c->n);
    uint8_t *rows = kcase_rows(c, c->n), *copy = kcase_take(c, rows_bytes, 0), *w_copy = kcase_take(c, w_bytes, 0);
    float *w = kcase_take(c, w_bytes, 4), *acc = kcase_take(c, a_bytes, 4), *start = kcase_take(c, a_bytes, 0);
    float *again = kcase_take(c, a_bytes, 0), *decoded = kcase_take(c, (size_t)(c->n * c->sdim) * sizeof(float), 0);

    if (!kcase_ready(c))
        return;
    for (int j = 0; j < c->r; j++) {
        vcase_fill(w + (size_t)j * ldw, (size_t)c->n, 900u + (unsigned)j);
        vcase_fill(acc + (size_t)j * lda, (size_t)c->sdim, 700u + (unsigned)j);
    }
    memcpy(start, acc, a_bytes);
    memcpy(again, acc, a_bytes);
    memcpy(w_copy, w, w_bytes);
    memcpy(copy, rows, rows_bytes);
    kcase_run_axpy(c, w, ldw, c->r, rows, 0, c->n, acc, lda);
    kcase_run_decode(c, &c->f->ref, rows, 0, c->n, decoded);
    compare_axpy(c, w, ldw, decoded, start, acc, lda);
    axpy_split(c, w, ldw, rows, again, lda);
    kcase_want(c, kcase_same(acc, again, a_bytes), "bit rule: depends on r or on the split, or wrote between rows");
    if (c->f32) {
        memcpy(again, start, a_bytes);
        kcase_run_decode(c, c->k, rows, 0, c->n, decoded);
        c->f32->axpy(NULL, w, ldw, c->r, (const uint8_t *)decoded, (size_t)c->sdim * sizeof(float), c->n, again, lda,
                     c->sdim);
        kcase_want(c, kcase_same(acc, again, a_bytes), "bit rule: differs from f32 on decoded rows");
    }
    kcase_want(c, kcase_same(w, w_copy, w_bytes) && kcase_same(rows, copy, rows_bytes), "inputs changed");
}

/* ---- prep_q, finish_out ---- */

typedef void (*linear_fn)(const void *param, const float *in, float *out, int d);

static void linear(kcase *c, linear_fn fn, linear_fn ref, int in_n, int out_n)
{
    const size_t in_bytes = (size_t)in_n * sizeof(float), out_bytes = (size_t)out_n * sizeof(float);
    float *in = kcase_take(c, in_bytes, 4), *out = kcase_take(c, out_bytes, 4), *again = kcase_take(c, out_bytes, 0);
    float *want = kcase_take(c, out_bytes, 0);

    for (int kind = 0; kind < 8 && kcase_ready(c); kind++) {
        double sum = 0;
        kcase_fill_row(in, in_n, kind, 40u + (unsigned)kind);
        for (int e = 0; e < in_n; e++)
            sum += fabs((double)in[e]);
        fn(c->param, in, out, c->d);
        fn(c->param, in, again, c->d);
        ref(c->param, in, want, c->d);
        kcase_want(c, kcase_same(out, again, out_bytes), "not the same twice");
        for (int e = 0; e < out_n; e++)
            kcase_note(c, fabs((double)out[e] - (double)want[e]),
                       (c->sdim / 4 + 16) * 0x1p-24 * sum * (c->param ? 5.0 : 1.0), "value");
    }
}

void kcase_prep_q(kcase *c)
{
    linear(c, c->k->prep_q, c->f->ref.prep_q, c->d, c->sdim);
}

void kcase_finish(kcase *c)
{
    linear(c, c->k->finish_out, c->f->ref.finish_out, c->sdim, c->d);
}
