/* f8_e4m3: one byte per value, S.EEEE.MMM with bias 7, no infinities, 0x7f and 0xff NaN; times one f32 scale per
 * tensor (param: pointer to it, NULL means 1.0).  Group 1: any head_dim.
 *
 * Encode: x/scale to nearest even; beyond 448 (Inf too) saturates to 448, NaN stays NaN.
 * The FP8 baseline of published speed tables. */
#include "formats/format.h"

#include <math.h>
#include "base/half.h"

static float scale_of(const void *param)
{
    float scale = 1.0f;
    if (param)
        memcpy(&scale, param, sizeof scale);
    return scale;
}

static uint8_t f32_to_e4m3(float v)
{
    uint32_t u = f32_bits(v), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (a >= 0x43e00000u)                  /* 448 and more */
        return (uint8_t)(sign | 0x7eu);
    if (a < 0x3c800000u) {                 /* below 2^-6: subnormal, steps of 2^-9 */
        float t = bits_f32(a) + 16384.0f;  /* adds at 2^-9: rounds to nearest even */
        return (uint8_t)(sign | (f32_bits(t) - 0x46800000u));
    }
    uint32_t r = (a + 0x7ffffu + (a >> 20 & 1u)) >> 20;
    return (uint8_t)(sign | (r - (120u << 3)));        /* exponent bias 127 -> 7; 3 mantissa bits stay */
}

static float e4m3_to_f32(uint8_t b)
{
    int e = b >> 3 & 15, m = b & 7;
    float v = e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
    if ((b & 0x7f) == 0x7f)
        v = bits_f32(0x7fc00000u);
    return b & 0x80 ? -v : v;
}

static void f8_e4m3_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)encoder;                         /* nearest is already the least error */
    *bytes = f32_to_e4m3(*x / scale_of(param));
}

static void f8_e4m3_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    *acc = e4m3_to_f32(*bytes) * scale_of(param);
}

KVANT_FORMAT_REAL_SPACE(f8_e4m3, 1)
KVANT_FORMAT_DEFINE(f8_e4m3, "f8 fp8 fp8_e4m3", 1, 1, 1, 0);
