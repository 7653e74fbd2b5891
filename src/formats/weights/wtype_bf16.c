/* wtype_bf16.c: BF16 weights: the upper 16 bits of an f32; little-endian.  Encodes to nearest even, NaN stays NaN. */
#include "formats/weights/wtype_internal.h"

void wtype_bf16_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_to_f32(load_u16(src + 2 * i));
}

void wtype_bf16_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        store_u16(dst + 2 * i, f32_to_bf16(src[i]));
}
