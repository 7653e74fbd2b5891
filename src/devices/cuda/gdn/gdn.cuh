/* gdn.cuh: the gated delta rule, as gdn.cu (tokens one by one) and gdn_chunk.cu (chunks on tensor cores) share it. */
#ifndef KVANT_CUDA_GDN_CUH
#define KVANT_CUDA_GDN_CUH

#include <cuda_bf16.h>
#include "devices/cuda/core/cuda_dev.cuh"

typedef struct gdn_job {
    kvant_gdn_args a;
    seqs_dev seqs;
    const void *gathered;              /* [n_seqs][hv][dv][dk]: states read from another slot, as they are stored */
    int phase;                         /* 1: prompt sequences */
    float scale;
} gdn_job;

static __device__ __forceinline__ bool takes_part(const seqs_dev &s, int i, int phase)
{
    return (s.prompt[i] != 0) == phase && s.q0[i + 1] > s.q0[i];
}

/* Values of a state: T is float or __nv_bfloat16. */
static __device__ __forceinline__ float state_value(float x)
{
    return x;
}

static __device__ __forceinline__ float state_value(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T> static __device__ __forceinline__ T state_rounded(float x)
{
    if constexpr (sizeof(T) == sizeof(float))
        return x;
    else
        return __float2bfloat16_rn(x);
}

/* gdn_chunk.cu: shapes it takes; scratch beside the gathered states; the launches. */
bool gdn_chunk_fits(const cuda_device *d, const kvant_gdn_args *a);
size_t gdn_chunk_scratch(const kvant_gdn_args *a);
void gdn_chunk_run(cuda_device *d, const gdn_job *g, unsigned char *scratch);

#endif
