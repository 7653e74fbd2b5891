/* verify/vcase.h: one case of the harness: its buffers, and how they are compared.
 *
 * A generator (cases_*.c) does, for each of its cases:
 *
 *     if (!vcase_begin(c, KVANT_OP_ADD, "rows", "")) return;      not selected
 *     float *x = vcase_normal(c, n, 1);                           host memory of the case
 *     vcase_result(c, x);                                         x is an output
 *     kvant_add_args a = { x, y, n, d };
 *     vcase_run(c, &a, 0.0);                                      0.0: limit of the class
 *
 * All buffers lie in one image with NaN (0xFF) between them; the device has a copy of it.  vcase_run translates the
 * arguments: every operand (ops/operands.h) that points into the image becomes the address of the copy, so a case is
 * written once.  Everything else (formats, projections) stays as it is. */
#ifndef KVANT_VERIFY_VCASE_H
#define KVANT_VERIFY_VCASE_H

#include <stdatomic.h>
#include "verify/verify.h"

enum { VCASE_IMAGE = 96 << 20, VCASE_GUARD = 256 };
enum { VCASE_BUFFERS = 40, VCASE_SEQS = 3, VCASE_TABLE = 40 };

enum vcase_kind {
    VCASE_INPUT,            /* must not change */
    VCASE_NMSE,             /* f32 output; NaN where the reference writes nothing */
    VCASE_BF16,             /* bf16 output by NMSE: a value at a boundary of its rounding may fall to either side */
    VCASE_BOUND,            /* f32 output, |error| <= bound[i] of every value */
    VCASE_ROWS,             /* encoded rows, class CODE */
};

/* Encoded rows of one side: `origin[(page*h + head)*64 + row]` is what was encoded there (d values), or NULL. */
typedef struct vcase_rows {
    const kvant_kv_side *side;
    int h, d, pages;
    const float **origin;
} vcase_rows;

typedef struct vcase_buf {
    unsigned char *at;
    size_t bytes;
    int kind;
    const double *bound;
    const vcase_rows *rows;
} vcase_buf;

typedef struct vcase {
    kvant_device *dev;
    const verify_options *o;
    verify_report *report;
    kvant_diag *diag;
    int rc;                             /* sticky: the device or memory failed, nothing more can run */
    int quick, unaligned;               /* reduced sizes; buffers start 4 bytes after a 16-byte boundary */
    int ask;                            /* this case is not executed: the device is only asked */
    unsigned char *image, *got, *again; /* host copies */
    unsigned char *device;              /* the device's copy */
    size_t used;
    uint64_t key;
    vcase_buf bufs[VCASE_BUFFERS];
    int n_bufs;
    int op, entry, alike;               /* alike: values whose roundings come together; 1 */
    char what[96];                      /* more about the case, for failures */
    struct vcase_banks *banks;          /* encoded rows: vscene.c */
    atomic_int *next;                   /* of several jobs: the first case that none has taken; NULL: one job */
    int seen, taken;                    /* cases so far; the one that this job has taken */
    const void *swap_from, *swap_to;    /* a word of the arguments to replace: a weight by its loaded copy */
    unsigned char args[1024];           /* the translated arguments */
} vcase;

/* ---- for generators ---- */

/* 0: this op is not selected.  `what` (printf) says more about the case. */
int vcase_begin(vcase *c, int op, const char *shape, const char *subject);
void vcase_about(vcase *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The device is only asked whether it supports the case. */
void vcase_ask(vcase *c);

/* Memory of the case, all 0xFF; never NULL.  f32 with normal values; int32 copies. */
void *vcase_take(vcase *c, size_t bytes);
float *vcase_normal(vcase *c, size_t n, uint64_t seed);
int32_t *vcase_ints(vcase *c, const int32_t *from, int n);
/* An f32 output that is NaN before. */
float *vcase_out(vcase *c, size_t n);
/* Makes the buffer at p an output: compared by NMSE, by bounds (kept by the caller until vcase_run), or as rows. */
void vcase_result(vcase *c, const void *p);
void vcase_result_bf16(vcase *c, const void *p);
void vcase_bounds(vcase *c, const void *p, const double *bound);
void vcase_encoded(vcase *c, const void *p, const vcase_rows *rows);

/* Runs the case on the device and through the reference, and compares.  limit: NMSE; unused for other kinds. */
void vcase_run(vcase *c, const void *args, double limit);
/* A case that the device refuses while it is built (a weight): counts as a failure, or as unsupported. */
void vcase_refused(vcase *c, int rc, const char *why);

/* Fills x with n normal values. */
void vcase_fill(float *x, size_t n, uint64_t seed);
/* Rows of t that hold n normal values, the same ones for every type; 0: no memory. */
int vcase_weights(void *to, const kvant_wtype *t, size_t n);

/* ---- scenes: paged caches ---- */

typedef struct vscene {
    kvant_seqs seqs;                    /* the queries */
    kvant_seqs all;                     /* every cached token */
    int pages, len[VCASE_SEQS];
    kvant_kv_side side[2];
    vcase_rows rows[2];
} vscene;

/* The parameter of a format (projection), or NULL.  Constant; of any thread. */
const void *vcase_param(const kvant_format *f);
/* VCASE_SEQS sequences of the given lengths with ask[] queries at their ends; the pages are shuffled over the pool. */
void vscene_seqs(vcase *c, vscene *s, const int *len, const int *ask);
/* One side (0: K, 1: V), unwritten; tail != 0: with an exact tail. */
void vscene_side(vcase *c, vscene *s, int which, const kvant_format *f, int h, int d, int tail, int encoder);
/* Writes rows to every cached position of the side: encoded, and exact where it has a tail. */
void vscene_fill(vcase *c, vscene *s, int which, int h, int d);
/* Frees what the scene holds outside the case. */
void vscene_close(vscene *s);
/* Frees what all scenes of c share. */
void vscene_end(vcase *c);

/* ---- entries of the report ---- */
verify_entry *report_entry(verify_report *r, int op, const char *shape, const char *subject, int *index);
/* Adds another job's report of the same cases; 0: no memory. */
int report_add(verify_report *sum, const verify_report *part);
void report_failure(verify_report *r, const char *text);

#endif
