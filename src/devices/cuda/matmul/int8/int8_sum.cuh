/* int8_sum.cuh: the last product of a token's experts and their weighted sum (int8_sum.cu). */
#ifndef KVANT_CUDA_INT8_SUM_CUH
#define KVANT_CUDA_INT8_SUM_CUH

#include "devices/cuda/matmul/int8/int8.cuh"

/* y[token] = sum over j of wts[j] * W[ids[j]] x[token*k + j], then + (W2 x2[token]) * sigmoid(gate[token]), where p.w2
 * is not NULL (gate NULL: as it is); and p.add, of y's rows, is added to. */
typedef struct int8_sum {
    mm p;
    int k;
    const float *wts, *x2, *gate;
    int64_t ldx2;
} int8_sum;

bool cuda_int8_sums(const cuda_device *d, int type, const int8_sum &s);
void cuda_int8_sum(const cuda_device *d, int type, const int8_sum &s, int n); /* n: tokens */

#endif
