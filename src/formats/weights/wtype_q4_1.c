/* wtype_q4_1.c: Q4_1 weights, and the search that Q5_1 shares.
 * Block of 32 values, 20 bytes: f16 d | f16 m | u8 qs[16].   Low nibble of byte j: value j, high nibble: value j+16.
 * x = d*n + m.  Encode: m = least value, d = (largest - least) / 15, n = trunc((x - m)/d + .5), with the d and m that
 * are not yet rounded to f16. */
#include "formats/weights/wtype_internal.h"

enum { N = 32, HALF = 16, BYTES = 20 };

void wtype_q4_1_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src)), m = half_to_f32(load_u16(src + 2));
        for (int j = 0; j < HALF; j++) {
            dst[j] = d * (float)(src[4 + j] & 15) + m;
            dst[j + HALF] = d * (float)(src[4 + j] >> 4) + m;
        }
    }
}

void wtype_min_max(const float *x, uint8_t *dst, int top, uint8_t *code)
{
    float lo = x[0], hi = x[0];

    for (int i = 0; i < N; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    const float d = (hi - lo) / (float)top, inv = d > 0.0f ? 1.0f / d : 0.0f;
    store_u16(dst, f32_to_half(d));
    store_u16(dst + 2, f32_to_half(lo));
    for (int i = 0; i < N; i++) {
        const float v = (x[i] - lo) * inv + 0.5f;
        code[i] = (uint8_t)(!(v > 0.0f) ? 0 : v >= (float)top ? top : (int)v);
    }
}

void wtype_q4_1_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        uint8_t code[N];
        wtype_min_max(src, dst, 15, code);
        for (int j = 0; j < HALF; j++)
            dst[4 + j] = (uint8_t)(code[j] | code[j + HALF] << 4);
    }
}
