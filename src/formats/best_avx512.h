/* best_avx512.h: the encoders `best` for AVX-512 (best_books_avx512.c, best_integers_avx512.c).  Each encodes whole
 * rows as its format's `encode` does; another encoder than `best` goes to the AVX2 kernels. */
#ifndef KVANT_FORMATS_BEST_AVX512_H
#define KVANT_FORMATS_BEST_AVX512_H

#include <stdint.h>

typedef void best_encode_fn(const void *param, const float *x, uint8_t *row, int d, int encoder);

best_encode_fn best_tbq4_0_avx512, best_tbq3_0_avx512, best_turbo4_avx512, best_turbo3_avx512, best_turbo4_66_avx512,
    best_q4_polar_avx512, best_q4_polar_r_avx512, best_q8_0_avx512, best_q4_0_avx512;

#endif
