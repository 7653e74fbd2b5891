/* portable.cuh: lets fmt.cuh and wt.cuh compile twice: as device code, and as C on the host, where a test without a GPU
 * compares every decoder with its reference.  Two-byte loads are aligned: rows and blocks have even sizes but for those
 * that are read byte by byte. */
#ifndef KVANT_CUDA_PORTABLE_CUH
#define KVANT_CUDA_PORTABLE_CUH

#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define PORT_FN static __device__ __forceinline__
#define PORT_TABLE static __device__ const

PORT_FN float port_bits(uint32_t u)
{
    return __uint_as_float(u);
}

PORT_FN float port_half(const uint8_t *p)
{
    return __half2float(__ushort_as_half(*(const unsigned short *)p));
}

PORT_FN float port_bf16(const uint8_t *p)
{
    return port_bits((uint32_t)*(const uint16_t *)p << 16);
}

PORT_FN float port_f32(const uint8_t *p)
{
    return *(const float *)p;
}
#else
#include <string.h>
#include "base/half.h"
#define PORT_FN static inline
#define PORT_TABLE static const

PORT_FN float port_bits(uint32_t u)
{
    return bits_f32(u);
}

PORT_FN float port_half(const uint8_t *p)
{
    return half_to_f32(load_u16(p));
}

PORT_FN float port_bf16(const uint8_t *p)
{
    return bf16_to_f32(load_u16(p));
}

PORT_FN float port_f32(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}
#endif
#endif
