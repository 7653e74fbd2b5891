/* wtype_tq2_0.c: TQ2_0 weights (ternary models).
 * Block of 256 values, 66 bytes: u8 qs[64] | f16 d.   Half H (128 values): value 32q + l of it is bits 2q, 2q+1 of
 * qs[32H + l].   x = d * (code - 1); code 3 is 2d.   Encode: d = amax, code = round(x/d) + 1, halves away from zero. */
#include "formats/weights/wtype_internal.h"

enum { N = 256, BYTES = 66, D = 64 };

void wtype_tq2_0_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src + D));
        for (int i = 0; i < N; i++)
            dst[i] = d * (float)((src[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) - 1);
    }
}

void wtype_tq2_0_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        const float d = wtype_amax(src, N), half = 0.5f * d;
        memset(dst, 0, BYTES);
        store_u16(dst + D, f32_to_half(d));
        for (int i = 0; i < N; i++) {
            const int code = d > 0.0f && src[i] >= half ? 2 : d > 0.0f && src[i] <= -half ? 0 : 1;
            uint8_t *q = &dst[32 * (i / 128) + i % 32];
            *q = (uint8_t)(*q | code << 2 * (i % 128 / 32));
        }
    }
}
