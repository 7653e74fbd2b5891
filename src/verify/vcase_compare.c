/* vcase_compare.c: see vcase_compare.h.  Limits and their reasons:
 *   NMSE   sum of squared differences over the reference's sum of squares; the class's number (ops.def)
 *   GAIN   how much larger all values are than the reference's: where the NMSE leaves room for it, because values may
 *          be rounded to few bits, at most .1 %, or four deviations of what as many such roundings add up to
 *   BF16   NMSE at most 1e-6: a sum in another order moves few values over a boundary of the rounding, by 2^-8 each
 *          (1e-10 measured on CPUs); values cut instead of rounded are 5e-6 away
 *   BOUND  a bound of rounding errors for every value, made by the generator; the error is given as a part of it
 *   ROWS   CODE: bytes equal, or the row reconstructs its origin as well as the reference's row does (a code at a
 *          decision boundary): upstream within 0.1 %, and at most 2 % of the rows (or 1); best: another search may
 *          settle elsewhere: at most half above the reference's error in one row, 1 % in the mean
 * A NaN where the reference has a number fails, and so does a number where the reference left NaN. */
#include "verify/vcase_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/half.h"
#include "formats/format.h"
#include "ops/op_util.h"

static size_t differing(const unsigned char *a, const unsigned char *b, size_t n)
{
    size_t count = 0;

    if (memcmp(a, b, n) == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        count += a[i] != b[i];
    return count;
}

static const unsigned char *got_of(const vcase *c, const unsigned char *image)
{
    return c->got + (image - c->image);
}

static void note(vcase_verdict *v, double worst, double limit)
{
    v->worst = !(worst <= v->worst) ? worst : v->worst;
    v->limit = limit > v->limit ? limit : v->limit;
}

static size_t width(const vcase_buf *b)
{
    return b->kind == VCASE_BF16 ? 2 : 4;
}

static float value(const vcase_buf *b, const unsigned char *p, size_t i)
{
    float x;

    if (b->kind == VCASE_BF16)
        return bf16_to_f32(load_u16(p + i * 2));
    memcpy(&x, p + i * sizeof x, sizeof x);
    return x;
}

/* Values that the reference left as NaN must have the same bytes. */
static int stray(const vcase_buf *b, const unsigned char *got)
{
    const size_t w = width(b);
    int count = 0;

    for (size_t i = 0; i < b->bytes / w; i++)
        if (isnan(value(b, b->at, i)))
            count += memcmp(got + w * i, b->at + w * i, w) != 0 && !isnan(value(b, got, i));
    return count;
}

/* dot: differences times the reference, of n values that the reference's squares, `sum`, are of. */
static void compare_gain(double dot, double sum, double n, double limit, int i, vcase_verdict *v)
{
    static const double FEW_BITS = 1e-5, LEAST = 1e-3, DEVIATIONS = 4;
    const double gain = dot / sum, most = fmax(LEAST, DEVIATIONS * sqrt(limit / n));

    if (limit >= FEW_BITS && sum > 0 && !(fabs(gain) <= most))
        snprintf(v->text, sizeof v->text, "values of buffer %d are %.2g %% too %s, allowed %.2g %%", i,
                 100 * fabs(gain), gain > 0 ? "large" : "small", 100 * most);
}

static void compare_nmse(const vcase *c, const vcase_buf *b, const unsigned char *got, double limit, int i,
                         vcase_verdict *v)
{
    double err = 0, sum = 0, dot = 0;
    size_t n = 0;

    for (size_t k = 0; k < b->bytes / width(b); k++) {
        const double w = (double)value(b, b->at, k), g = (double)value(b, got, k);

        n += !isnan(w);
        if (isnan(w) || w == g)             /* equal infinities too */
            sum += isnan(w) || isinf(w) ? 0 : w * w;
        else {
            err += (g - w) * (g - w);
            sum += w * w;
            dot += (g - w) * w;
        }
    }
    compare_gain(dot, sum, fmax(1.0, (double)n / c->alike), limit, i, v);
    const double nmse = sum > 0 ? err / sum : err;
    note(v, nmse, limit);
    if (!(nmse <= limit))
        snprintf(v->text, sizeof v->text, "NMSE %.3g in buffer %d, allowed %.1g", nmse, i, limit);
}

static void compare_bound(const vcase_buf *b, const unsigned char *got, int i, vcase_verdict *v)
{
    double worst = 0;

    for (size_t k = 0; k < b->bytes / 4; k++) {
        const double w = (double)value(b, b->at, k), err = fabs((double)value(b, got, k) - w);

        if (isnan(w) || err == 0)
            continue;
        const double part = b->bound[k] > 0 ? err / b->bound[k] : INFINITY;
        worst = !(part <= worst) ? part : worst;
    }
    note(v, worst, 1.0);
    if (!(worst <= 1.0))
        snprintf(v->text, sizeof v->text, "error of %.3g times its bound in buffer %d", worst, i);
}

static void compare_floats(const vcase *c, const vcase_buf *b, const unsigned char *got, double limit, int i,
                           vcase_verdict *v)
{
    if (b->kind == VCASE_BOUND)
        compare_bound(b, got, i, v);
    else
        compare_nmse(c, b, got, b->kind == VCASE_BF16 ? 1e-6 : limit, i, v);
    const int n = stray(b, got);
    if (n)
        snprintf(v->text, sizeof v->text, "%d values of buffer %d written that the reference leaves", n, i);
}

/* ---- encoded rows ---- */

/* The squared error of all encoded values: the zeros behind the row too, which share its codes' search. */
static double row_error(const vcase_rows *r, const unsigned char *head, int k, const float *x)
{
    const kvant_format *f = r->side->fmt;
    const int padded = kvant_format_padded(f, r->d);
    float acc[FORMAT_MAX_SDIM], y[KVANT_MAX_PLAIN_HEAD_DIM];
    double err = 0;

    kvant_page_decode_acc(f, r->side->param, head, k, acc, padded);
    f->ref.finish_out(r->side->param, acc, y, padded);
    for (int j = 0; j < padded; j++) {
        const double e = (double)y[j] - (j < r->d ? (double)x[j] : 0.0);
        err += e * e;
    }
    return err;
}

static double energy(const float *x, int d)
{
    double sum = 0;

    for (int j = 0; j < d; j++)
        sum += (double)x[j] * (double)x[j];
    return sum;
}

typedef struct row_count {
    int rows, differ, bad;
    double ratio;               /* sum of error / reference's error - 1 over the rows that differ */
} row_count;

/* Row k of a page of one head. */
static void compare_row(const vcase_rows *r, const unsigned char *got, const unsigned char *want, int k, const float *x,
                        row_count *n)
{
    const int paged = r->side->fmt->flags & KVANT_FORMAT_PAGE;
    const size_t at = paged ? 0 : (size_t)k * r->side->row_bytes;

    if (x)
        n->rows++;
    if (memcmp(got + at, want + at, paged ? r->side->head_bytes : r->side->row_bytes) == 0)
        return;
    n->differ++;
    if (!x) {                   /* a row that nobody wrote */
        n->bad++;
        return;
    }
    const double floor = 1e-7 * energy(x, r->d) + 1e-30;        /* where sums in f32 end */
    const double e = row_error(r, got, k, x) + floor, ref = row_error(r, want, k, x) + floor;
    n->ratio += e / ref - 1;
    n->bad += !(e <= ref * (r->side->encoder == KVANT_ENCODER_BEST ? 1.5 : 1.001));
}

static void compare_rows(const vcase *c, const vcase_buf *b, int i, vcase_verdict *v)
{
    const vcase_rows *r = b->rows;
    const kvant_kv_side *side = r->side;
    row_count n = { 0 };

    for (int p = 0; p < r->pages; p++) {
        for (int h = 0; h < r->h; h++)
            for (int k = 0; k < KVANT_PAGE; k++) {
                const unsigned char *want = kv_row(side, p, h, 0);
                compare_row(r, got_of(c, want), want, k, r->origin[(p * r->h + h) * KVANT_PAGE + k], &n);
            }
        const unsigned char *end = kv_row(side, p, r->h, 0);
        const size_t rest = side->page_bytes - side->head_bytes * (size_t)r->h;
        if (differing(got_of(c, end), end, rest))
            snprintf(v->text, sizeof v->text, "wrote behind page %d of buffer %d", p, i);
    }
    v->boundary += n.differ;
    const double share = n.rows ? (double)n.differ / n.rows : 0;
    note(v, share, side->encoder == KVANT_ENCODER_BEST ? 1.0 : 0.02);
    if (n.bad)
        snprintf(v->text, sizeof v->text, "%d of %d rows of buffer %d are wrong", n.bad, n.rows, i);
    else if (side->encoder != KVANT_ENCODER_BEST && n.differ > 1 && n.differ * 50 > n.rows)
        snprintf(v->text, sizeof v->text, "%d of %d rows of buffer %d differ at a boundary", n.differ, n.rows, i);
    else if (!(n.ratio <= 0.01 * n.rows))
        snprintf(v->text, sizeof v->text, "mean error %.4f above the reference's", n.ratio / n.rows);
}

void vcase_compare(const vcase *c, double limit, vcase_verdict *v)
{
    const unsigned char *end = c->image;

    for (int i = 0; i < c->n_bufs && !v->text[0]; i++) {
        const vcase_buf *b = &c->bufs[i];
        const unsigned char *got = got_of(c, b->at);

        if (differing(got_of(c, end), end, (size_t)(b->at - end)))
            snprintf(v->text, sizeof v->text, "wrote before buffer %d", i);
        end = b->at + b->bytes;
        if (b->kind == VCASE_ROWS)
            compare_rows(c, b, i, v);
        else if (b->kind != VCASE_INPUT)
            compare_floats(c, b, got, limit, i, v);
        else if (differing(got, b->at, b->bytes))
            snprintf(v->text, sizeof v->text, "%zu of %zu bytes of buffer %d differ", differing(got, b->at, b->bytes),
                     b->bytes, i);
    }
    if (!v->text[0] && differing(got_of(c, end), end, (size_t)(c->image + c->used - end)))
        snprintf(v->text, sizeof v->text, "wrote behind the last buffer");
}
