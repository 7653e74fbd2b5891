/* qk.cuh: norms and rotations of a layer's queries and keys in one launch, or in that of attention. */
#ifndef KVANT_CUDA_QK_CUH
#define KVANT_CUDA_QK_CUH

#include "devices/cuda/core/cuda_dev.cuh"

/* A launch does this to a head before it uses it: x / rms(x) * norm (NULL: not), then rope of n_rot values. */
typedef struct head_ahead {
    const float *q_norm, *k_norm;
    const int32_t *pos; /* of token rows */
    const float *inv_freq;
    float q_eps, k_eps, mscale;
    int n_rot, neox;
} head_ahead;

#endif
