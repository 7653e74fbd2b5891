/* base/pick.h: which block of a table stands at place i of a synthetic weight.  Host and device code share the
 * function, so that every device makes the same model. */
#ifndef KVANT_BASE_PICK_H
#define KVANT_BASE_PICK_H

#include <stdint.h>

#ifdef __CUDACC__
#define PICK_FN static __host__ __device__ __forceinline__
#else
#define PICK_FN static inline
#endif

/* In [0, n); the finisher of murmur3 over the low and high word of seed + i. */
PICK_FN uint32_t pick_block(uint64_t seed, uint64_t i, uint32_t n)
{
    const uint64_t u = (seed + i) * 0x9E3779B97F4A7C15u;
    uint32_t x = (uint32_t)(u >> 32) ^ (uint32_t)u;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    x ^= x >> 16;
    return (uint32_t)((uint64_t)x * n >> 32);
}

#endif
