/* polar.h: the pre-Hadamard query path of q4_polar and q4_polar_r, as other engines call it.
 *
 * hq = H(q) per 128-group, unnormalised, made once per query; a row's score is then a plain dot with its centroids:
 * score = (d/128) * sum (c[code] [+ residual*S]) * hq.  Equal to <decode(row), q> up to rounding (1e-5 relative).
 * The format's own prep_q is the same transform with the 1/128 already in it.
 * Threads: pure functions.  Source: docs/formats/q4_polar.md. */
#ifndef KVANT_POLAR_H
#define KVANT_POLAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

/* hq f32[d] = H(q f32[d]); d a multiple of 128.  hq may not overlap q. */
void kvant_polar_preht_query(const float *q, float *hq, int d);

/* s[i] = score of row i for n rows of 82*d/128 bytes, `stride` apart; use_qjl: with the residual (q4_polar_r).
 * Sums in double.  d not a multiple of 128 gives 0, as upstream. */
void kvant_polar_preht_score(const float *hq, const uint8_t *rows, size_t stride, int n, float *s, int d, int use_qjl);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
