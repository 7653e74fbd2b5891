/* engine/place/profile.h: where the time of a step goes: microseconds by op, on the clock of the device that
 * runs it.
 *
 * While a profile is on, every list is recorded anew with a time stamp behind each launch, and waited for: a launch
 * then begins when the one before has ended, so on one device the sum is a little more than a step
 * without a profile.  Rows on their way between devices are in no line: on several the sum says nothing about a step.
 * One profile an engine; the engine's own thread.
 */
#ifndef KVANT_ENGINE_PROFILE_H
#define KVANT_ENGINE_PROFILE_H

#include "engine/engine.h"

enum { PROFILE_NAME = 160, PROFILE_LINES = 128 };

/* Launches of the ops of one name on weights of one shape. */
typedef struct profile_line {
    char name[PROFILE_NAME];   /* "norm_rms + matmul 4096 x 6144 Q4_K"; on several devices with the device before it */
    double us;                 /* of all launches */
    double bytes;              /* of the weights that these read whole; 0: none, or some of their experts alone */
    int64_t launches;
} profile_line;

struct engine_profile {
    profile_line lines[PROFILE_LINES];
    int n_lines;
    int64_t passes;            /* programs that ran */
    double *us;                /* [max_ops] */
};

/* From now on steps are measured.  KVANT_EUNSUPPORTED names a device that has no clock for single ops. */
int engine_profile_begin(kvant_engine *e, kvant_diag *diag);
/* The lines until now, or NULL: no profile is on.  Theirs until engine_profile_end. */
const engine_profile *engine_profile_of(const kvant_engine *e);
/* Nothing where none is on. */
void engine_profile_end(kvant_engine *e);
/* A device's share of a program: its submit, measured where a profile is on. */
int engine_submit_to(kvant_engine *e, kvant_device *dev, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag);

#endif
