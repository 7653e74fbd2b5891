/* wtype_nvfp4.c: NVFP4 weights.
 * Block of 64 values, 36 bytes: u8 d[4] (UE4M3, one per 16 values) | u8 qs[32].
 * Sub-block s has bytes qs[8s..8s+7]: low nibble of byte 8s+j: value 16s+j, high nibble: value 16s+8+j.
 * x = ue4m3(d[s]) * E2M1(nibble).  The second-level scale of a tensor (`<name>.scale`) is not part of the block.
 * Encode: d = amax/6 rounded to UE4M3, then the nearest code against the decoded d. */
#include "formats/weights/wtype_internal.h"

enum { N = 64, SUB = 16, SUBS = 4, BYTES = 36 };

/* 0 for 0 and for 0x7F (NaN in E4M3); the sign bit is not looked at otherwise. */
static float ue4m3(unsigned b)
{
    const unsigned e = b >> 3 & 15u, m = b & 7u;

    if (b == 0 || b == 0x7f)
        return 0.0f;
    if (e == 0)
        return (float)m * 0x1p-9f;
    return (float)(8u + m) * bits_f32((e - 10u + 127u) << 23); /* (1 + m/8) * 2^(e-7) */
}

/* Nearest UE4M3, halves up, at most 448 (0x7E). */
static unsigned ue4m3_encode(float x)
{
    if (!(x > 0.0f))
        return 0;
    if (x >= 448.0f)
        return 0x7e;
    if (x < 0x1p-6f)
        return (unsigned)(x * 512.0f + 0.5f);  /* 8 is 2^-6, the first normal code: the codes are continuous */
    const uint32_t u = f32_bits(x) + 0x80000u; /* half of the lowest of three mantissa bits */
    const uint32_t code = (u >> 20) - ((127u - 7u) << 3);
    return code > 0x7e ? 0x7eu : code;
}

void wtype_nvfp4_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        for (int s = 0; s < SUBS; s++) {
            const float h = 0.5f * ue4m3(src[s]); /* exact: the smallest is 2^-10 */
            const uint8_t *qs = src + SUBS + 8 * s;
            for (int j = 0; j < SUB / 2; j++) {
                dst[SUB * s + j] = h * (float)wtype_e2m1_x2[qs[j] & 15];
                dst[SUB * s + SUB / 2 + j] = h * (float)wtype_e2m1_x2[qs[j] >> 4];
            }
        }
    }
}

void wtype_nvfp4_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        for (int s = 0; s < SUBS; s++) {
            const float *x = src + SUB * s;
            uint8_t *qs = dst + SUBS + 8 * s;
            dst[s] = (uint8_t)ue4m3_encode(wtype_amax(x, SUB) / 6.0f);
            const double h = 0.5 * (double)ue4m3(dst[s]);
            for (int j = 0; j < SUB / 2; j++)
                qs[j] = (uint8_t)(wtype_e2m1_encode(x[j], h) | wtype_e2m1_encode(x[j + SUB / 2], h) << 4);
        }
    }
}
