/* cli/bench/bench_serve.h: the numbers of bench-serve, and what is made of them.  Times in milliseconds but wall_s. */
#ifndef KVANT_CLI_BENCH_SERVE_H
#define KVANT_CLI_BENCH_SERVE_H

#include "cli/common.h"

enum { BS_MAX_TURNS = 64 };

typedef struct bs_run {
    int concurrency, requests, errors, turns;
    double rate;
    int64_t gen_total, prompt_total, cached_total;
    double agg_tps, decode_agg_tps, perseq_tps, prefill_tps;
    double ttft_mean, ttft_p50, ttft_p99, ttft_max, itl_p50, itl_p99, wall_s;
    double ttft_turn[BS_MAX_TURNS];
} bs_run;

typedef struct bs_report {
    const opts *o;
    const char *model;
    bs_run *runs; /* [rows][reps] */
    int rows, reps;
    bs_run *base; /* runs of --base */
    int n_base;
} bs_report;

int bs_read_base(bs_report *r, kvant_diag *diag);
/* One line of the table, as soon as its runs are done. */
void bs_print_row(const bs_report *r, int row);
/* Everything that comes at the end: JSON, --save, --plot, comparison. */
int bs_finish(const bs_report *r, kvant_diag *diag);

#endif
