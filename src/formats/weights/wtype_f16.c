/* wtype_f16.c: F16 weights: IEEE half; little-endian.  Encodes to nearest even, NaN stays NaN. */
#include "formats/weights/wtype_internal.h"

void wtype_f16_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = half_to_f32(load_u16(src + 2 * i));
}

void wtype_f16_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        store_u16(dst + 2 * i, f32_to_half(src[i]));
}
