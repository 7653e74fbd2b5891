/* dialect_hip.h: the portable kernels' words in HIP, which are also those of CUDA C++: hiprtc reads this file on
 * AMD GPUs, hipcc in the tests, NVRTC where a test runs the same text on an NVIDIA GPU.  Pointers are of one
 * address space. */
#ifndef KVANT_PORTABLE_DIALECT_HIP_H
#define KVANT_PORTABLE_DIALECT_HIP_H

#ifdef __clang__
#pragma clang fp contract(off)             /* NVRTC takes an option */
#endif

/* Macros: what a runtime compiler's own headers call by these names may be another type of the same size. */
#define int8_t signed char
#define uint8_t unsigned char
#define int16_t short
#define uint16_t unsigned short
#define int32_t int
#define uint32_t unsigned int
#define int64_t long long
#define uint64_t unsigned long long

#define GLOBAL
#define LOCAL
#define OWN
#define CONST_TABLE static __device__ const
#define FN static __device__ inline

#define KERNEL(name) extern "C" __global__ __launch_bounds__(THREADS) void k_##name
#define BUFFER(type, name, index) type *name,
#define PARAMS(name, index) const p_##name p
#define OPEN(type, name)
#define LOCAL_ARRAY(type, name, n) __shared__ type name[n];

#define GROUP_X ((int)blockIdx.x)
#define GROUP_Y ((int)blockIdx.y)
#define GROUP_Z ((int)blockIdx.z)
#define THREAD ((int)threadIdx.x)
#define BARRIER() __syncthreads()
#define BARRIER_ALL() __syncthreads()      /* orders accesses to all memory inside the group */

template <class T> FN T port_min(T a, T b)
{
    return b < a ? b : a;
}

template <class T> FN T port_max(T a, T b)
{
    return a < b ? b : a;
}

FN float port_bits(uint32_t u)
{
    return __uint_as_float(u);
}

FN uint32_t port_word(float v)
{
    return __float_as_uint(v);
}

#define min port_min
#define max port_max
#define exp expf
#define log logf
#define sin sinf
#define cos cosf
#define tanh tanhf
#define sqrt sqrtf
#define floor floorf
#define rint rintf
#define fabs fabsf
#define fma fmaf
#define pow powf
#define fmin fminf
#define fmax fmaxf
#define popcount(v) __popc((unsigned)(v))
#define clz(v) __clz((int)(v))

#endif
