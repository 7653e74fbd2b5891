/* step.cuh: a step of the tensor cores in either make: 16 rows of a warp times a tile in shared memory, c[N/8][4] as
 * mma.m16n8k16 has its sums.  Tiles' rows are 128 bytes whose 16-byte cells are permuted by the row's number, as
 * wgmma's 128-byte swizzle has them.  ARCH_90: four warps together, products on their way from step_open to
 * step_close; ARCH_80: each warp by itself, done when it returns. */
#ifndef KVANT_CUDA_STEP_CUH
#define KVANT_CUDA_STEP_CUH

#include "devices/cuda/core/wgmma.cuh"

template <int MAKE, int N> static __device__ __forceinline__ void step_open(float (*c)[4])
{
    if constexpr (MAKE == ARCH_90)
        group_open<N>(c);
}

template <int MAKE, int N> static __device__ __forceinline__ void step_close(float (*c)[4])
{
    if constexpr (MAKE == ARCH_90)
        group_close<N>(c);
}

template <bool BF16>
static __device__ __forceinline__ void warp_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    if (BF16)
        mma_bf16(c, a, b0, b1);
    else
        mma16816(c, a, b0, b1);
}

/* Two column groups j and j + 1 of a step's tile: K-major (MAJOR 0: rows are columns of the product; `at` may begin
 * within a row) or MN-major (1), where panels of 64 columns lie `lead` apart. */
template <int MAJOR> static __device__ __forceinline__ void warp_columns(uint32_t *b, uint32_t at, uint32_t lead, int j)
{
    const uint32_t lane = threadIdx.x % 32, in = lane % 8, first = lane / 8 % 2, second = lane / 16;
    if (MAJOR)
        load_matrices<true>(b, ((at + (8 * first + in) * 128) ^ (second ^ in ^ (uint32_t)j % 8) << 4) +
                                   (uint32_t)j / 8 * lead);
    else
        load_matrices<false>(b, ((at + (8 * second + in) * 128 + 16 * first) ^ in << 4) + (uint32_t)j * 1024);
}

template <int N, int MAJOR, int ADD, bool BF16>
static __device__ __forceinline__ void warp_step(float (*c)[4], const uint32_t *a, uint32_t at, uint32_t lead)
{
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        uint32_t b[4];
        if (!ADD)
#pragma unroll
            for (int i = 0; i < 8; i++)
                c[j + i / 4][i % 4] = 0.0f;
        warp_columns<MAJOR>(b, at, lead, j);
        warp_mma<BF16>(c[j], a, b[0], b[1]);
        warp_mma<BF16>(c[j + 1], a, b[2], b[3]);
    }
}

/* c += a b, or c = a b where not ADD; a: the rows in registers; at: the step's tile. */
template <int MAKE, int N, int MAJOR, int ADD = 1, bool BF16 = false>
static __device__ __forceinline__ void step_regs(float (*c)[4], const uint32_t *a, uint32_t at, uint32_t lead)
{
    if constexpr (MAKE == ARCH_90)
        group_mma_regs<N, MAJOR, ADD, BF16>(c, a, swizzled(at, lead));
    else
        warp_step<N, MAJOR, ADD, BF16>(c, a, at, lead);
}

/* As step_regs, with 64 rows of four warps in shared memory too, both K-major. */
template <int MAKE, int N> static __device__ __forceinline__ void step_placed(float (*c)[4], uint32_t rows, uint32_t at)
{
    if constexpr (MAKE == ARCH_90)
        group_mma_placed<N>(c, swizzled(rows, 0), swizzled(at, 0));
    else {
        const uint32_t lane = threadIdx.x % 32, own = threadIdx.x / 32 % 4 * 16 + lane / 8 % 2 * 8 + lane % 8;
        uint32_t a[4];
        load_matrices<false>(a, (rows + own * 128 + lane / 16 * 16) ^ lane % 8 << 4);
        warp_step<N, 0, 1, false>(c, a, at, 0);
    }
}

#endif
