/* tests/support/place_rig.h: an engine whose layers are placed somewhere, and everything that a run of it gives:
 * prompts, steps of several sequences, a fork, hidden states. */
#ifndef KVANT_TESTS_PLACE_RIG_H
#define KVANT_TESTS_PLACE_RIG_H

#include "support/check.h"
#include "support/store_rig.h"

enum { PLACE_PROMPT = 100, PLACE_OTHER = 70, PLACE_STEPS = 4, PLACE_MOST = 1 << 20 };

/* Everything that a run gives, in order. */
typedef struct place_record {
    float x[PLACE_MOST];
    size_t n;
} place_record;

kvant_model *place_open(const char *path);
/* One thread, 256 tokens, 4 sequences, passes of 64 tokens. */
kvant_engine_params place_params(const char *device, const char *split, const char *format);
/* Two prompts, the second beside a token of the first; steps of both; a fork of the first; hidden states. */
void place_steps(kvant_engine *e, place_record *r);
/* All models of a folder: check() of each returns how often it compared, on average at least `each` times. */
void place_folder(const char *folder, int (*check)(const char *path), int each, const char *what);
/* An engine of these parameters, its steps, and no engine again. */
int place_run(kvant_model *m, const kvant_engine_params *p, place_record *r, kvant_diag *diag);
/* Sessions on the CPU and on `placed` ("cpu,cpu": layers, "cpu:1+": experts apart, "cpu,cpu=": parts of every layer)
 * give the same: a request, a hit, a restored snapshot of the other, a request that was preempted. */
void place_sessions(const char *path, const char *placed);

#endif
