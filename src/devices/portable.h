/* portable.h: lets the decoders that tools/gen_tables makes of the cards (cards/decode.h) compile twice: as device
 * code, and as C on the host, where a test without a GPU compares each with its reference.  Two-byte loads are aligned
 * unless they are port_u16: rows and blocks have even sizes but for those that are read byte by byte. */
#ifndef KVANT_DEVICES_PORTABLE_H
#define KVANT_DEVICES_PORTABLE_H

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

/* Eight values of a 16-byte aligned row. */
PORT_FN void port_eight_f32(const uint8_t *p, float *w)
{
    const float4 a = *(const float4 *)p, b = *(const float4 *)(p + 16);
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}

PORT_FN void port_eight_f16(const uint8_t *p, float *w)
{
    const uint4 v = *(const uint4 *)p;
    const uint32_t u[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[2 * i] = __half2float(__ushort_as_half((unsigned short)(u[i] & 0xffffu)));
        w[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(u[i] >> 16)));
    }
}

PORT_FN void port_eight_bf16(const uint8_t *p, float *w)
{
    const uint4 v = *(const uint4 *)p;
    const uint32_t u[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[2 * i] = port_bits(u[i] << 16);
        w[2 * i + 1] = port_bits(u[i] & 0xffff0000u);
    }
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

PORT_FN void port_eight_f32(const uint8_t *p, float *w)
{
    for (int i = 0; i < 8; i++)
        w[i] = port_f32(p + 4 * i);
}

PORT_FN void port_eight_f16(const uint8_t *p, float *w)
{
    for (int i = 0; i < 8; i++)
        w[i] = port_half(p + 2 * i);
}

PORT_FN void port_eight_bf16(const uint8_t *p, float *w)
{
    for (int i = 0; i < 8; i++)
        w[i] = port_bf16(p + 2 * i);
}
#endif

PORT_FN uint32_t port_u16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

/* The four exponent and three mantissa bits of u, of which 0x7f is left to the caller. */
PORT_FN float port_e4m3_magnitude(uint32_t u)
{
    const uint32_t e = u >> 3 & 15u, m = u & 7u;
    return e ? (float)(8u + m) * port_bits((e + 117u) << 23) : (float)m * port_bits(118u << 23);
}

/* OCP FP8 e4m3: 0x7f is NaN. */
PORT_FN float port_e4m3(uint32_t u)
{
    const float v = (u & 0x7fu) == 0x7fu ? port_bits(0x7fc00000u) : port_e4m3_magnitude(u);
    return u & 0x80u ? -v : v;
}

/* Half of an NVFP4 scale: 0x7f counts as 0. */
PORT_FN float port_ue4m3_half(uint32_t u)
{
    return u == 0x7fu || u == 0 ? 0.0f : 0.5f * port_e4m3_magnitude(u);
}

/* Half of 2^(e - 127). */
PORT_FN float port_e8m0_half(uint32_t e)
{
    return port_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* Scale k of eight in bits 0..5, its minimum above, of the 12 bytes of Q4_K and Q5_K. */
PORT_FN int port_six_bit_pairs(const uint8_t *sc, int k)
{
    const int s = k < 4 ? sc[k] & 63 : (sc[k + 4] & 15) | (sc[k - 4] >> 6) << 4;
    const int m = k < 4 ? sc[k + 4] & 63 : sc[k + 4] >> 4 | (sc[k] >> 6) << 4;
    return s | m << 6;
}

#endif
