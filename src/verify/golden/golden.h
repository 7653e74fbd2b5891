/* golden.h: runs the references against golden vectors: every *.json of a folder in the form of
 * docs/formats/golden.md, which includes fixtures of the public Metal and Vulkan kernels (golden_fixture.c).
 * `kvant verify --golden DIR` and tests/check_formats.c call the same function.
 *
 * Bytes must be equal; accepted and counted as `ties`: an fp16 norm rounded half up at an exact tie,
 * and for qjl1_256 a bf16 norm one ulp away or a sign of |sketch| <= 1e-6 |x|.  Decodes in acc space: equal values;
 * real-space decodes, sketches and scores are held to (sdim/4 + 16) * 2^-24 * |a| * |b| (class DOT, with the Cauchy
 * bound of the sum so that it also covers the rotations); fused cases to 1e-5, or 1e-4 where some |score| is above 50.
 * Fields of other projects (enc_fork*, *_polarquantcpu, enc_qjlcpu, enc_thetom*) are not compared. */
#ifndef KVANT_FORMATS_GOLDEN_H
#define KVANT_FORMATS_GOLDEN_H

#include "base/error.h"
#include "devices/device.h"

enum { GOLDEN_MAX_FILES = 64, GOLDEN_MAX_FAILURES = 24, GOLDEN_TEXT = 200 };

typedef struct golden_count {
    int passed, failed;
    int skipped;     /* files of no kvant format, fields that cannot be compared */
    int informative; /* vectors with NaN or Inf input: shown by their maker, not compared */
    int ties;        /* passed by an accepted tie, see above */
} golden_count;

typedef struct golden_file {
    char name[80];
    char format[24]; /* "" when the file was skipped as a whole */
    golden_count count;
} golden_file;

typedef struct golden_report {
    golden_count total;
    int n_files;
    golden_file files[GOLDEN_MAX_FILES];
    int n_failures; /* kept texts; total.failed counts all */
    char failures[GOLDEN_MAX_FAILURES][GOLDEN_TEXT];
} golden_report;

/* dev: runs the fixtures, by attn_score and attn; NULL: no device does.  The references and the variants of this CPU
 * run all files unless dev is another device; then files that are no fixtures are skipped.
 * KVANT_OK when every file was read, failures or not; KVANT_ENOENT, KVANT_EIO, KVANT_EFORMAT (a file that is no JSON),
 * KVANT_ENOMEM, KVANT_ENOSPC (more than GOLDEN_MAX_FILES). */
int golden_run_dir(const char *dir, kvant_device *dev, golden_report *out, kvant_diag *diag);

/* The six self-test scores of the public reference, from its fixture generator: turbo3, turbo4,
 * turbo3_tcq, qjl, polar, polar with residual.
 * Published: -2.501480 -23.721790 -4.822659 3.696591 -1.994053 -1.438744. */
enum { GOLDEN_SELFTEST = 6 };
int golden_selftest(float score[GOLDEN_SELFTEST], kvant_diag *diag);

#endif
