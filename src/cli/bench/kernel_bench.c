/* kernel_bench.c: see kernel_bench.h. */
#include "cli/bench/kernel_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"

enum { PAGE = 64, MAX_ROUNDS = 64, SAMPLE_ROWS = 64 };

/* The memory of one case. */
typedef struct bench_data {
    uint8_t *rows;
    int *order;                            /* pages, shuffled */
    float *q, *s, *acc, *x;
    uint8_t *q8;                           /* the queries prepared for score_q8, or NULL */
    size_t row_bytes, q8_bytes;
    int pages, sdim;
} bench_data;

const char *kernel_bench_op_name(enum kernel_bench_op op)
{
    static const char *const names[KERNEL_BENCH_OPS] = { "score",  "axpy",        "decode_acc", "encode",
                                                           "encode_best", "score_q8", "axpy_q8" };
    return op >= 0 && op < KERNEL_BENCH_OPS ? names[op] : "?";
}

static void data_free(bench_data *b)
{
    kvant_free(b->rows);
    kvant_free(b->order);
    kvant_free(b->q);
    kvant_free(b->s);
    kvant_free(b->acc);
    kvant_free(b->x);
    kvant_free(b->q8);
}

/* A page of rows. */
static void encode_rows(const kernel_bench_case *c, const bench_data *b, uint8_t *rows, int encoder)
{
    const kvant_format_kernels *k = c->kernels;

    if (k->encode_page)
        k->encode_page(c->param, b->x, (size_t)c->d, rows, c->d, encoder);
    else if (k->encode_rows)
        k->encode_rows(c->param, b->x, (size_t)c->d, PAGE, rows, b->row_bytes, c->d, encoder);
    for (int i = 0; i < PAGE && !k->encode_page && !k->encode_rows; i++)
        k->encode(c->param, b->x + (size_t)i * (size_t)c->d, rows + (size_t)i * b->row_bytes, c->d, encoder);
}

/* One page is encoded and copied into all: what a kernel costs does not depend on the codes. */
static void data_fill(const kernel_bench_case *c, bench_data *b)
{
    rng g = { 1 };
    size_t page_bytes = (size_t)PAGE * b->row_bytes;

    for (int i = 0; i < SAMPLE_ROWS * c->d; i++)
        b->x[i] = rng_normal(&g);
    for (int i = 0; i < c->r * (b->sdim > PAGE ? b->sdim : PAGE); i++)
        b->q[i] = rng_normal(&g);
    encode_rows(c, b, b->rows, KVANT_ENCODER_UPSTREAM);
    for (int p = 0; p < b->pages; p++) {
        int j = (int)rng_below(&g, (uint32_t)(p + 1));
        if (p)
            memcpy(b->rows + (size_t)p * page_bytes, b->rows, page_bytes);
        b->order[p] = b->order[j];
        b->order[j] = p;
    }
    for (int j = 0; c->kernels->prep_q8 && j < c->r; j++)
        c->kernels->prep_q8(c->param, b->q + (size_t)j * (size_t)b->sdim, b->q8 + (size_t)j * b->q8_bytes, c->d);
    memset(b->acc, 0, (size_t)c->r * (size_t)b->sdim * sizeof *b->acc);
}

static int data_open(const kernel_bench_case *c, bench_data *b, kvant_diag *diag)
{
    KVANT_TRY(kvant_format_check(c->format, c->d, diag));
    if (c->r < 1 || c->r > 1024 || c->tokens < PAGE || c->d % c->format->group)
        return kvant_fail(diag, KVANT_EINVAL, "bench: r=%d tokens=%d d=%d, want r <= 1024, tokens >= 64, whole groups",
                          c->r, c->tokens, c->d);
    b->row_bytes = kvant_format_row_bytes(c->format, c->d);
    b->sdim = kvant_format_sdim(c->format, c->d);
    b->pages = c->tokens / PAGE;
    size_t bytes, wide = (size_t)(b->sdim > PAGE ? b->sdim : PAGE);
    if (!size_mul((size_t)b->pages * PAGE, b->row_bytes, &bytes))
        return kvant_fail(diag, KVANT_EINVAL, "bench: %d tokens are too many", c->tokens);
    b->rows = kvant_alloc(bytes);
    b->order = kvant_calloc((size_t)b->pages, sizeof *b->order);
    b->q = kvant_calloc((size_t)c->r * wide, sizeof(float));
    b->s = kvant_calloc((size_t)(c->r < PAGE ? PAGE : c->r) * wide, sizeof(float));
    b->acc = kvant_calloc((size_t)c->r * wide, sizeof(float));
    b->x = kvant_calloc((size_t)SAMPLE_ROWS * (size_t)c->d, sizeof(float));
    b->q8_bytes = kvant_format_q8_bytes(c->format, c->d);
    b->q8 = kvant_calloc((size_t)c->r, b->q8_bytes);
    if (!b->q8 || !b->rows || !b->order || !b->q || !b->s || !b->acc || !b->x)
        return kvant_fail(diag, KVANT_ENOMEM, "bench: no memory for %zu bytes of rows", bytes);
    data_fill(c, b);
    return KVANT_OK;
}

/* One page through the kernel. */
static void run_page(const kernel_bench_case *c, const bench_data *b, int page)
{
    const kvant_format_kernels *k = c->kernels;
    uint8_t *rows = b->rows + (size_t)page * PAGE * b->row_bytes;

    switch (c->op) {
    case KERNEL_BENCH_SCORE_Q8:
        if (k->score_q8) {
            k->score_q8(c->param, b->q8, b->q8_bytes, c->r, rows, b->row_bytes, PAGE, b->s, PAGE, c->d);
            break;
        }
        if (k->score_page_q8) {
            k->score_page_q8(c->param, b->q8, b->q8_bytes, c->r, rows, 0, PAGE, b->s, PAGE, c->d);
            break;
        }
        /* fall through */
    case KERNEL_BENCH_SCORE:
        if (k->score_page) {
            k->score_page(c->param, b->q, (size_t)b->sdim, c->r, rows, 0, PAGE, b->s, PAGE, c->d);
            break;
        }
        k->score(c->param, b->q, (size_t)b->sdim, c->r, rows, b->row_bytes, PAGE, b->s, PAGE, c->d);
        break;
    case KERNEL_BENCH_AXPY_Q8:
        if (k->axpy_q8) {
            k->axpy_q8(c->param, b->q, PAGE, c->r, rows, b->row_bytes, PAGE, b->acc, (size_t)b->sdim, c->d);
            break;
        }
        if (k->axpy_page_q8) {
            k->axpy_page_q8(c->param, b->q, PAGE, c->r, rows, 0, PAGE, b->acc, (size_t)b->sdim, c->d);
            break;
        }
        /* fall through */
    case KERNEL_BENCH_AXPY:
        if (k->axpy_page) {
            k->axpy_page(c->param, b->q, PAGE, c->r, rows, 0, PAGE, b->acc, (size_t)b->sdim, c->d);
            break;
        }
        k->axpy(c->param, b->q, PAGE, c->r, rows, b->row_bytes, PAGE, b->acc, (size_t)b->sdim, c->d);
        break;
    case KERNEL_BENCH_DECODE:
        if (k->decode_page)
            k->decode_page(c->param, rows, 0, PAGE, b->s, c->d);
        else
            k->decode_acc(c->param, rows, b->row_bytes, PAGE, b->s, c->d);
        break;
    default:
        encode_rows(c, b, rows, c->op == KERNEL_BENCH_ENCODE ? KVANT_ENCODER_UPSTREAM : KVANT_ENCODER_BEST);
    }
}

/* ns per row of one round: whole passes over the pages until the time is up. */
static double run_round(const kernel_bench_case *c, const bench_data *b, int min_us)
{
    int64_t start = clock_ns(), end = start;
    int64_t pages = 0;

    do {
        for (int p = 0; p < b->pages; p++)
            run_page(c, b, b->order[p]);
        pages += b->pages;
        end = clock_ns();
    } while (end - start < (int64_t)min_us * 1000);
    return (double)(end - start) / ((double)pages * PAGE);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int kernel_bench_run(const kernel_bench_case *cases, int count, int rounds, int min_us, kernel_bench_result *out,
                     kvant_diag *diag)
{
    int rc = KVANT_OK;
    bench_data *data = kvant_calloc((size_t)count, sizeof *data);
    double *ns = kvant_calloc((size_t)count * MAX_ROUNDS, sizeof *ns);

    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    if (!data || !ns) {
        rc = kvant_fail(diag, KVANT_ENOMEM, "bench: no memory for %d cases", count);
        goto done;
    }
    for (int i = 0; i < count; i++)
        if ((rc = data_open(&cases[i], &data[i], diag)) != KVANT_OK)
            goto done;
    for (int r = -1; r < rounds; r++)      /* round -1 warms up */
        for (int i = 0; i < count; i++)
            ns[i * MAX_ROUNDS + (r < 0 ? 0 : r)] = run_round(&cases[i], &data[i], r < 0 ? 0 : min_us);
    for (int i = 0; i < count; i++) {
        qsort(ns + i * MAX_ROUNDS, (size_t)rounds, sizeof *ns, by_value);
        out[i].min_ns = ns[i * MAX_ROUNDS];
        out[i].median_ns = ns[i * MAX_ROUNDS + rounds / 2];
        out[i].row_bytes = (double)data[i].row_bytes;
    }
done:
    for (int i = 0; data && i < count; i++)
        data_free(&data[i]);
    kvant_free(data);
    kvant_free(ns);
    return rc;
}

/* kernel_bench_error over PAGES pages of Gaussian rows; NaN: no memory. */
static double page_error(const kvant_format *f, const kvant_format_kernels *k, const void *param, int d, int encoder)
{
    enum { PAGES = 16 };
    const size_t n = (size_t)(PAGE * d);
    float *x = kvant_alloc(2 * n * sizeof *x), *y = x + n, z[KVANT_MAX_HEAD_DIM];
    uint8_t *page = kvant_alloc(PAGE * kvant_format_row_bytes(f, d));
    double err = x && page ? 0.0 : NAN, all = 0.0;
    rng g = { 7 };

    for (int p = 0; x && page && p < PAGES; p++) {
        for (size_t i = 0; i < n; i++)
            x[i] = rng_normal(&g);
        k->encode_page(param, x, (size_t)d, page, d, encoder);
        k->decode_page(param, page, 0, PAGE, y, d);
        for (size_t i = 0; i < n; i += (size_t)d) {
            k->finish_out(param, y + i, z, d);
            for (int j = 0; j < d; j++) {
                err += ((double)x[i + (size_t)j] - z[j]) * ((double)x[i + (size_t)j] - z[j]);
                all += (double)x[i + (size_t)j] * x[i + (size_t)j];
            }
        }
    }
    kvant_free(x);
    kvant_free(page);
    return err / all;
}

double kernel_bench_error(const kvant_format *f, const void *param, int d, int encoder)
{
    enum { ROWS = 1024 };
    const kvant_format_kernels *k = kvant_format_best(f);
    float x[KVANT_MAX_HEAD_DIM], y[KVANT_MAX_HEAD_DIM];
    uint8_t row[KVANT_MAX_HEAD_DIM * 4];
    double err = 0.0, all = 0.0;
    rng g = { 7 };

    if (k->encode_page)
        return page_error(f, k, param, d, encoder);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < d; j++)
            x[j] = rng_normal(&g);
        k->encode(param, x, row, d, encoder);
        kvant_row_decode(f, param, row, y, d);
        for (int j = 0; j < d; j++) {
            err += ((double)x[j] - y[j]) * ((double)x[j] - y[j]);
            all += (double)x[j] * x[j];
        }
    }
    return err / all;
}
