/* gates.cuh: value u of gdn_gates, the same in every launch. */
#ifndef KVANT_CUDA_GATES_CUH
#define KVANT_CUDA_GATES_CUH

#include "devices/cuda/core/cuda_dev.cuh"

/* softplus(x) = x above 20; log1p keeps small arguments exact where f32 log(1 + e) would not. */
static __device__ __forceinline__ void gate_values(const kvant_gdn_gates_args &a, int64_t u)
{
    const int d = a.channels > 0 ? a.channels : 1, j = (int)(u % (a.h * d));
    const float x = a.alpha[u] + a.dt[j];
    a.alpha[u] = a.a[j / d] * (x > 20.0f ? x : log1pf(expf(x)));
    if (u < (int64_t)a.n * a.h)
        a.beta[u] = sigmoid_dev(a.beta[u]);
}

#endif
