/* blas_chain.cuh: products by cuBLASLt joined with the ops that make or take their rows (blas_chain.cu). */
#ifndef KVANT_CUDA_BLAS_CHAIN_CUH
#define KVANT_CUDA_BLAS_CHAIN_CUH

#include "devices/cuda/core/cuda_dev.cuh"

/* The fuses of a norm and of a product: the ops that they took, 0 or an error. */
int cuda_blas_after_norm(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag);
int cuda_blas_side_by_side(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag);
/* takes: the list begins with the only product that reads rows x[m][ldx], and takes them as bf16; of_halves: runs it
 * from those, [m][n_in], with the ops that join it; returns the ops taken. */
bool cuda_blas_takes_halves(const cuda_device *d, const kvant_op *ops, int n, const float *x, int64_t ldx, int m);
int cuda_blas_of_halves(cuda_device *d, const kvant_op *ops, int n, const uint16_t *rows, kvant_diag *diag);

#endif
