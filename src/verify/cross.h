/* verify/cross.h: checks between ways that must agree, on this CPU: the published self-test numbers, score against
 * decode-then-dot, the fused attentions against two passes, the pre-Hadamard path against the plain one, the int8 query
 * against the f32 one.  Any thread; one call at a time. */
#ifndef KVANT_VERIFY_CROSS_H
#define KVANT_VERIFY_CROSS_H

#include "verify/verify.h"

typedef struct verify_cross {
    const char *name, *reason;      /* what agrees with what; why the limit is what it is */
    int cases, failed;
    double worst, limit;            /* limit 1: errors are parts of a bound that is computed per value */
} verify_cross;

enum { VERIFY_CROSS_CHECKS = 5 };

/* Fills out[VERIFY_CROSS_CHECKS]; failures as texts.  KVANT_OK also when checks fail; KVANT_ENOMEM. */
int verify_cross_checks(verify_cross *out, verify_report *texts, kvant_diag *diag);

#endif
