/* encode_tail.cu: cache_write of a side in a private layout or of page scope: page_seal writes its pages, so every row
 * goes to the exact tail.  Eight lanes to a unit of 128 values, which know where they go before they are there. */
#include "devices/cuda/encode/encode_job.cuh"

enum { THREADS = 128, UNIT_LANES = 8 };

template <bool FULL> static __device__ __forceinline__ void tail_copy(const encode_job &p, const unit &u)
{
    const int at = threadIdx.x % UNIT_LANES * 4;
    float v[16];
#pragma unroll
    for (int j = 0; j < 4; j++)
        unit_load4<FULL>(p, u, 32 * j + at, v + 4 * j);
#pragma unroll
    for (int j = 0; j < 4; j++)
        tail_store4<FULL>(p, u.tail, 32 * j + at, u.count, v + 4 * j);
}

static __global__ void __launch_bounds__(THREADS) encode_tail_kernel(jobs js)
{
    const encode_job &p = js.j[blockIdx.y];
    unit u;

    pdl_go();
    /* of the batch, which is there since before the list's first op */
    const bool some = unit_at(p, (blockIdx.x * THREADS + threadIdx.x) / UNIT_LANES, &u) && u.tail;
    pdl_wait();
    if (some && p.full)
        tail_copy<true>(p, u);
    else if (some)
        tail_copy<false>(p, u);
}

void cuda_tail_write(cuda_device *d, const jobs &p, int sides)
{
    const dim3 grid(cuda_blocks(p.j[0].units, THREADS / UNIT_LANES), (unsigned)sides);
    cuda_launch(d, encode_tail_kernel, grid, THREADS, 0, p);
}
