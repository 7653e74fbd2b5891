/* bench_attn.h: times attention over pages on one GPU, exported by libkvant-cuda.so as kvant_cuda_bench_attn.
 *
 * One decode step of `seqs` sequences with `len` cached tokens (the last page in the exact tail), random rows, a
 * shuffled block table, recorded as a graph; 256 MiB are read before every launch.  That step on the general kernel
 * over row-order pages gives `nmse`. */
#ifndef KVANT_CUDA_BENCH_ATTN_H
#define KVANT_CUDA_BENCH_ATTN_H

#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvant_cuda_attn_case {
    const kvant_format *k, *v;
    int seqs, h, h_kv, d, len, tail_pages;
    int new_tokens; /* 1: decode; more: prompt rows at the end of the context */
    int runs;       /* timed launches */
    int check;      /* compare with the general kernel */
    int distinct;   /* pages that exist, the table repeats them; 0: one for each entry of the table */
    int window, sinks; /* 0: none; pages that no query's window has hold no number */
    float softcap;
} kvant_cuda_attn_case;

typedef struct kvant_cuda_attn_time {
    double median_s, least_s;
    double bytes; /* of rows read: compressed pages and the tail, K and V */
    double nmse;  /* against the general kernel; -1: not compared */
    int fast;     /* not the general kernel */
} kvant_cuda_attn_time;

typedef int (*kvant_cuda_bench_attn_fn)(kvant_device *dev, const kvant_cuda_attn_case *c, kvant_cuda_attn_time *out,
                                        kvant_diag *diag);
int kvant_cuda_bench_attn(kvant_device *dev, const kvant_cuda_attn_case *c, kvant_cuda_attn_time *out,
                          kvant_diag *diag);
/* Bytes per second of a device copy (read + written) and of a read, on `bytes` bytes. */
typedef int (*kvant_cuda_bench_copy_fn)(kvant_device *dev, size_t bytes, double *copy, double *read, kvant_diag *diag);
int kvant_cuda_bench_copy(kvant_device *dev, size_t bytes, double *copy, double *read, kvant_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
