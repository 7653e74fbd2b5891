/* verify/verify.h: the op harness: every op of kvant/ops.def, executed on a device and compared with its scalar
 * reference.
 *
 * It knows no device: cases are built in host memory, uploaded, submitted through the vtable of devices/device.h and
 * read back.  An op's card names the generator of its cases; a new device or kernel needs nothing here.
 * A case holds to these: outputs within the op's tolerance class, every other byte of every buffer
 * as the reference left it (inputs unchanged, NaN guards around all buffers and in all gaps), n = 0 writes nothing, and
 * the same bits when the same list is submitted again, recorded and replayed under a key (a device that computes on the
 * calling thread, and so records nothing: submitted twice in all).
 *
 * The report is the capability report of a device (architecture 6): one entry per op, shape class and subject.
 * Owner thread of the device.  No printing: report_text and report_json are in report.c. */
#ifndef KVANT_VERIFY_VERIFY_H
#define KVANT_VERIFY_VERIFY_H

#include "base/text/jsonw.h"
#include "devices/device.h"

enum verify_state {
    VERIFY_UNSUPPORTED,     /* the device says no: see reason */
    VERIFY_SUPPORTED,       /* the device says yes; not executed (not selected) */
    VERIFY_VERIFIED,        /* executed here and equal to the reference within the class */
    VERIFY_FAILED,
};

/* One op in one shape class ("decode", "row", "unaligned") for one subject: format, pair "K:V", weight type, or "". */
typedef struct verify_entry {
    int op, state;
    char shape[24], subject[32];
    int cases, failed;
    double worst, limit;    /* largest error in the units of the class, and what is allowed for it */
    long boundary;          /* CODE: rows accepted with a code at a decision boundary */
    char reason[128];       /* unsupported: the device's words */
} verify_entry;

enum { VERIFY_MAX_FAILURES = 40, VERIFY_TEXT = 320 };

typedef struct verify_report {
    char device[256];       /* the device's own line: hardware, driver, features */
    verify_entry *entries;
    int n, cap, passed, failed;
    int n_failures;         /* texts kept; `failed` counts all */
    char failures[VERIFY_MAX_FAILURES][VERIFY_TEXT];
} verify_report;

/* Selects the cases to run.  Lists are names separated by commas; NULL or "": everything. */
typedef struct verify_options {
    const char *ops;        /* of ops.def */
    const char *formats;    /* cache formats and weight types; of pairs: either side */
    const char *pairs;      /* "all", "ci" (the diagonal, each format beside f16, the fused pairs), or K:V,... */
    int quick;              /* fewer sizes, for slow tools and slow machines */
} verify_options;

/* KVANT_EINVAL for an unknown name, as verify_device. */
int verify_options_check(const verify_options *o, kvant_diag *diag);

/* Runs the cases on an open device.  KVANT_OK also when cases fail (report->failed); KVANT_EINVAL for an unknown name
 * in a list, KVANT_ENOMEM, or the device's error when it can no longer be used.  report must be zeroed; free it either
 * way. */
int verify_device(kvant_device *dev, const verify_options *o, verify_report *report, kvant_diag *diag);
/* As verify_device, with more devices of this name beside dev, jobs in all, each opened and used by a thread of its
 * own.  Cases are handed out one by one; the report is that of one device. */
int verify_jobs(kvant_device *dev, const char *name, int jobs, const verify_options *o, verify_report *report,
                kvant_diag *diag);
void verify_report_free(verify_report *r);

const char *verify_state_name(int state);
/* Entries of one op and shape as one line: cases and failures added, the worst error, `subject` the number of subjects.
 * *out is kvant_free'd by the caller; returns how many, 0 without memory. */
int verify_summary(const verify_report *r, verify_entry **out);
/* Returns 1 if a comma list (NULL or "": all) has the name. */
int verify_listed(const char *list, const char *name);
/* The device's own line, the library and the day as members of the JSON object that is open in w. */
void verify_head_json(const char *device, jsonw *w);
/* The entries and the device as members of the JSON object that is open in w. */
void verify_report_json(const verify_report *r, jsonw *w);

#endif
