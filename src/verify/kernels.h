/* verify/kernels.h: the contract of the cache formats' kernels: every (format, variant, op) against the reference.
 *
 * Formats and variants are found through kvant_format_at and kvant_format_variant: a new kernel is checked without a
 * line here.  Bounds, e = 2^-24 (spec architecture 5):
 *   decode_acc    EXACT  equal values, also for random bytes
 *   score         DOT    (sdim/4 + 16) e sum|q k|, sums in double over the reference's decoded rows: the roundings of a
 *                        sum of sdim terms in 4 lanes or more
 *   axpy          DOT    (n + 2) e (|acc| + sum|w v|): one rounding per row
 *   prep_q finish DOT    (sdim/4 + 16) e sum|x| max|param|
 *   encode        CODE   upstream: equal bytes, or a row that reconstructs as well as the reference's (a code at a
 *                        decision boundary); these are counted, at most 2 % of the rows.  best: a search may settle in
 *                        another valley: at most half above the reference's error in a row, 0.2 % in the mean (beside
 *                        1e-7 of a row's energy, where f32 sums end)
 *   score_q8      QDOT   mean squared error: 2.5 % of the format's own (7-bit centroids) and 6e-5 (an 8-bit query) of
 *                        |q|^2|k|^2/sdim, three times that over less than 120 samples
 *   axpy_q8       QDOT   1.5 % of the format's own error of sum (w v)^2, three times that over few samples
 *                        (score_q8 of page scope: of |k|^2 plus the page's mean energy)
 * The bit rule, per variant: a result does not depend on r, n, or on how rows are split over calls; score and axpy
 * equal the f32 kernels of the same variant on decoded rows.  Everything: the same bits twice, inputs and gaps
 * untouched, rows at odd addresses, NaN (0xFF) around all buffers (no guard under AddressSanitizer, which sees
 * over-reads itself).
 * Any thread; one call at a time. */
#ifndef KVANT_VERIFY_KERNELS_H
#define KVANT_VERIFY_KERNELS_H

#include "kvant/format.h"
#include "verify/verify.h"

enum verify_kernel_op {
    VERIFY_DECODE, VERIFY_SCORE, VERIFY_AXPY, VERIFY_PREP_Q, VERIFY_FINISH, VERIFY_ENCODE, VERIFY_SCORE_Q8,
    VERIFY_AXPY_Q8, VERIFY_KERNEL_OPS
};
/* "decode_acc", ... and the class "EXACT", ...; op in range. */
const char *verify_kernel_name(int op);
const char *verify_kernel_class(int op);

typedef struct verify_tally {
    int cases, failed;
    double worst;               /* largest error as a part of its bound */
    long rows;                  /* encode: rows compared, of each encoder */
    long boundary, searched;    /* upstream: rows accepted with a code at a decision boundary; best: found elsewhere */
} verify_tally;

/* One format and variant.  usable 0: this CPU cannot run it, nothing was checked. */
typedef struct verify_kernel {
    const kvant_format *f;
    const char *variant;
    int usable;
    verify_tally op[VERIFY_KERNEL_OPS];
} verify_kernel;

/* Selects the kernels to run; a zeroed struct is everything. */
typedef struct verify_kernel_filter {
    const char *op;             /* NULL: all */
    int d, r, n;                /* 0: all */
    int quick;                  /* fewer head sizes, rows and queries */
    int few_shapes;             /* every head size, fewer rows and queries */
} verify_kernel_filter;

/* Checks variant i of f (0: the reference against itself); 0 past the last variant, 1, or KVANT_ENOMEM.  Failures as
 * texts in `texts`, each with the command that repeats it. */
int verify_kernels(const kvant_format *f, int i, const verify_kernel_filter *filter, verify_kernel *out,
                   verify_report *texts, kvant_diag *diag);

#endif
