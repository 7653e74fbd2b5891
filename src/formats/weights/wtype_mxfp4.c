/* wtype_mxfp4.c: MXFP4 weights (OCP microscaling), and the E2M1 code that NVFP4 shares.
 * Block of 32 values, 17 bytes: u8 e | u8 qs[16].   Low nibble of byte j: value j, high nibble: value j+16.
 * x = 2^(e-127) * E2M1(nibble).  Nibble 8 decodes to +0 (codes are integers times a scale).
 * e = 255 (NaN in OCP) is computed like any other: 0, +-2^127 or infinity. */
#include "formats/weights/wtype_internal.h"

enum { N = 32, HALF = 16, BYTES = 17 };

const int8_t wtype_e2m1_x2[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

unsigned wtype_e2m1_encode(float x, double half_scale)
{
    const double a = fabs((double)x);
    unsigned best = 0;
    double best_err = a;

    for (unsigned c = 1; c < 8; c++) {
        const double err = fabs(wtype_e2m1_x2[c] * half_scale - a);
        if (err < best_err) {
            best = c;
            best_err = err;
        }
    }
    return best && x < 0.0f ? best | 8u : best;
}

/* 2^(e-128): half of the block's scale.  Subnormal for e = 0 and 1. */
static float half_power(unsigned e)
{
    return bits_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

void wtype_mxfp4_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float h = half_power(src[0]);
        for (int j = 0; j < HALF; j++) {
            dst[j] = h * (float)wtype_e2m1_x2[src[1 + j] & 15];
            dst[j + HALF] = h * (float)wtype_e2m1_x2[src[1 + j] >> 4];
        }
    }
}

/* floor(log2(amax)) - 2 + 127: the largest value falls on 4 or 6.  Clamped to 0..254; 0 for a block of zeroes. */
static unsigned block_exponent(float amax)
{
    if (!(amax > 0.0f))
        return 0;
    if (!(amax <= 3.0e38f))
        return 252;
    const int e = ilogbf(amax) - 2 + 127;
    return e < 0 ? 0u : (unsigned)e;
}

void wtype_mxfp4_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        const unsigned e = block_exponent(wtype_amax(src, N));
        const double h = half_power(e);
        dst[0] = (uint8_t)e;
        for (int j = 0; j < HALF; j++)
            dst[1 + j] = (uint8_t)(wtype_e2m1_encode(src[j], h) | wtype_e2m1_encode(src[j + HALF], h) << 4);
    }
}
