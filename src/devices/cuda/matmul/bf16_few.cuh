/* bf16_few.cuh: products of up to 64 rows with bf16 weights (bf16_few.cu); cuBLASLt has those that it does not take. */
#ifndef KVANT_CUDA_BF16_FEW_CUH
#define KVANT_CUDA_BF16_FEW_CUH

#include "devices/cuda/core/cuda_dev.cuh"

/* y[rows][ldy] = x[rows][n_in] w[n_out][n_in] transposed; x and w bf16, y bf16 (halves) or f32. */
typedef struct bf16_few {
    const void *w, *x;
    void *y;
    bool halves;
    int rows;
    int64_t n_in, n_out, ldy;
} bf16_few;

bool cuda_bf16_few_takes(const cuda_device *d, const bf16_few &p);
void cuda_bf16_few(const cuda_device *d, const bf16_few &p);

#endif
