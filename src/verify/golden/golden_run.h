/* golden_run.h: what the parts of the golden runner share.  Internal to src/formats/golden*.c. */
#ifndef KVANT_FORMATS_GOLDEN_RUN_H
#define KVANT_FORMATS_GOLDEN_RUN_H

#include "base/mem.h"
#include "formats/format.h"
#include "verify/golden/golden.h"
#include "base/text/json.h"

typedef struct golden_run {
    golden_report *report;
    golden_file *file;
    arena memory;              /* decoded hex; as large as needed for one file */
    const float *projection;   /* f32[128][256] or NULL */
} golden_run;

/* Counts one comparison; a failure keeps "file: text". */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void golden_check(golden_run *r, int ok, const char *fmt, ...);

/* The bytes of a hex field in the arena, *n their count; NULL if absent, not hex, or the arena is full. */
void *golden_bytes(golden_run *r, gjson v, size_t *n);
/* As golden_bytes, for f32 fields; *n counts floats. */
float *golden_floats(golden_run *r, gjson v, size_t *n);

/* Largest excess of |a - b| over tol; a NaN or Inf in b wants a non-finite a.  Returns the index, or -1 if all hold. */
int golden_compare(const float *a, const float *b, size_t n, double tol);
double golden_norm(const float *x, size_t n);

void golden_rows(golden_run *r, gjson root, const kvant_format *f);
void golden_pages(golden_run *r, gjson root, const kvant_format *f);
/* A file in the form of golden_fixture.c; 0 when it is none (it names no "kernel"). */
int golden_fixture(golden_run *r, gjson root);
void golden_rotation(golden_run *r, gjson root);
void golden_fused(golden_run *r, gjson root, const kvant_format *v_format);

/* The fixture generators (docs/formats/golden.md). */
void golden_projection_marsaglia(uint64_t seed, float *out);

#endif
