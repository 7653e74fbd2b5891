/* tests/support/op_run.h: runs one op kernel as the CPU device does, with scratch poisoned by NaN and guarded. */
#ifndef KVANT_TESTS_OP_RUN_H
#define KVANT_TESTS_OP_RUN_H

#include "kvant/ops.h"

/* Runs all stages with `parts` parts one after another, the parts of odd stages in descending order.  CHECKs
 * kvant_op_check and the guards around the scratch. */
void op_run(int id, const kvant_cpu_kernel *kernel, const void *args, int parts);
/* The same on a pool of `threads` threads, with real barriers. */
void op_run_threads(int id, const kvant_cpu_kernel *kernel, const void *args, int threads);

#endif
