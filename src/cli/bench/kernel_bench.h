/* kernel_bench.h: how fast one kernel of one format is: the core of `kvant bench-kernels`, and the tool for tuning.
 *
 * A case is measured as attention calls it: pages of 64 rows in a shuffled order, r query (or weight) rows at once,
 * `tokens` rows in all; encode takes rows one by one.  One thread.  The caller repeats and compares: on a shared
 * machine only ratios of interleaved runs mean anything, so kernel_bench_run measures a list of cases round by
 * round. */
#ifndef KVANT_FORMATS_KERNEL_BENCH_H
#define KVANT_FORMATS_KERNEL_BENCH_H

#include "kvant/error.h"
#include "kvant/format.h"

enum kernel_bench_op {
    KERNEL_BENCH_SCORE, KERNEL_BENCH_AXPY, KERNEL_BENCH_DECODE, KERNEL_BENCH_ENCODE, KERNEL_BENCH_ENCODE_BEST,
    KERNEL_BENCH_SCORE_Q8, KERNEL_BENCH_AXPY_Q8,      /* the plain op where a format has no integer path */
    KERNEL_BENCH_OPS
};

typedef struct kernel_bench_case {
    const kvant_format *format;
    const kvant_format_kernels *kernels;
    const void *param;                 /* the format's parameter or NULL */
    enum kernel_bench_op op;
    int r, d;                          /* query rows at once; head_dim, a multiple of the group */
    int tokens;                        /* rows in memory, at least 64 */
} kernel_bench_case;

typedef struct kernel_bench_result {
    double min_ns, median_ns;          /* per row (of all r query rows together) */
    double row_bytes;                  /* bytes of one row: min_ns and this give GB/s */
} kernel_bench_result;

/* "score", "axpy", ... */
const char *kernel_bench_op_name(enum kernel_bench_op op);

/* Squared error of encoded and decoded Gaussian rows over their squares, 1024 rows of d values (d a multiple of the
 * group): what a format loses, beside its bits. */
double kernel_bench_error(const kvant_format *f, const void *param, int d, int encoder);

/* Measures every case `rounds` times (at most 64), interleaved, each round at least `min_us` microseconds long.
 * out[count] is written on success.  Errors: KVANT_EINVAL for a case that the format cannot hold, KVANT_ENOMEM. */
int kernel_bench_run(const kernel_bench_case *cases, int count, int rounds, int min_us, kernel_bench_result *out,
                     kvant_diag *diag);

#endif
