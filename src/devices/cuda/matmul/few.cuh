/* few.cuh: products of few rows, as matmul.cu and matmul_id.cu put them together with the ops behind them. */
#ifndef KVANT_CUDA_FEW_CUH
#define KVANT_CUDA_FEW_CUH

#include "devices/cuda/matmul/int8/int8.cuh"

mm cuda_mm_of(const kvant_weight *w, const float *x, float *y, int64_t ldx, int64_t ldy, int rows, int x_div);
int cuda_weight_supports(const kvant_weight *w, const char *op, kvant_diag *diag);
int cuda_weight_loaded(const kvant_weight *w, const char *op, kvant_diag *diag);
int cuda_wtype_of(const kvant_weight *w); /* of one that was loaded */

/* Returns true if cuBLASLt runs a product in bf16. */
bool cuda_by_blas(const cuda_device *d, const kvant_matmul_args *a);

/* A product: its job, its type, and whether it goes by integers. */
struct few {
    mm p;
    int type;
    bool int8;
};

#endif
