/* qjl.h: what qjl1_256 needs beside the format contract: its projection, and the int8 form of the query.
 *
 * The projection Pi is f32[128][256], row-major; it is the `param` of the format and must travel with the data:
 * rows encoded with one projection mean nothing under another.  kvant's rule: one projection for every head and
 * 128-group of a layer, and for every layer where the user's file has one alone: the builder's with seed 42 unless
 * the user gives a file.
 * Threads: all functions are pure, but for those that read a file.  Source: docs/formats/qjl1_256.md. */
#ifndef KVANT_QJL_H
#define KVANT_QJL_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

enum {
    KVANT_QJL_DIM = 128,                   /* values per group */
    KVANT_QJL_SKETCH = 256,                /* sketch bits per group */
    KVANT_QJL_VALUES = 128 * 256,          /* of a projection */
    KVANT_QJL_FILE_BYTES = 131072,         /* of a projection file: f32 little-endian */
    KVANT_QJL_SEED = 42,                   /* of the default projection */
};

/* Gaussian projection by splitmix64 and Box-Muller in double: out f32[KVANT_QJL_VALUES].  Deterministic given a
 * libm whose log, sin and cos round to the same f32 (glibc does). */
void kvant_qjl_projection_build(uint64_t seed, float *out);

/* A projection file is n matrices behind each other, f32 little-endian as they are (KVANT_QJL_FILE_BYTES each), or
 * numpy's .npy of such, '<f4' in C order of the shape (128, 256) or (n, 128, 256); n at most 4096.  How many it has.
 * KVANT_EFORMAT: its size or its header is that of neither; KVANT_ENOENT, KVANT_EIO. */
int kvant_qjl_projection_count(const char *path, int *n, kvant_diag *diag);

/* Reads matrix i of a projection file into out f32[KVANT_QJL_VALUES].  KVANT_EFORMAT as above, and if a value is not
 * finite or a column is zero (its bit would say nothing); KVANT_EINVAL: there is no such matrix; KVANT_ENOENT.  Then
 * out is untouched.  KVANT_EIO: the file could not be read to its end, and out may hold a part of it. */
int kvant_qjl_projection_read(const char *path, int i, float *out, kvant_diag *diag);

/* As kvant_qjl_projection_read, of a file of one matrix; KVANT_EFORMAT: it has several. */
int kvant_qjl_projection_load(const char *path, float *out, kvant_diag *diag);

/* Int8 query: q i8[256] and its scale from a sketch f32[256]: scale = max|sketch|/127 (1 if all zero), rounded half to
 * even, clamped to +-127; NaN gives 0. */
void kvant_qjl_query_i8(const float *sketch, int8_t *q, float *scale);

/* s[i] = 1.2533141/256 * norm_i * scale * sum_j (+-)q[j] for n rows of one 128-group, `stride` bytes apart. */
void kvant_qjl_score_i8(const int8_t *q, float scale, const uint8_t *rows, size_t stride, int n, float *s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
