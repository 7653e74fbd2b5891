/* make/imatrix.h: importance matrices in the field's GGUF: for a matrix NAME the sums of squares of what its columns
 * were multiplied with, and how many rows that were.
 *
 * Keys: general.type "imatrix", imatrix.datasets (strings), imatrix.chunk_count and imatrix.chunk_size (u32).
 * Tensors, F32: NAME.in_sum2 [n_in, matrices] and NAME.counts [1, matrices]. */
#ifndef KVANT_MAKE_IMATRIX_H
#define KVANT_MAKE_IMATRIX_H

#include <stdint.h>
#include "base/error.h"

typedef struct imatrix imatrix;

int imatrix_open(const char *path, imatrix **out, kvant_diag *diag);
void imatrix_close(imatrix *im);
int imatrix_entries(const imatrix *im);
uint32_t imatrix_chunks(const imatrix *im);
/* The first dataset, or "". */
void imatrix_dataset(const imatrix *im, char *buf, int cap);
/* Mean squares of matrix i of n of the tensor -> mean[n_in].  1: they are there; 0: the file has none for this tensor,
 * or no row came to this matrix; KVANT_EFORMAT: other sizes, or values that are no mean squares. */
int imatrix_mean(const imatrix *im, const char *tensor, int64_t n_in, int64_t n, int64_t i, float *mean,
                 kvant_diag *diag);

/* One entry of a new file. */
typedef struct imatrix_entry {
    char name[72];
    int64_t n_in;
    int n;               /* matrices */
    const double *sum2;  /* [n][n_in] */
    const int64_t *rows; /* [n] */
} imatrix_entry;

/* Entries in any order; they are written by name.  The file appears whole or not at all. */
int imatrix_save(const char *path, imatrix_entry *list, int n, const char *dataset, uint32_t chunks,
                 uint32_t chunk_size, kvant_diag *diag);

#endif
