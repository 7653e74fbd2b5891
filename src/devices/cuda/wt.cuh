/* wt.cuh: the decoders of the weight types, eight values at a time: wt_<type>(row, c, w) gives values 8c .. 8c+7 of a
 * row in file layout, with the roundings of the reference.  Eight values never cross a sub-block.  f32, f16 and bf16
 * rows must be 16-byte aligned; wt_<type>_one reads one value of any row of those.  Compiles as C too
 * (portable.cuh). */
#ifndef KVANT_CUDA_WT_CUH
#define KVANT_CUDA_WT_CUH

#include "devices/cuda/portable.cuh"

PORT_TABLE signed char wt_e2m1[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

PORT_FN float wt_f32_one(const uint8_t *row, int64_t k)
{
    return port_f32(row + 4 * k);
}

PORT_FN float wt_f16_one(const uint8_t *row, int64_t k)
{
    return port_half(row + 2 * k);
}

PORT_FN float wt_bf16_one(const uint8_t *row, int64_t k)
{
    return port_bf16(row + 2 * k);
}

PORT_FN void wt_f32(const uint8_t *row, int64_t c, float *w)
{
#ifdef __CUDACC__
    const float4 a = *(const float4 *)(row + 32 * c), b = *(const float4 *)(row + 32 * c + 16);
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
#else
    for (int i = 0; i < 8; i++)
        w[i] = port_f32(row + 32 * c + 4 * i);
#endif
}

PORT_FN void wt_f16(const uint8_t *row, int64_t c, float *w)
{
#ifdef __CUDACC__
    const uint4 v = *(const uint4 *)(row + 16 * c);
    const uint32_t u[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[2 * i] = __half2float(__ushort_as_half((unsigned short)(u[i] & 0xffffu)));
        w[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(u[i] >> 16)));
    }
#else
    for (int i = 0; i < 8; i++)
        w[i] = port_half(row + 16 * c + 2 * i);
#endif
}

PORT_FN void wt_bf16(const uint8_t *row, int64_t c, float *w)
{
#ifdef __CUDACC__
    const uint4 v = *(const uint4 *)(row + 16 * c);
    const uint32_t u[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[2 * i] = port_bits(u[i] << 16);
        w[2 * i + 1] = port_bits(u[i] & 0xffff0000u);
    }
#else
    for (int i = 0; i < 8; i++)
        w[i] = port_bf16(row + 16 * c + 2 * i);
#endif
}

PORT_FN void wt_q8_0(const uint8_t *row, int64_t c, float *w)
{
    const uint8_t *b = row + (c >> 2) * 34, *q = b + 2 + 8 * (c & 3);
    const float d = port_half(b);
    for (int i = 0; i < 8; i++)
        w[i] = d * (float)(int8_t)q[i];
}

PORT_FN void wt_q4_0(const uint8_t *row, int64_t c, float *w)
{
    const uint8_t *b = row + (c >> 2) * 18, *q = b + 2 + 8 * (c & 1);
    const float d = port_half(b);
    const int shift = c & 2 ? 4 : 0;
    for (int i = 0; i < 8; i++)
        w[i] = d * (float)((q[i] >> shift & 15) - 8);
}

PORT_FN void wt_q4_k(const uint8_t *row, int64_t c, float *w)
{
    const uint8_t *b = row + (c >> 5) * 144, *sc = b + 4;
    const int k = (int)(c >> 2 & 7), shift = 4 * (k & 1);
    const uint8_t *q = b + 16 + 32 * (k / 2) + 8 * (c & 3);
    const int s = k < 4 ? sc[k] & 63 : (sc[k + 4] & 15) | (sc[k - 4] >> 6) << 4;
    const int m = k < 4 ? sc[k + 4] & 63 : sc[k + 4] >> 4 | (sc[k] >> 6) << 4;
    const float a = port_half(b) * (float)s, least = port_half(b + 2) * (float)m;
    for (int i = 0; i < 8; i++)
        w[i] = a * (float)(q[i] >> shift & 15) - least;
}

PORT_FN void wt_q6_k(const uint8_t *row, int64_t c, float *w)
{
    const uint8_t *b = row + (c >> 5) * 210;
    const int v = 8 * (int)(c & 31), half = v / 128, l = v % 32, quarter = v % 128 / 32;
    const uint8_t *lo = b + 64 * half + l + 32 * (quarter & 1), *hi = b + 128 + 32 * half + l;
    const float scale = port_half(b + 208) * (float)(int8_t)b[192 + v / 16];
    for (int i = 0; i < 8; i++)
        w[i] = scale * (float)(((lo[i] >> 4 * (quarter >> 1) & 15) | (hi[i] >> 2 * quarter & 3) << 4) - 32);
}

PORT_FN void wt_mxfp4(const uint8_t *row, int64_t c, float *w)
{
    const uint8_t *b = row + (c >> 2) * 17, *q = b + 1 + 8 * (c & 1);
    const uint32_t e = b[0];
    const float h = port_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    const int shift = c & 2 ? 4 : 0;
    for (int i = 0; i < 8; i++)
        w[i] = h * (float)wt_e2m1[q[i] >> shift & 15];
}

PORT_FN void wt_nvfp4(const uint8_t *row, int64_t c, float *w)
{
    const uint8_t *b = row + (c >> 3) * 36;
    const int s = (int)(c >> 1 & 3), shift = c & 1 ? 4 : 0;
    const uint8_t *q = b + 4 + 8 * s;
    const uint32_t u = b[s], e = u >> 3 & 15u, m = u & 7u;
    float h = e ? (float)(8u + m) * port_bits((e + 117u) << 23) : (float)m * port_bits(118u << 23);
    h = u == 0x7fu || u == 0 ? 0.0f : 0.5f * h;
    for (int i = 0; i < 8; i++)
        w[i] = h * (float)wt_e2m1[q[i] >> shift & 15];
}

#endif
