/* cli/verify_formats.h: every kernel variant of the cache formats against its reference, on this CPU.  The
 * program's own
 * version of what the test harness does in depth: enough to show that this build computes what it should here. */
#ifndef KVANT_CLI_VERIFY_FORMATS_H
#define KVANT_CLI_VERIFY_FORMATS_H

#include "kvant/format.h"

enum verify_op { VERIFY_DECODE, VERIFY_SCORE, VERIFY_AXPY, VERIFY_PREP_Q, VERIFY_FINISH, VERIFY_ENCODE, VERIFY_OPS };
const char *verify_op_name(int op);

/* One format and variant over all head sizes: the largest error as a part of its bound; above 1 (or NaN): failed. */
typedef struct verify_result {
    const kvant_format *f;
    const char *variant;
    int usable, cases;
    double worst[VERIFY_OPS];
    int ok;
} verify_result;

/* Checks variant i of f; 0 past the last variant; KVANT_ENOMEM. */
int verify_format(const kvant_format *f, int i, verify_result *out, kvant_diag *diag);

#endif
