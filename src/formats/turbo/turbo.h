/* turbo.h: what turbo3, turbo4_66 and turbo3_tcq share: normalise, rotate, code by midpoints, correct the norm. */
#ifndef KVANT_FORMATS_TURBO_H
#define KVANT_FORMATS_TURBO_H

enum { TURBO_GROUP = 128 };

/* y = R(x / |x|); returns |x|.  |x| at or below 1e-10 gives y = R(0). */
float turbo_prepare(const float *x, float *y);

/* The first k with v < mid[k], else n: a value equal to a midpoint takes the upper code, NaN the last.  mid f32[n]. */
int turbo_code(const float *mid, int n, float v);

/* The stored norm: norm / sqrt(r), r the sum of the squared code values in order. */
float turbo_corrected(float norm, float r);

/* prep_q and finish_out of one group: R(q) and its inverse. */
void turbo_rotate(const float *q, float *qp);
void turbo_unrotate(const float *acc, float *x);

#endif
