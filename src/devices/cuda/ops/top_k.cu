/* top_k.cu: the k largest of a row, in two launches.
 *
 * A value and its position are one key of 64 bits, larger where the value is or, at a tie, the position is lower: keys
 * are unique, and their order is the order of the result.  Blocks find the k-th key of their part of a row by
 * bisection, bit by bit, with a count of the block per bit, until exactly k keys remain; the second launch does the
 * same over what the parts left, and places each key by counting those before it. */
#include "devices/cuda/core/cuda_dev.cuh"

enum { THREADS = 1024, EACH = 4, JOIN_EACH = 8 };  /* values of a thread: of a part of a row; of what parts left */
#define ODD 0xffffffffffffffffull      /* a value that is not finite was seen; no key is as large */

typedef unsigned long long key64;

static int parts_of(int d)
{
    return (d + THREADS * EACH - 1) / (THREADS * EACH);
}

static __device__ __forceinline__ key64 key_of(float x, int at)
{
    const uint32_t u = __float_as_uint(x + 0.0f);          /* -0 is 0 */
    return (key64)(u >> 31 ? ~u : u | 0x80000000u) << 32 | (uint32_t)~at;
}

/* The largest limit that at least k of the block's keys reach, by all its threads; reach(limit): how many of a
 * thread's keys do. */
template <typename F> static __device__ __forceinline__ key64 kth_key(const F &reach, int k)
{
    __shared__ int counts[2][THREADS / 32];
    key64 limit = 0;
    for (int bit = 63; bit >= 0; bit--) {
        const key64 next = limit | 1ull << bit;
        const int warp = __reduce_add_sync(0xffffffffu, reach(next));
        if (threadIdx.x % 32 == 0)
            counts[bit & 1][threadIdx.x / 32] = warp;
        __syncthreads();               /* the other half is free: every thread has read it before it came here */
        const int all = __reduce_add_sync(0xffffffffu, counts[bit & 1][threadIdx.x % 32]);
        if (all >= k)
            limit = next;
        if (all == k)
            break;
    }
    return limit;
}

static __global__ void __launch_bounds__(THREADS) part_kernel(kvant_top_k_args a, key64 *left)
{
    __shared__ int count;
    const int parts = gridDim.x, from = blockIdx.x * THREADS * EACH;
    const int n = a.d - from < THREADS * EACH ? a.d - from : THREADS * EACH, k = n < a.k ? n : a.k;
    const float *x = a.x + (int64_t)blockIdx.y * a.d + from;
    key64 *to = left + ((int64_t)blockIdx.y * parts + blockIdx.x) * a.k, key[EACH];
    float zero = 0.0f;

    pdl_go();
    pdl_wait();
    if (threadIdx.x == 0)
        count = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int i = threadIdx.x + e * THREADS;
        const float v = i < n ? x[i] : 0.0f;
        zero += v * 0.0f;              /* NaN and Inf give NaN */
        key[e] = i < n ? key_of(v, from + i) : 0;
    }
    if (__syncthreads_or(!(zero == 0.0f))) {
        for (int i = threadIdx.x; i < a.k; i += THREADS)
            to[i] = ODD;
        return;
    }
    const key64 limit = kth_key([&](key64 next) {
        int reach = 0;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            reach += key[e] >= next;
        return reach;
    }, k);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (key[e] >= limit)
            to[atomicAdd(&count, 1)] = key[e];
    for (int i = k + threadIdx.x; i < a.k; i += THREADS)
        to[i] = 0;
}

/* The k largest of n keys, in no order, to best; false: one is ODD.  KEEP: a thread's keys fit its registers. */
template <bool KEEP> static __device__ __forceinline__ bool best_of(const key64 *from, int n, int k, key64 *best)
{
    __shared__ int count;
    key64 key[JOIN_EACH];
    bool odd = false;
    if (threadIdx.x == 0)
        count = 0;
#pragma unroll
    for (int e = 0; e < JOIN_EACH; e++) {
        const int i = threadIdx.x + e * THREADS;
        key[e] = KEEP && i < n ? from[i] : 0;
        odd |= key[e] == ODD;
    }
    for (int i = threadIdx.x; !KEEP && i < n; i += THREADS)
        odd |= from[i] == ODD;
    if (__syncthreads_or(odd))
        return false;
    const key64 limit = kth_key([&](key64 next) {
        int reach = 0;
#pragma unroll
        for (int e = 0; e < JOIN_EACH; e++)
            reach += KEEP && key[e] >= next;
        for (int i = threadIdx.x; !KEEP && i < n; i += THREADS)
            reach += from[i] >= next;
        return reach;
    }, k);
#pragma unroll
    for (int e = 0; e < JOIN_EACH; e++)
        if (KEEP && key[e] >= limit)
            best[atomicAdd(&count, 1)] = key[e];
    for (int i = threadIdx.x; !KEEP && i < n; i += THREADS)
        if (from[i] >= limit)
            best[atomicAdd(&count, 1)] = from[i];
    return true;
}

static __global__ void __launch_bounds__(THREADS) join_kernel(kvant_top_k_args a, const key64 *left, int parts)
{
    __shared__ key64 best[KVANT_TOP_K_MOST];
    const int n = parts * a.k, k = a.d < a.k ? a.d : a.k;
    const key64 *from = left + (int64_t)blockIdx.x * n;
    const float *x = a.x + (int64_t)blockIdx.x * a.d;

    pdl_go();
    pdl_wait();
    const bool good = n <= THREADS * JOIN_EACH ? best_of<true>(from, n, k, best) : best_of<false>(from, n, k, best);
    __syncthreads();
    for (int i = threadIdx.x; i < a.k; i += THREADS) {
        const bool have = good && i < k;
        int at = have ? 0 : i;
        for (int j = 0; have && j < k; j++)
            at += best[j] > best[i];
        const int id = have ? (int)~(uint32_t)best[i] : -1;
        a.ids[(int64_t)blockIdx.x * a.k + at] = id;
        a.values[(int64_t)blockIdx.x * a.k + at] = have ? x[id] : 0.0f;
    }
}

static size_t top_k_scratch(const cuda_device *d, const void *args)
{
    const kvant_top_k_args *a = (const kvant_top_k_args *)args;
    (void)d;
    return (size_t)(a->n > 0 ? a->n : 0) * (size_t)parts_of(a->d) * (size_t)a->k * sizeof(key64);
}

static int top_k_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_top_k_args *a = (const kvant_top_k_args *)args;
    const int parts = parts_of(a->d);
    key64 *left = (key64 *)d->scratch;
    (void)diag;
    for (int row = 0; row < a->n; row += 65535) {          /* the most that a grid's second number can be */
        const int rows = a->n - row < 65535 ? a->n - row : 65535;
        const kvant_top_k_args some = { a->x + (int64_t)row * a->d, a->values + (int64_t)row * a->k,
                                        a->ids + (int64_t)row * a->k, rows, a->d, a->k };
        cuda_launch(d, part_kernel, dim3((unsigned)parts, (unsigned)rows), THREADS, 0, some, left);
        cuda_launch(d, join_kernel, dim3((unsigned)rows), THREADS, 0, some, (const key64 *)left, parts);
    }
    return KVANT_OK;
}

const cuda_op cuda_op_top_k = { NULL, top_k_scratch, top_k_run };
