/* wtype_f32.c: F32 weights: IEEE single, little-endian, as they are. */
#include "formats/weights/wtype_internal.h"

void wtype_f32_dequant(const uint8_t *src, float *dst, int64_t n)
{
    if (n > 0)
        memcpy(dst, src, (size_t)n * sizeof *dst);
}

void wtype_f32_quant(const float *src, uint8_t *dst, int64_t n)
{
    if (n > 0)
        memcpy(dst, src, (size_t)n * sizeof *src);
}
