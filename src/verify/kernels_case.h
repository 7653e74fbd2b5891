/* verify/kernels_case.h: one case of kernels.h: a format's kernel at one head_dim, for r queries and n rows. */
#ifndef KVANT_VERIFY_KERNELS_CASE_H
#define KVANT_VERIFY_KERNELS_CASE_H

#include "verify/kernels.h"

enum { KCASE_BLOCKS = 16, KCASE_PAD = 3, KCASE_MAX_ROW = 4 * KVANT_MAX_HEAD_DIM };

typedef struct kcase_block {
    unsigned char *block;
    size_t lead, n, guard;
} kcase_block;

typedef struct kcase {
    const kvant_format *f;
    const kvant_format_kernels *k, *f32;        /* f32: the f32 format's kernels of the same variant, or NULL */
    const char *variant;
    const void *param;
    int op, d, sdim, r, n, rc;
    size_t row_bytes, stride;
    verify_kernel *out;
    verify_report *texts;
    int failed;                                 /* of this case */
    kcase_block blocks[KCASE_BLOCKS];
    int n_blocks;
} kcase;

/* n bytes of 0xFF between guards, `misalign` bytes behind a 16-byte boundary; freed by kcase_end.  Never used before
 * kcase_ready, which is 0 when one of the blocks has no memory. */
void *kcase_take(kcase *c, size_t n, size_t misalign);
int kcase_ready(const kcase *c);
/* Counts the case, checks the guards of all blocks and frees them. */
void kcase_end(kcase *c);
/* The error as a part of its bound; above 1 (or NaN) the case fails. */
void kcase_note(kcase *c, double err, double bound, const char *what);
/* The case fails when ok is 0. */
void kcase_want(kcase *c, int ok, const char *what);

/* Row `kind` 0..10: magnitudes over a few orders; some kinds are zeros, spikes, constants. */
void kcase_fill_row(float *x, int d, int kind, uint64_t seed);
/* n encoded rows at c->stride, NaN between them; taken from the case. */
uint8_t *kcase_rows(kcase *c, int n);
/* Bytes of n rows: of a format of page scope those of its page, n <= KVANT_PAGE. */
size_t kcase_rows_bytes(const kcase *c, int n);
/* Kernels of either scope, for rows first .. first + n - 1 of what kcase_rows gave. */
void kcase_run_decode(const kcase *c, const kvant_format_kernels *k, const uint8_t *rows, int first, int n, float *out);
void kcase_run_score(const kcase *c, const float *q, size_t ldq, int r, const uint8_t *rows, int first, int n, float *s,
                     size_t lds);
void kcase_run_axpy(const kcase *c, const float *w, size_t ldw, int r, const uint8_t *rows, int first, int n,
                    float *acc, size_t lda);
int kcase_same(const void *a, const void *b, size_t n);
/* Squared error of a row in real space. */
double kcase_row_error(const kcase *c, const uint8_t *row, const float *x);

void kcase_decode(kcase *c);
void kcase_score(kcase *c);
void kcase_axpy(kcase *c);
void kcase_prep_q(kcase *c);
void kcase_finish(kcase *c);
void kcase_encode(kcase *c);
void kcase_score_q8(kcase *c);
void kcase_axpy_q8(kcase *c);

#endif
