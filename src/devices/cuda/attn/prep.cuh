/* prep.cuh: queries to 16-bit operands of the kernels on tensor cores, sums back to real space: a head by one warp.
 * Lane l holds values V*l .. V*l + V - 1. */
#ifndef KVANT_CUDA_PREP_CUH
#define KVANT_CUDA_PREP_CUH

#include "devices/cuda/core/halves.cuh"
#include "devices/cuda/core/space.cuh"

#define PREP_LOG2E 1.4426950408889634f

static __device__ __forceinline__ uint16_t query_half(float x)
{
    x = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
    return __half_as_ushort(__float2half_rn(x));
}

/* Two values as halves, each as query_half has it. */
static __device__ __forceinline__ uint32_t query_pair(float x, float y)
{
    uint32_t w;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x));
    return w;
}

template <int V> static __device__ __forceinline__ void store_halves(uint16_t *to, const float *x, float by)
{
    uint32_t w[V / 2];
#pragma unroll
    for (int i = 0; i < V; i += 2)
        w[i / 2] = query_pair(x[i] * by, x[i + 1] * by);
    if constexpr (V == 2) {
        *(uint32_t *)to = w[0];
    } else {
#pragma unroll
        for (int i = 0; i < V / 2; i += 2)
            *(uint2 *)(to + 2 * i) = make_uint2(w[i], w[i + 1]);
    }
}

/* A lane's values of the head at `from`, at any alignment. */
template <int V> static __device__ __forceinline__ void head_load(const float *from, float *x, int lane)
{
    if ((uintptr_t)from % sizeof(lane_vec<V>) == 0)
        lane_take<V>(from + lane * V, x);
    else
#pragma unroll
        for (int i = 0; i < V; i++)
            x[i] = from[lane * V + i];
}

/* One head x: raw = x * by, and turned = its rotation * by_k, 32*V halves each. */
template <int V>
static __device__ __forceinline__ void warp_turn(int space, float *x, float by, float by_k, uint16_t *raw,
                                                 uint16_t *turned, int lane)
{
    store_halves<V>(raw + lane * V, x, by);
    warp_rotate<V>(space, x, lane);
    store_halves<V>(turned + lane * V, x, by_k);
}

template <int V>
static __device__ __forceinline__ void store_split(uint16_t *first, uint16_t *rest, const float *x, float by)
{
#pragma unroll
    for (int i = 0; i < V; i += 2) {
        const float a = x[i] * by, b = x[i + 1] * by;
        ((uint32_t *)first)[i / 2] = pack_tops(a, b);
        ((uint32_t *)rest)[i / 2] = pack_tops(split_rest(a), split_rest(b));
    }
}

/* One head x: raw = x * by, and turned = its rotation * by_k, 32*V halves each; or in two PARTS: raw and turned are
 * those of x * by (split_rest). */
template <int V, int PARTS>
static __device__ __forceinline__ void warp_operands(int space, float *x, float by, float by_k, uint16_t *raw,
                                                     uint16_t *turned, int lane)
{
    if (PARTS == 2)
        store_split<V>(raw + lane * V, turned + lane * V, x, by);
    else
        warp_turn<V>(space, x, by, by_k, raw, turned, lane);
}

template <int V, int PARTS>
static __device__ __forceinline__ void warp_prep(int space, const float *q, float by, float by_k, uint16_t *raw,
                                                 uint16_t *turned, int lane)
{
    float x[V];
    head_load<V>(q, x, lane);
    warp_operands<V, PARTS>(space, x, by, by_k, raw, turned, lane);
}

/* ---- all heads of a pass, before attention reads them ---- */

/* Heads that one block takes, so that a launch behind it finds the other multiprocessors free. */
enum { PREP_ALONE = 32 };

typedef struct prep_job {
    const float *q;
    uint16_t *raw, *turned;
    int64_t ldq, gq;
    int n, h; /* n: rows times heads */
    float by;
    side_dev k; /* whose scale the turned ones take */
} prep_job;

/* A warp per head.  Once it runs, all before it has ended: the kernel behind it may read that before pdl_wait. */
template <int V, int PARTS> static __global__ void __launch_bounds__(32 * PREP_ALONE) prep_heads(prep_job p)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    pdl_wait();
    pdl_go();
    if (i >= p.n)
        return;
    const size_t at = (size_t)i * 32 * V;
    warp_prep<V, PARTS>(p.k.space, p.q + i / p.h * p.ldq + i % p.h * p.gq, p.by, p.by * side_scale(p.k), p.raw + at,
                        p.turned + at, lane);
}

template <int PARTS> static inline void prep_launch(const cuda_device *d, int dim, const prep_job &p)
{
    const int warps = p.n <= PREP_ALONE ? p.n : 4;
    cuda_launch(d, dim == 64 ? prep_heads<2, PARTS> : dim == 128 ? prep_heads<4, PARTS> : prep_heads<8, PARTS>,
                dim3(cuda_blocks(p.n, warps)), 32 * (unsigned)warps, 0, p);
}

/* parts: of a query (warp_prep). */
static inline void prep_run(const cuda_device *d, int dim, int parts, const prep_job &p)
{
    if (parts == 2)
        prep_launch<2>(d, dim, p);
    else
        prep_launch<1>(d, dim, p);
}

/* Reads the signs of warp_rotate_back ahead of their use. */
template <int V> static __device__ __forceinline__ void warm_signs(int space, int lane)
{
    const float *signs = space == SPACE_P32 ? space_signs32 : space_signs2;
    const int j = lane * V % (space == SPACE_P32 ? 32 : 128);
    asm volatile("" ::"f"(signs[j]), "f"(space == SPACE_P32 ? 0.0f : space_signs1[j]));
}

/* finish_out of a head by one warp: lane l holds values V*l .. V*l + V - 1. */
template <int V> static __device__ __forceinline__ void warp_rotate_back(int space, float *x, int lane)
{
    const int size = space == SPACE_P32 ? 32 : 128;
    const float k = port_bits(space == SPACE_P32 ? 0x3e3504f3u : space == SPACE_R128 ? 0x3db504f3u : 0x3c000000u);
    if (space == SPACE_REAL)
        return;
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] *= space == SPACE_R128 ? space_signs2[(lane * V + i) % size] : 1.0f;
    warp_butterfly<V>(x, size, lane);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int j = (lane * V + i) % size;
        x[i] = x[i] * k * (space == SPACE_P32 ? space_signs32[j] : space == SPACE_R128 ? space_signs1[j] : 1.0f);
    }
}

#endif
