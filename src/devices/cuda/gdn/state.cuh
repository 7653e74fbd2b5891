/* state.cuh: recurrent states, as the gated delta rule (gdn.cu, gdn_chunk.cu), Mamba2 (ssm.cu) and the convolution
 * share them: who takes part, values as they are stored, when they are rounded, sums over lanes.
 *
 * All reads of state come before any write: a first launch (gather) copies what is read from another slot (or, not in
 * place, everything) into scratch; a sequence that keeps its slot, or writes none (slot_out -1), reads in place. */
#ifndef KVANT_CUDA_STATE_CUH
#define KVANT_CUDA_STATE_CUH

#include <cuda_bf16.h>
#include "devices/cuda/core/cuda_dev.cuh"

enum { DECODE = 0, PROMPT = 1, GATHER_THREADS = 256 };

static __device__ __forceinline__ bool takes_part(const seqs_dev &s, int i, int phase)
{
    return (s.prompt[i] != 0) == phase && s.q0[i + 1] > s.q0[i];
}

/* A sequence reads its state where it lies: no sequence of the batch writes that slot before. */
static __device__ __forceinline__ bool reads_in_place(int slot_in, int slot_out)
{
    return slot_in == slot_out || slot_out < 0;
}

/* ---- values: T is float or __nv_bfloat16 ---- */

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

static __device__ __forceinline__ float4 load_four(const float *from)
{
    return __ldcs((const float4 *)from);
}

static __device__ __forceinline__ float4 load_four(const __nv_bfloat16 *from)
{
    const uint2 x = __ldcs((const uint2 *)from);
    return make_float4(__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000u), __uint_as_float(x.y << 16),
                       __uint_as_float(x.y & 0xffff0000u));
}

static __device__ __forceinline__ void store_four(float *to, float4 x)
{
    __stcs((float4 *)to, x);
}

static __device__ __forceinline__ void store_four(__nv_bfloat16 *to, float4 x)
{
    const __nv_bfloat162 low = __floats2bfloat162_rn(x.x, x.y), high = __floats2bfloat162_rn(x.z, x.w);
    __stcs((uint2 *)to, make_uint2(*(const uint32_t *)&low, *(const uint32_t *)&high));
}

template <typename T> static __device__ __forceinline__ float4 rounded_four(float4 x)
{
    return make_float4(state_value(state_rounded<T>(x.x)), state_value(state_rounded<T>(x.y)),
                       state_value(state_rounded<T>(x.z)), state_value(state_rounded<T>(x.w)));
}

/* bf16 states are rounded after token t: after every one of a decode op, where a chunk ends in a prompt op.  After the
 * last it is the store that rounds. */
static __device__ __forceinline__ bool rounds_after(const seqs_dev &q, int phase, int s, int t)
{
    return t + 1 < q.q0[s + 1] && (phase == DECODE || (q.pos0[s] + t + 1 - q.q0[s]) % KVANT_PAGE == 0);
}

/* N values per lane, each summed over the lanes by one tree of shuffles; lane l gets the sum of value l / (32 / N).
 * Recursive, so that every index is a constant: else the values go through memory. */
template <int N, int BIT = 16> static __device__ __forceinline__ float sum_lanes(float *v)
{
    if constexpr (BIT == 0) {
        return v[0];
    } else if constexpr (N == 1) {
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], BIT);
        return sum_lanes<1, BIT / 2>(v);
    } else {
        const bool high = threadIdx.x & BIT;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const float x = v[i], y = v[i + N / 2];
            v[i] = (high ? y : x) + __shfl_xor_sync(0xffffffffu, high ? x : y, BIT);
        }
        return sum_lanes<N / 2, BIT / 2>(v);
    }
}

/* ---- state into scratch: [n_seqs][n] of T; in_place: all but new sequences and those that read in place ---- */

template <typename T>
static __global__ void gather_kernel(seqs_dev seqs, const T *state, int64_t stride, int64_t n, int phase, int in_place,
                                     T *to)
{
    pdl_go();
    pdl_wait();
    const int s = blockIdx.y, slot = seqs.slot_in[s];
    if (!takes_part(seqs, s, phase) || (in_place && (slot < 0 || reads_in_place(slot, seqs.slot_out[s]))))
        return;
    const int64_t step = (int64_t)gridDim.x * GATHER_THREADS;
    for (int64_t i = blockIdx.x * (int64_t)GATHER_THREADS + threadIdx.x; i < n; i += step)
        to[s * n + i] = slot < 0 ? state_rounded<T>(0.0f) : state[slot * stride + i];
}

template <typename T>
static void gather(cuda_device *d, const seqs_dev &seqs, const T *state, int64_t stride, int64_t n, int phase,
                   int in_place)
{
    const int64_t blocks = (n + GATHER_THREADS - 1) / GATHER_THREADS;
    const int64_t most = in_place ? 8 : 256; /* in place: seldom any work */
    const dim3 grid((unsigned)(blocks < most ? blocks : most), (unsigned)seqs.n_seqs);
    if (n > 0)
        cuda_launch(d, gather_kernel<T>, grid, GATHER_THREADS, 0, seqs, state, stride, n, phase, in_place,
                    (T *)d->scratch);
}

#endif
