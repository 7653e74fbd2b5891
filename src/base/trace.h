/* base/trace.h: Chrome trace events (chrome://tracing JSON).  Off unless trace_open was called; trace_span costs one
 * branch then.  Any thread. */
#ifndef KVANT_BASE_TRACE_H
#define KVANT_BASE_TRACE_H

#include <stdint.h>
#include "base/error.h"

int trace_open(const char *path, kvant_diag *diag);
int trace_on(void);
/* name must outlive the trace (a literal); times from clock_ns. */
void trace_span(const char *name, int tid, int64_t t0_ns, int64_t t1_ns);
/* A sample of n counters drawn as one stacked graph; names are literals. */
void trace_counters(const char *name, int64_t t_ns, const char *const *series, const int *values, int n);
int trace_close(kvant_diag *diag);

#endif
