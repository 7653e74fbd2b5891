/* cli/bench/bench_spec.h: decoding with drafts of which a stated part is accepted: what a step of 1 + k rows costs,
 * where weights or tokens are random and a drafter would guess nothing. */
#ifndef KVANT_CLI_BENCH_SPEC_H
#define KVANT_CLI_BENCH_SPEC_H

#include "cli/options/options.h"
#include "kvant/engine.h"

typedef struct bench_spec {
    int k;         /* drafts of a step; 0: none */
    int mtp;       /* the model's own block guesses them, which takes its time; 0: they are there */
    double accept; /* chance of each, once those before it are accepted */
} bench_spec;

/* --spec and --spec-accept. */
int bench_spec_read(const opts *o, bench_spec *out, kvant_diag *diag);
/* Each of n_seqs sequences goes on by n tokens of ids[n]. */
int bench_spec_decode(kvant_engine *e, const bench_spec *b, const int *seqs, int n_seqs, const int32_t *ids, int n,
                      kvant_diag *diag);

#endif
