/* wtype_iq4_nl.c: IQ4_NL weights, and the levels that IQ4_XS shares.
 * Block of 32 values, 18 bytes: f16 d | u8 qs[16].   Low nibble of byte j: value j, high nibble: value j+16.
 * x = d * level[nibble].   Encoder: wtype_signed.c. */
#include "formats/weights/wtype_internal.h"

enum { N = 32, HALF = 16, BYTES = 18 };

const int8_t wtype_iq4_levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

void wtype_iq4_nl_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int j = 0; j < HALF; j++) {
            dst[j] = d * (float)wtype_iq4_levels[src[2 + j] & 15];
            dst[j + HALF] = d * (float)wtype_iq4_levels[src[2 + j] >> 4];
        }
    }
}

static const wtype_signed search = { N, N, 1, -127, 113, 1, 1, wtype_iq4_levels };

void wtype_iq4_nl_weighted(const float *src, const float *importance, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += N, dst += BYTES) {
        int one;
        const float *x = src + i, d = wtype_signed_fit(&search, x, importance ? importance + i : NULL, &one);
        store_u16(dst, f32_to_half(d));
        for (int j = 0; j < HALF; j++)
            dst[2 + j] =
                (uint8_t)(wtype_signed_code(&search, x[j], d) | wtype_signed_code(&search, x[j + HALF], d) << 4);
    }
}

void wtype_iq4_nl_quant(const float *src, uint8_t *dst, int64_t n)
{
    wtype_iq4_nl_weighted(src, NULL, dst, n / N * N);
}
