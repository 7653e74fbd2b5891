/* wtype_q5_0.c: Q5_0 weights, and the packing of five bits that Q5_1 shares.
 * Block of 32 values, 22 bytes: f16 d | u8 qh[4] | u8 qs[16].   Value j: low nibble of qs[j], value j+16: high nibble
 * of qs[j]; bit 4 of value j is bit j of qh.   x = d * (n - 16).
 * Encode: d = (signed value of largest magnitude) / -16, n = min(31, trunc(x/d + 16.5)). */
#include "formats/weights/wtype_internal.h"

enum { N = 32, HALF = 16, BYTES = 22 };

int wtype_five_bits(const uint8_t *qh, const uint8_t *qs, int j)
{
    const int low = j < HALF ? qs[j] & 15 : qs[j - HALF] >> 4;

    return low | (qh[j / 8] >> j % 8 & 1) << 4;
}

void wtype_pack_five(const uint8_t *code, uint8_t *qh, uint8_t *qs)
{
    memset(qh, 0, 4);
    for (int j = 0; j < N; j++)
        qh[j / 8] = (uint8_t)(qh[j / 8] | code[j] >> 4 << j % 8);
    for (int j = 0; j < HALF; j++)
        qs[j] = (uint8_t)((code[j] & 15) | (code[j + HALF] & 15) << 4);
}

void wtype_q5_0_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int j = 0; j < N; j++)
            dst[j] = d * (float)(wtype_five_bits(src + 2, src + 6, j) - 16);
    }
}

static uint8_t code_of(float x, float d)
{
    const float v = d != 0.0f ? x / d + 16.5f : 16.5f;

    return (uint8_t)(!(v > 0.0f) ? 0 : v >= 31.0f ? 31 : (int)v);
}

void wtype_q5_0_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        uint8_t code[N];
        float peak = 0.0f;      /* the first of the largest magnitude, with its sign */
        for (int i = 0; i < N; i++)
            if (fabsf(src[i]) > fabsf(peak))
                peak = src[i];
        const float d = peak / -16.0f;
        store_u16(dst, f32_to_half(d));
        for (int i = 0; i < N; i++)
            code[i] = code_of(src[i], d);
        wtype_pack_five(code, dst + 2, dst + 6);
    }
}
