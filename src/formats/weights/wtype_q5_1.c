/* wtype_q5_1.c: Q5_1 weights.
 * Block of 32 values, 24 bytes: f16 d | f16 m | u8 qh[4] | u8 qs[16], bits as Q5_0's.   x = d*n + m.
 * Encode as Q4_1, with codes up to 31. */
#include "formats/weights/wtype_internal.h"

enum { N = 32, BYTES = 24 };

void wtype_q5_1_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src)), m = half_to_f32(load_u16(src + 2));
        for (int j = 0; j < N; j++)
            dst[j] = d * (float)wtype_five_bits(src + 4, src + 8, j) + m;
    }
}

void wtype_q5_1_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        uint8_t code[N];
        wtype_min_max(src, dst, 31, code);
        wtype_pack_five(code, dst + 4, dst + 8);
    }
}
