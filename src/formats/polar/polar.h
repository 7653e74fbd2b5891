/* polar.h: what q4_polar and q4_polar_r share: everything but the use of the residual sign. */
#ifndef KVANT_FORMATS_POLAR_H
#define KVANT_FORMATS_POLAR_H

#include <stdint.h>

enum { POLAR_GROUP = 128, POLAR_BYTES = 82 };

void polar_encode(const float *x, uint8_t *bytes, int use_residual, int encoder);
/* acc f32[128] = d * (centroid [+- 0.5/sqrt(128) * S]). */
void polar_decode(const uint8_t *bytes, float *acc, int use_residual);
/* H(x)/128: both prep_q (so that <prep(q), acc> = <q, decoded>) and finish_out, the Hadamard being symmetric. */
void polar_transform(const float *x, float *y);

#endif
