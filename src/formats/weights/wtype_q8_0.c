/* wtype_q8_0.c: Q8_0 weights.
 * Block of 32 values, 34 bytes: f16 d | i8 q[32].   x_i = d * q_i.
 * Encode: d = amax/127, q = x/d rounded half away from zero with the d that is not yet rounded to f16. */
#include "formats/weights/wtype_internal.h"

enum { N = 32, BYTES = 34 };

void wtype_q8_0_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int i = 0; i < N; i++)
            dst[i] = d * (float)(int8_t)src[2 + i];
    }
}

void wtype_q8_0_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        const float d = wtype_amax(src, N) / 127.0f;
        store_u16(dst, f32_to_half(d));
        for (int i = 0; i < N; i++)
            dst[2 + i] = (uint8_t)wtype_clamp_round(d > 0.0f ? roundf(src[i] / d) : 0.0f, -127, 127);
    }
}
