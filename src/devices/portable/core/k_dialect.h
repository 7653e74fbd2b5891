/* k_dialect.h: the language of the portable kernels (*.k): C that is OpenCL C 1.2, MSL 3, HIP and C++ at once.  A
 * dialect header gives the macros and the types; here is what all share.  The map of it all: docs/opencl.md.
 *
 * A program is one .k file with the host's #defines (core/port_text.c).  Groups are THREADS x 1 x 1. */
#ifndef KVANT_PORTABLE_DIALECT_H
#define KVANT_PORTABLE_DIALECT_H

#ifndef THREADS
#define THREADS 64                         /* a power of two */
#endif

#if defined(__OPENCL_C_VERSION__)
#include "devices/portable/core/dialect_opencl.h"
#elif defined(__METAL_VERSION__)
#include "devices/portable/core/dialect_metal.h"
#elif defined(__HIP__) || defined(__CUDACC__)
#include "devices/portable/core/dialect_hip.h"
#else
#error "a portable kernel is OpenCL C, MSL or HIP; the shim compiles it as MSL"
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

/* ---- for devices/portable.h and cards/decode.h ---- */

#define PORT_MEM GLOBAL
#define PORT_OWN OWN
#define PORT_FN FN
#define PORT_TABLE CONST_TABLE

FN float port_half_of(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h >> 15) << 31, e = h >> 10 & 31u, m = h & 1023u;
    if (e == 0u)
        return port_bits(sign | 0x33800000u) * (float)m;           /* 2^-24 m, exact */
    return port_bits(sign | (e == 31u ? 0x7f800000u : (e + 112u) << 23) | m << 13);
}

FN float port_half(GLOBAL const uint8_t *p)
{
    return port_half_of(*(GLOBAL const uint16_t *)p);
}

FN float port_bf16(GLOBAL const uint8_t *p)
{
    return port_bits((uint32_t)*(GLOBAL const uint16_t *)p << 16);
}

FN float port_f32(GLOBAL const uint8_t *p)
{
    return *(GLOBAL const float *)p;
}

FN void port_eight_f32(GLOBAL const uint8_t *p, OWN float *w)
{
    for (int i = 0; i < 8; i++)
        w[i] = port_f32(p + 4 * i);
}

FN void port_eight_f16(GLOBAL const uint8_t *p, OWN float *w)
{
    for (int i = 0; i < 8; i++)
        w[i] = port_half(p + 2 * i);
}

FN void port_eight_bf16(GLOBAL const uint8_t *p, OWN float *w)
{
    for (int i = 0; i < 8; i++)
        w[i] = port_bf16(p + 2 * i);
}

/* ---- to 16 bits, to the nearest, ties to even ---- */

FN uint16_t port_to_bf16(float v)
{
    const uint32_t u = port_word(v);
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 64u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* u shifted right by n, to the nearest, ties to even. */
FN uint32_t port_round_shift(uint32_t u, uint32_t n)
{
    return (u + (1u << (n - 1u)) - 1u + (u >> n & 1u)) >> n;
}

FN uint16_t port_to_half(float v)
{
    const uint32_t u = port_word(v), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu, e = a >> 23;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (e < 102u)
        return (uint16_t)sign;
    if (e < 113u)
        return (uint16_t)(sign | port_round_shift((a & 0x7fffffu) | 0x800000u, 126u - e));
    return (uint16_t)(sign | port_round_shift(a - (112u << 23), 13u));
}

#include "devices/portable.h"

#endif
