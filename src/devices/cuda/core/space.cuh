/* space.cuh: prep_q and finish_out of all formats by a whole block, on values in shared memory; a rotation by a warp;
 * the decoder of any format by its number.  Rotations use the references' order of operations: the same bits. */
#ifndef KVANT_CUDA_SPACE_CUH
#define KVANT_CUDA_SPACE_CUH

#include "devices/cuda/core/cuda_dev.cuh"
#include "cards/decode.h"
#include "cards/tables.inc"

static __device__ const __align__(16) float space_signs1[128] = { ROTATE_SIGNS1 };
static __device__ const __align__(16) float space_signs2[128] = { ROTATE_SIGNS2 };
static __device__ const __align__(16) float space_signs32[32] = { ROTATE_SIGNS32 };

/* Value j of a row in acc space, f FMT_* (the same for the whole launch). */
static __device__ __forceinline__ float fmt_value(int f, const uint8_t *row, int j, float scale)
{
    float v = 0.0f;
#define CARD_FORMAT(name, values, bytes, space, cls, codes) \
    if (f == FMT_##name)                                                                           \
        v = fmt_##name(row, j, scale);                                                             \
    else
#include "cards/lists.inc"
#undef CARD_FORMAT
        v = NAN;
    return v;
}

/* Byte `b` of the 16 that mirror_pairs (halves.cuh) reads: magnitude m of a book of `bits` bits is its upper half's. */
static __device__ __forceinline__ uint8_t mirror_byte(int fmt, int bits, int b)
{
    const int m = b % 8 & ((1 << (bits - 1)) - 1);
    const uint16_t v = __half_as_ushort(__float2half_rn(fmt_level(fmt, (1 << (bits - 1)) + m)));
    return (uint8_t)(b < 8 ? v >> 8 : v);
}

/* Unnormalised Hadamard over blocks of `size` values of x[n] in shared memory. */
static __device__ void space_butterfly(float *x, int n, int size)
{
    for (int h = 1; h < size; h *= 2) {
        __syncthreads();
        for (int p = threadIdx.x; p < n / 2; p += blockDim.x) {
            const int i = p / h * 2 * h + p % h;
            const float a = x[i], b = x[i + h];
            x[i] = a + b;
            x[i + h] = a - b;
        }
    }
    __syncthreads();
}

static __device__ void space_times(float *x, int n, const float *signs, int period, float k)
{
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float v = x[i] * k;
        x[i] = signs ? v * signs[i % period] : v;
    }
    __syncthreads();
}

/* The rotation of a space, in place on x[n]; back: its inverse. */
static __device__ void space_rotate(int space, int back, float *x, int n)
{
    if (space == SPACE_P32) {
        if (!back)
            space_times(x, n, space_signs32, 32, 1.0f);
        space_butterfly(x, n, 32);
        space_times(x, n, back ? space_signs32 : NULL, 32, port_bits(0x3e3504f3u));
    } else if (space == SPACE_R128) {
        space_times(x, n, back ? space_signs2 : space_signs1, 128, 1.0f);
        space_butterfly(x, n, 128);
        space_times(x, n, back ? space_signs1 : space_signs2, 128, port_bits(0x3db504f3u));
    } else if (space == SPACE_H128) {
        space_butterfly(x, n, 128);
        space_times(x, n, NULL, 128, 1.0f / 128.0f);
    }
}

/* Unnormalised Hadamard over N values of one lane, or the first steps of a larger one. */
template <int N> static __device__ __forceinline__ void lane_steps(float *v)
{
#pragma unroll
    for (int h = 1; h < N; h *= 2)
#pragma unroll
        for (int i = 0; i < N; i++)
            if (!(i & h)) {
                const float a = v[i], b = v[i + h];
                v[i] = a + b;
                v[i + h] = a - b;
            }
}

/* Forwards, by a warp: lane l has values V*l .. V*l + V - 1; blocks of `size` values, 32 or 128. */
template <int V> static __device__ __forceinline__ void warp_butterfly(float *x, int size, int lane)
{
    lane_steps<V>(x);
#pragma unroll
    for (int h = V; h < 128; h *= 2) {
        if (h >= size)
            break;
        const float sign = lane & (h / V) ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < V; i++)
            x[i] = fmaf(x[i], sign, __shfl_xor_sync(0xffffffffu, x[i], h / V));
    }
}

template <int V> struct __align__(V < 4 ? 4 * V : 16) lane_vec {
    float at[V < 4 ? V : 4];
};

/* The V values at `from`, which is aligned as lane_vec is. */
template <int V> static __device__ __forceinline__ void lane_take(const float *from, float *x)
{
    constexpr int N = V < 4 ? V : 4;
#pragma unroll
    for (int i = 0; i < V; i += N) {
        const lane_vec<V> v = *(const lane_vec<V> *)(from + i);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[i + j] = v.at[j];
    }
}

/* A warp's rotation multiplies a lane's values by these, before and behind the butterfly: its signs and its scale. */
template <int V> struct warp_space {
    int size; /* 0: no rotation */
    float before[V], behind[V];
};

template <int V> static __device__ __forceinline__ warp_space<V> warp_space_of(int space, int lane)
{
    const int at = lane * V % (space == SPACE_P32 ? 32 : 128);
    const float k = port_bits(space == SPACE_P32 ? 0x3e3504f3u : space == SPACE_R128 ? 0x3db504f3u : 0x3c000000u);
    warp_space<V> o = { space == SPACE_REAL ? 0 : space == SPACE_P32 ? 32 : 128 };
#pragma unroll
    for (int i = 0; i < V; i++)
        o.before[i] = o.behind[i] = 1.0f;
    if (space == SPACE_P32 || space == SPACE_R128)
        lane_take<V>((space == SPACE_P32 ? space_signs32 : space_signs1) + at, o.before);
    if (space == SPACE_R128)
        lane_take<V>(space_signs2 + at, o.behind);
#pragma unroll
    for (int i = 0; i < V; i++)
        o.behind[i] *= k;
    return o;
}

template <int V> static __device__ __forceinline__ void warp_rotate(const warp_space<V> &o, float *x, int lane)
{
    if (o.size == 0)
        return;
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] *= o.before[i];
    warp_butterfly<V>(x, o.size, lane);
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] *= o.behind[i];
}

template <int V> static __device__ __forceinline__ void warp_rotate(int space, float *x, int lane)
{
    warp_rotate<V>(warp_space_of<V>(space, lane), x, lane);
}

/* qp[sdim] from q[dp], both in shared memory; qp may be q except in the sketch space. */
static __device__ void space_prep(const side_dev &s, const float *q, float *qp)
{
    __syncthreads();
    if (s.space == SPACE_SKETCH) {
        for (int j = threadIdx.x; j < s.sdim; j += blockDim.x) {
            const float *x = q + j / 256 * 128, *pi = s.param + j % 256;
            float sum = 0.0f;
            for (int i = 0; i < 128; i++)
                sum += x[i] * pi[i * 256];
            qp[j] = sum;
        }
        __syncthreads();
        return;
    }
    for (int j = threadIdx.x; j < s.dp; j += blockDim.x)
        qp[j] = q[j];
    space_rotate(s.space, 0, qp, s.dp);
    __syncthreads();
}

/* acc[sdim] -> x[dp], both in shared memory; x may be acc except in the sketch space. */
static __device__ void space_finish(const side_dev &s, const float *acc, float *x)
{
    __syncthreads();
    if (s.space == SPACE_SKETCH) {
        for (int i = threadIdx.x; i < s.dp; i += blockDim.x) {
            const float *a = acc + i / 128 * 256, *pi = s.param + i % 128 * 256;
            float sum = 0.0f;
            for (int j = 0; j < 256; j++)
                sum += pi[j] * a[j];
            x[i] = sum;
        }
        __syncthreads();
        return;
    }
    for (int j = threadIdx.x; j < s.dp; j += blockDim.x)
        x[j] = acc[j];
    space_rotate(s.space, 1, x, s.dp);
    __syncthreads();
}

#endif
