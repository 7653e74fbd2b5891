/* portable.h: lets the decoders that tools/gen_tables makes of the cards (cards/decode.h) compile everywhere: as device
 * code (CUDA, and the portable kernels), and as C on the host, where a test without a GPU compares each with its
 * reference.  Two-byte loads are aligned unless they are port_u16: rows and blocks have even sizes but for those that
 * are read byte by byte. */
#ifndef KVANT_DEVICES_PORTABLE_H
#define KVANT_DEVICES_PORTABLE_H

#if defined(PORT_MEM)                       /* a kernel: devices/portable/core/k_dialect.h defines what is below */
#elif defined(__CUDACC__)
#include <stdint.h>
#include <cuda_fp16.h>
#define PORT_MEM
#define PORT_OWN
#define PORT_FN static __device__ __forceinline__
#define PORT_TABLE static __device__ const

PORT_FN float port_bits(uint32_t u)
{
    return __uint_as_float(u);
}

PORT_FN float port_half_of(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

PORT_FN float port_half(const uint8_t *p)
{
    return port_half_of(*(const uint16_t *)p);
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
#include <stdint.h>
#include <string.h>
#include "base/half.h"
#define PORT_MEM                            /* the space of memory that rows lie in */
#define PORT_OWN                            /* a thread's own */
#define PORT_FN static inline
#define PORT_TABLE static const

PORT_FN float port_bits(uint32_t u)
{
    return bits_f32(u);
}

PORT_FN float port_half_of(uint16_t h)
{
    return half_to_f32(h);
}

PORT_FN float port_half(const uint8_t *p)
{
    return port_half_of(load_u16(p));
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

PORT_FN uint32_t port_u16(PORT_MEM const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

/* `bits` bits (up to 9) from bit `at` of a record on; no byte is read that holds none of them. */
PORT_FN int port_field(PORT_MEM const uint8_t *b, int at, int bits)
{
    PORT_MEM const uint8_t *p = b + (at >> 3);
    const int shift = at & 7, more = shift + bits > 8 ? p[1] << 8 : 0;
    return (p[0] | more) >> shift & ((1 << bits) - 1);
}

/* Pages of page scope (formats/ptcq/ptcq.h): state t of a row, the nine bits of (start, codes) that end with symbol t
 * of k bits; start: the row's byte, of which the lowest 9 - k bits count. */
PORT_FN int port_page_state(PORT_MEM const uint8_t *codes, uint32_t start, int k, int t)
{
    const int bit = k * (t + 1) - 9;
    const uint32_t w = port_u16(codes + (bit < 0 ? 0 : bit >> 3));
    return (int)((bit < 0 ? (w << (9 - k) | (start & ((512u >> k) - 1u))) >> k * t : w >> (bit & 7)) & 511u);
}

/* The step of the mean: an f16, a bit in each of 16 bytes. */
PORT_FN float port_page_step(PORT_MEM const uint8_t *start)
{
    uint32_t bits = 0u;
    for (int i = 0; i < 16; i++)
        bits |= (uint32_t)(start[i] >> 7) << i;
    return port_half_of((uint16_t)bits);
}

/* The highest nibbles of four u16, lowest first (IQ1_M's scale). */
PORT_FN uint16_t port_nibbles(PORT_MEM const uint8_t *p)
{
    return (uint16_t)(p[1] >> 4 | p[3] >> 4 << 4 | p[5] >> 4 << 8 | p[7] >> 4 << 12);
}

PORT_FN float port_half_nibbles(PORT_MEM const uint8_t *p)
{
    return port_half_of(port_nibbles(p));
}

/* Code v of the 256 of TQ1_0: digit n of a byte is what its product with 3^n, modulo 256, times 3 carries. */
PORT_FN int port_trit(PORT_MEM const uint8_t *q, int v)
{
    const int row = v < 160 ? 32 : v < 240 ? 16 : 4, first = v < 160 ? 0 : v < 240 ? 160 : 240;
    const int n = (v - first) / row, power = n == 4 ? 81 : 0x1b090301 >> 8 * n & 255;
    return 3 * (q[first / 5 + (v - first) % row] * power & 255) >> 8;
}

/* Seven signs, above them the one that makes their count even. */
PORT_FN int port_even_signs(int s)
{
    const int four = s ^ s >> 4, two = four ^ four >> 2;
    return s | ((two ^ two >> 1) & 1) << 7;
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
PORT_FN int port_six_bit_pairs(PORT_MEM const uint8_t *sc, int k)
{
    const int s = k < 4 ? sc[k] & 63 : (sc[k + 4] & 15) | (sc[k - 4] >> 6) << 4;
    const int m = k < 4 ? sc[k + 4] & 63 : sc[k + 4] >> 4 | (sc[k] >> 6) << 4;
    return s | m << 6;
}

#endif
