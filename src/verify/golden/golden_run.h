/* golden_run.h: what the parts of the golden runner share.  Internal to src/formats/golden*.c. */
#ifndef KVANT_FORMATS_GOLDEN_RUN_H
#define KVANT_FORMATS_GOLDEN_RUN_H

#include "base/mem.h"
#include "devices/device.h"
#include "formats/format.h"
#include "verify/golden/golden.h"
#include "base/text/json.h"

typedef struct golden_run {
    golden_report *report;
    golden_file *file;
    arena memory;              /* decoded hex; as large as needed for one file */
    const float *projection;   /* f32[128][256] or NULL */
    kvant_device *dev;         /* runs the fixtures; NULL: none does */
    int host;                  /* the reference and the variants of this CPU run them, and all other files */
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
/* One of the fused kernels, whose fixtures have `cases`; 0: another kernel. */
int golden_fixture_fused(golden_run *r, gjson root, const char *kernel);

/* The numbers of a decimal array in the arena, *n their count; NULL: absent, or the arena is full.  Bytes: 0 to 255. */
float *golden_numbers(golden_run *r, gjson v, size_t *n);
uint8_t *golden_decimal_bytes(golden_run *r, gjson v, size_t *n);
/* A count from 1 to GOLDEN_MAX_ROWS, else `absent`. */
enum { GOLDEN_MAX_ROWS = 4096 };
int golden_number_of(gjson root, const char *key, int absent);

/* A fixture's query and rows on a device.  Scores (v NULL): out f32[heads][n]; attention of the first `visible` rows:
 * out f32[heads][d].  query: real, f32[heads][d]; of a k with a parameter its sketches, f32[heads][256]. */
typedef struct golden_task {
    const kvant_format *k, *v;
    const uint8_t *k_rows, *v_rows;        /* [kv_heads][n] */
    const float *query;
    int heads, kv_heads, n, visible, d;
    float scale;
    float *out;
} golden_task;
int golden_device_run(kvant_device *dev, const golden_task *t, kvant_diag *diag);

void golden_rotation(golden_run *r, gjson root);
void golden_fused(golden_run *r, gjson root, const kvant_format *v_format);

/* The fixture generators (docs/formats/golden.md). */
void golden_projection_marsaglia(uint64_t seed, float *out);

#endif
