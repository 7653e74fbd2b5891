/* swiglu.cuh: one value of swiglu, the same in every launch. */
#ifndef KVANT_CUDA_SWIGLU_CUH
#define KVANT_CUDA_SWIGLU_CUH

static __device__ __forceinline__ float swiglu_one(float g, float u)
{
    return g / (1.0f + expf(-g)) * u;
}

#endif
