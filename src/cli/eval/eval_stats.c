/* eval_stats.c: sums, quantiles and the store of base rows (eval.h).  Sums run in double; each exp is one of f32, whose
 * error (2^-24 relative) is far below what a f32 logit carries. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "cli/eval/eval.h"

double eval_logsumexp(const float *x, int n)
{
    float max = x[0];
    double sum = 0;

    for (int i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++)
        sum += (double)expf(x[i] - max);
    return (double)max + log(sum);
}

int eval_argmax(const float *x, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

eval_mean eval_mean_of(const double *x, int64_t n)
{
    eval_mean m = { 0, 0 };
    double var = 0;

    for (int64_t i = 0; i < n; i++)
        m.mean += x[i];
    m.mean = n ? m.mean / (double)n : NAN;
    for (int64_t i = 0; i < n; i++)
        var += (x[i] - m.mean) * (x[i] - m.mean);
    if (n > 1)
        m.err = sqrt(var / (double)n / (double)(n - 1));
    return m;
}

double eval_cov_of_means(const double *a, const double *b, int64_t n)
{
    double ma = eval_mean_of(a, n).mean, mb = eval_mean_of(b, n).mean, cov = 0;

    for (int64_t i = 0; i < n; i++)
        cov += (a[i] - ma) * (b[i] - mb);
    return n > 1 ? cov / (double)n / (double)(n - 1) : 0;
}

static int less_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void eval_sort(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, less_first);
}

double eval_quantile(const double *x, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t i = (int64_t)at;

    if (n < 1)
        return NAN;
    if (i >= n - 1)
        return x[n - 1];
    return x[i] + (x[i + 1] - x[i]) * (at - (double)i);
}

/* ---- store ---- */

static int open_temp(kvant_diag *diag)
{
    const char *dir = getenv("TMPDIR");
    char path[512];

    snprintf(path, sizeof path, "%s/kvant-base-XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0)
        return kvant_fail(diag, KVANT_EIO, "%.200s: %s", path, strerror(errno));
    unlink(path);
    return fd;
}

int eval_store_open(eval_store *s, int64_t rows, int width, kvant_diag *diag)
{
    int64_t memory = device_memory(NULL), bytes = rows * width * 4;

    *s = (eval_store){ NULL, -1, rows, width };
    if (memory < 0 || bytes <= memory / 4)
        s->mem = kvant_alloc((size_t)bytes);
    if (s->mem)
        return KVANT_OK;
    s->fd = open_temp(diag);
    return s->fd < 0 ? s->fd : KVANT_OK;
}

int eval_store_put(eval_store *s, int64_t row, const float *x, kvant_diag *diag)
{
    size_t bytes = (size_t)s->width * 4;

    if (s->mem) {
        memcpy(s->mem + row * s->width, x, bytes);
        return KVANT_OK;
    }
    if (pwrite(s->fd, x, bytes, row * (off_t)bytes) != (ssize_t)bytes)
        return kvant_fail(diag, KVANT_EIO,
                          "temporary file for %lld rows of base logits: %s; set TMPDIR to a larger disk",
                          (long long)s->rows, strerror(errno));
    return KVANT_OK;
}

int eval_store_get(const eval_store *s, int64_t row, float *x, kvant_diag *diag)
{
    size_t bytes = (size_t)s->width * 4;

    if (s->mem) {
        memcpy(x, s->mem + row * s->width, bytes);
        return KVANT_OK;
    }
    if (pread(s->fd, x, bytes, row * (off_t)bytes) != (ssize_t)bytes)
        return kvant_fail(diag, KVANT_EIO, "temporary file of base logits: %s", strerror(errno));
    return KVANT_OK;
}

void eval_store_close(eval_store *s)
{
    kvant_free(s->mem);
    if (s->fd >= 0)
        close(s->fd);
    *s = (eval_store){ NULL, -1, 0, 0 };
}
