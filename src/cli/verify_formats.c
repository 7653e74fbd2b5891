/* verify_formats.c: see verify_formats.h.  Bounds, e = 2^-24 (spec architecture 5):
 *   decode_acc      equal values (an error is infinite)
 *   score           (sdim/4 + 16) e sum|q k|, against sums in double over the reference's decoded rows
 *   axpy            (n + 2) e (|acc| + sum|w v|)
 *   prep_q, finish  (sdim/4 + 16) e sum|x| max|param|
 *   encode          upstream: rows equal, or as near to the input as the reference's (a code at a decision boundary),
 *                   for 98 %; best (of two scales that fit alike either may be taken): squared error at most 0.2 %
 *                   above the reference's on the mean of 64 rows, 50 % on a row */
#include "cli/verify_formats.h"

#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/rng.h"

enum { N = 64, R = 3, MAX_SDIM = 2 * KVANT_MAX_HEAD_DIM, PROJECTION = 128 * 256 };

static const int head_sizes[] = { 64, 80, 96, 128, 192, 256 };

typedef struct verify_work {
    float projection[PROJECTION];
    float x[N][KVANT_MAX_HEAD_DIM];
    uint8_t rows[N * 4 * KVANT_MAX_HEAD_DIM], row[4 * KVANT_MAX_HEAD_DIM];
    float decoded[N * MAX_SDIM], again[N * MAX_SDIM];
    float q[R * MAX_SDIM], w[R * N], s[R * N], acc[R * MAX_SDIM], start[R * MAX_SDIM];
    float in[MAX_SDIM], out[MAX_SDIM], want[MAX_SDIM];
} verify_work;

typedef struct verify_case {
    const kvant_format *f;
    const kvant_format_kernels *k;
    const void *param;
    int d, sdim;
    size_t stride;
    verify_work *b;
    verify_result *out;
} verify_case;

const char *verify_op_name(int op)
{
    static const char *const names[VERIFY_OPS] = { "decode", "score", "axpy", "prep_q", "finish_out", "encode" };
    return names[op];
}

/* Written so that a NaN stays the worst. */
static void note(const verify_case *c, int op, double err, double bound)
{
    double part = err == 0 ? 0 : bound > 0 ? err / bound : INFINITY;

    if (!(part <= c->out->worst[op]))
        c->out->worst[op] = part;
}

static void fill_normal(float *x, int n, uint64_t seed)
{
    rng r = { seed };

    for (int i = 0; i < n; i++)
        x[i] = rng_normal(&r);
}

static void make_rows(const verify_case *c)
{
    verify_work *b = c->b;

    for (int i = 0; i < N; i++) {
        fill_normal(b->x[i], c->d, 100u + (unsigned)i);
        for (int j = 0; j < c->d; j++)
            b->x[i][j] *= i % 5 == 1 ? 1e-4f : i % 5 == 2 ? 200.0f : i == 3 ? 0.0f : 1.0f;
        c->f->ref.encode(c->param, b->x[i], b->rows + (size_t)i * c->stride, c->d, KVANT_ENCODER_UPSTREAM);
    }
    c->f->ref.decode_acc(c->param, b->rows, c->stride, N, b->decoded, c->d);
}

static void check_decode(const verify_case *c)
{
    verify_work *b = c->b;

    c->k->decode_acc(c->param, b->rows, c->stride, N, b->again, c->d);
    for (int i = 0; i < N * c->sdim; i++)
        note(c, VERIFY_DECODE, b->again[i] == b->decoded[i] ? 0 : INFINITY, 1);
}

static void check_score(const verify_case *c)
{
    verify_work *b = c->b;

    fill_normal(b->q, R * c->sdim, 7);
    c->k->score(c->param, b->q, (size_t)c->sdim, R, b->rows, c->stride, N, b->s, N, c->d);
    for (int j = 0; j < R; j++)
        for (int i = 0; i < N; i++) {
            double sum = 0, mag = 0;
            for (int e = 0; e < c->sdim; e++) {
                double t = (double)b->q[j * c->sdim + e] * (double)b->decoded[i * c->sdim + e];
                sum += t;
                mag += fabs(t);
            }
            note(c, VERIFY_SCORE, fabs((double)b->s[j * N + i] - sum), (c->sdim / 4 + 16) * 0x1p-24 * mag);
        }
}

static void check_axpy(const verify_case *c)
{
    verify_work *b = c->b;

    fill_normal(b->w, R * N, 8);
    fill_normal(b->start, R * c->sdim, 9);
    memcpy(b->acc, b->start, (size_t)(R * c->sdim) * sizeof *b->acc);
    c->k->axpy(c->param, b->w, N, R, b->rows, c->stride, N, b->acc, (size_t)c->sdim, c->d);
    for (int j = 0; j < R; j++)
        for (int e = 0; e < c->sdim; e++) {
            double sum = (double)b->start[j * c->sdim + e], mag = fabs(sum);
            for (int i = 0; i < N; i++) {
                double t = (double)b->w[j * N + i] * (double)b->decoded[i * c->sdim + e];
                sum += t;
                mag += fabs(t);
            }
            note(c, VERIFY_AXPY, fabs((double)b->acc[j * c->sdim + e] - sum), (N + 2) * 0x1p-24 * mag);
        }
}

typedef void (*linear_fn)(const void *param, const float *in, float *out, int d);

static void check_linear(const verify_case *c, int op, linear_fn fn, linear_fn ref, int n_in, int n_out)
{
    verify_work *b = c->b;
    double sum = 0;

    fill_normal(b->in, n_in, 10);
    for (int i = 0; i < n_in; i++)
        sum += fabs((double)b->in[i]);
    fn(c->param, b->in, b->out, c->d);
    ref(c->param, b->in, b->want, c->d);
    for (int i = 0; i < n_out; i++) /* 5: no entry of a normal projection of this size is larger */
        note(c, op, fabs((double)b->out[i] - (double)b->want[i]),
             (c->sdim / 4 + 16) * 0x1p-24 * sum * (c->param ? 5.0 : 1.0));
}

static double row_error(const verify_case *c, const uint8_t *row, const float *x)
{
    float y[KVANT_MAX_HEAD_DIM];
    double err = 0;

    kvant_row_decode(c->f, c->param, row, y, c->d);
    for (int j = 0; j < c->d; j++)
        err += ((double)y[j] - (double)x[j]) * ((double)y[j] - (double)x[j]);
    return err;
}

static void check_encode(const verify_case *c)
{
    verify_work *b = c->b;
    size_t bytes = kvant_format_row_bytes(c->f, c->d);

    for (int encoder = 0; encoder < 2; encoder++) {
        int differ = 0, worse = 0;
        double excess = 0;
        for (int i = 0; i < N; i++) {
            uint8_t *ref = b->rows + (size_t)i * c->stride;
            c->f->ref.encode(c->param, b->x[i], ref, c->d, encoder);
            c->k->encode(c->param, b->x[i], b->row, c->d, encoder);
            if (memcmp(ref, b->row, bytes) == 0)
                continue;
            double e = row_error(c, b->row, b->x[i]), want = row_error(c, ref, b->x[i]);
            differ++;
            excess += e / want - 1;
            worse += !(e <= want * (encoder == KVANT_ENCODER_BEST ? 1.5 : 1.001) + 1e-12);
        }
        if (worse)
            note(c, VERIFY_ENCODE, INFINITY, 1);
        else if (encoder == KVANT_ENCODER_BEST)
            note(c, VERIFY_ENCODE, excess > 0 ? excess : 0, 0.002 * N);
        else
            note(c, VERIFY_ENCODE, differ, N / 50.0);
    }
}

static void check_size(verify_case *c, int head)
{
    c->d = kvant_format_padded(c->f, head);
    c->sdim = kvant_format_sdim(c->f, c->d);
    c->stride = kvant_format_row_bytes(c->f, c->d);
    make_rows(c);
    check_decode(c);
    check_score(c);
    check_axpy(c);
    check_linear(c, VERIFY_PREP_Q, c->k->prep_q, c->f->ref.prep_q, c->d, c->sdim);
    check_linear(c, VERIFY_FINISH, c->k->finish_out, c->f->ref.finish_out, c->sdim, c->d);
    check_encode(c);
    c->out->cases++;
}

int verify_format(const kvant_format *f, int i, verify_result *out, kvant_diag *diag)
{
    verify_case c = { f, NULL, NULL, 0, 0, 0, NULL, out };

    memset(out, 0, sizeof *out);
    out->f = f;
    c.k = kvant_format_variant(f, i, &out->variant, &out->usable);
    if (!c.k)
        return 0;
    out->ok = 1;
    if (!out->usable)
        return 1;
    c.b = kvant_calloc(1, sizeof *c.b);
    if (!c.b)
        return kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory");
    fill_normal(c.b->projection, PROJECTION, 42);
    c.param = f->flags & KVANT_FORMAT_PARAM ? c.b->projection : NULL;
    for (size_t h = 0; h < sizeof head_sizes / sizeof head_sizes[0]; h++)
        if (kvant_format_check(f, head_sizes[h], NULL) == KVANT_OK)
            check_size(&c, head_sizes[h]);
    for (int op = 0; op < VERIFY_OPS; op++)
        out->ok &= out->worst[op] <= 1.0;
    kvant_free(c.b);
    return 1;
}
