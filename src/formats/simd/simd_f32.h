/* simd_f32.h: the f32 kernels of this instruction set (classes/wide.h), to which other formats hand decoded rows. */
#ifndef KVANT_FORMATS_SIMD_F32_H
#define KVANT_FORMATS_SIMD_F32_H

void VF_KERNEL(f32_score)(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride,
                          int n, float *s, size_t lds, int d);
void VF_KERNEL(f32_axpy)(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride,
                         int n, float *acc, size_t lda, int d);

#endif
