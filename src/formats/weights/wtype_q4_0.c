/* wtype_q4_0.c: Q4_0 weights.
 * Block of 32 values, 18 bytes: f16 d | u8 qs[16].   Low nibble of byte j: value j, high nibble: value j+16.
 * x = d * (nibble - 8).  Encode: d = (signed value of largest magnitude) / -8, nibble = min(15, trunc(x/d + 8.5)). */
#include "formats/weights/wtype_internal.h"

enum { N = 32, HALF = 16, BYTES = 18 };

void wtype_q4_0_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int j = 0; j < HALF; j++) {
            dst[j] = d * (float)((src[2 + j] & 15) - 8);
            dst[j + HALF] = d * (float)((src[2 + j] >> 4) - 8);
        }
    }
}

static unsigned nibble(float x, float d)
{
    const float v = d != 0.0f ? x / d + 8.5f : 8.5f;

    if (!(v > 0.0f)) /* NaN too */
        return 0;
    return v >= 15.0f ? 15u : (unsigned)v;
}

void wtype_q4_0_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        float peak = 0.0f; /* the first of the largest magnitude, with its sign */
        for (int i = 0; i < N; i++)
            if (fabsf(src[i]) > fabsf(peak))
                peak = src[i];
        const float d = peak / -8.0f;
        store_u16(dst, f32_to_half(d));
        for (int j = 0; j < HALF; j++)
            dst[2 + j] = (uint8_t)(nibble(src[j], d) | nibble(src[j + HALF], d) << 4);
    }
}
