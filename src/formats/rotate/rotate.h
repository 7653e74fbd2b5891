/* rotate.h: the Hadamard rotations that formats share.  REFERENCE: one rounding per operation, in the order written.
 * All work in place on f32[n], n the size in the name. */
#ifndef KVANT_FORMATS_ROTATE_H
#define KVANT_FORMATS_ROTATE_H

/* Unnormalised Hadamard, natural (Sylvester) order, n a power of two; self-inverse up to the factor n. */
void rotate_butterfly(float *x, int n);

/* R: signs1, butterfly, 1/sqrt(128), signs2 (turbo3, turbo4_66, turbo3_tcq); and its inverse. */
void rotate_r128(float *x);
void rotate_r128_inverse(float *x);

/* P32: signs, butterfly, 1/sqrt(32) (tbq*, turbo4); and its inverse. */
void rotate_p32(float *x);
void rotate_p32_inverse(float *x);

#endif
