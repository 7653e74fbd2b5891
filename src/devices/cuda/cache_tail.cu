/* cache_tail.cu: cache_write of a side in a private layout: its pages are written by page_seal, so every row goes to
 * the exact tail.  A warp per unit of 128 values; it knows where they go before they are there. */
#include "devices/cuda/cache_job.cuh"

enum { THREADS = 128 };

static __global__ void __launch_bounds__(THREADS) tail_kernel(jobs js)
{
    const job &p = js.j[blockIdx.y];
    const unsigned n = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const int at = threadIdx.x % 32 * 4;
    unit u;
    float v[4];

    pdl_go();
    const bool some = unit_at(p, n, &u) && u.tail; /* of the batch, which is there since before the list's first op */
    pdl_wait();
    if (!some || at >= u.count)
        return;
    unit_load4<false>(p, u, at, v);
    tail_store4<false>(p, u.tail, at, u.count, v);
}

void cuda_tail_write(cuda_device *d, const jobs &p, int sides)
{
    cuda_launch(d, tail_kernel, dim3(cuda_blocks(p.j[0].units, THREADS / 32), (unsigned)sides), THREADS, 0, p);
}
