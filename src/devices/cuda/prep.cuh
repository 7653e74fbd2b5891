/* prep.cuh: queries of one head to f16 operands of the Hopper attention kernels, by one warp.  Lane l holds values
 * V*l .. V*l + V - 1; the rotations have the order of operations of space.cuh, hence the same bits. */
#ifndef KVANT_CUDA_PREP_CUH
#define KVANT_CUDA_PREP_CUH

#include "devices/cuda/space.cuh"

#define PREP_LOG2E 1.4426950408889634f

static __device__ __forceinline__ uint16_t query_half(float x)
{
    x = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
    return __half_as_ushort(__float2half_rn(x));
}

template <int V> static __device__ __forceinline__ void warp_butterfly(float *x, int size, int lane)
{
#pragma unroll
    for (int h = 1; h < V; h *= 2)
#pragma unroll
        for (int i = 0; i < V; i++)
            if (!(i & h)) {
                const float a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
    for (int h = V; h < size; h *= 2)
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float other = __shfl_xor_sync(0xffffffffu, x[i], h / V);
            x[i] = lane & (h / V) ? other - x[i] : x[i] + other;
        }
}

template <int V> static __device__ __forceinline__ void warp_rotate(int space, float *x, int lane)
{
    const int size = space == SPACE_P32 ? 32 : 128;
    const float k = port_bits(space == SPACE_P32 ? 0x3e3504f3u : space == SPACE_R128 ? 0x3db504f3u : 0x3c000000u);
    if (space == SPACE_REAL)
        return;
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = (lane * V + i) % size;
        x[i] *= space == SPACE_P32 ? space_signs32[j] : space == SPACE_R128 ? space_signs1[j] : 1.0f;
    }
    warp_butterfly<V>(x, size, lane);
#pragma unroll
    for (int i = 0; i < V; i++) {
        x[i] *= k;
        x[i] *= space == SPACE_R128 ? space_signs2[(lane * V + i) % size] : 1.0f;
    }
}

template <int V> static __device__ __forceinline__ void store_halves(uint16_t *to, const float *x, float by)
{
    uint32_t w[V / 2];
#pragma unroll
    for (int i = 0; i < V; i += 2)
        w[i / 2] = query_half(x[i] * by) | (uint32_t)query_half(x[i + 1] * by) << 16;
#pragma unroll
    for (int i = 0; i < V / 2; i++)
        ((uint32_t *)to)[i] = w[i];
}

/* One head: raw = q * by, and turned = its rotation * by_k, 32*V halves each. */
template <int V>
static __device__ __forceinline__ void warp_prep(int space, const float *q, float by, float by_k, uint16_t *raw,
                                                 uint16_t *turned, int lane)
{
    float x[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] = q[lane * V + i];
    store_halves<V>(raw + lane * V, x, by);
    warp_rotate<V>(space, x, lane);
    store_halves<V>(turned + lane * V, x, by_k);
}

#endif
