/* cli/bench/bench.h: results of `kvant bench` and their printing in llama-bench's schema. */
#ifndef KVANT_CLI_BENCH_H
#define KVANT_CLI_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include "base/error.h"
#include "cli/bench/bench_spec.h"
#include "kvant/engine.h"

/* Routed experts that the CPU read while it generated, apart from their layers, and the rate at which as many threads
 * read memory; 0: none, or not measured. */
typedef struct bench_reads {
    int64_t bytes, ns;
    double memory_gbs;
} bench_reads;

/* One test: n_prompt tokens as a prompt, then n_gen one by one, at a depth; measured reps times. */
typedef struct bench_result {
    const char *model_path;
    const kvant_model_info *info;
    const kvant_engine_params *params; /* resolved */
    const char *backend;               /* "CPU" */
    int n_batch, n_prompt, n_gen, n_depth;
    int n_parallel; /* sequences, each with these tokens */
    int64_t cache_bytes; /* of the sequence at the end of the test */
    int64_t *samples_ns;
    int n_samples;
    bench_spec spec; /* how it generated */
    bench_reads reads; /* of the measured samples */
    char test_time[32]; /* ISO 8601, UTC, when the test began */
} bench_result;

/* Means and standard deviations (n-1) of the samples, in ns and in tokens per second. */
typedef struct bench_stats {
    double avg_ns, stddev_ns, avg_ts, stddev_ts;
} bench_stats;
bench_stats bench_stats_of(const bench_result *r);

/* A printer: begin, one call per result, end.  Kinds: md json jsonl; "none" prints nothing. */
typedef struct bench_printer {
    FILE *f;
    const char *kind;
    int n;
    int again;                         /* md: something stands behind the last row, so the head comes once more */
    int show_threads, show_batch, show_ubatch, show_types, show_tail, show_reads; /* md columns */
    double memory_gbs; /* of the reads that were shown */
    int read_threads;
} bench_printer;
void bench_begin(bench_printer *p);
int bench_print(bench_printer *p, const bench_result *r, kvant_diag *diag);
void bench_end(bench_printer *p);
/* "tg64 @ d8192": the test, as the md table names it. */
void bench_test_name(const bench_result *r, char *buf, size_t cap);
/* The lines of a profile by time, the longest first, each for one pass; `what` names the test. */
struct engine_profile;
void bench_profile_print(FILE *f, const struct engine_profile *p, const char *what);

#endif
