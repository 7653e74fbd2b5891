/* matmul_int.h: the integer-form kernels of AVX2, also used by the AVX-512 rung (which has no better byte product
 * without VNNI), and the expansion of quantised panels to f32. */
#ifndef KVANT_CPU_MATMUL_INT_H
#define KVANT_CPU_MATMUL_INT_H

#include "devices/cpu/matmul/matmul_drive.h"

void matmul_quantise_avx2(const float *x, const matmul_xq *q, int64_t row);
extern const matmul_unpack_fn matmul_unpack_avx2[LAYOUT_COUNT];
extern const matmul_int_row_fn matmul_int_row_avx2[LAYOUT_COUNT];
extern const matmul_int_tile_fn matmul_int_tile_avx2[LAYOUT_COUNT][TILE_ROWS + 1];      /* up to 6 rows */
void matmul_expand_avx2(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst);

#endif
