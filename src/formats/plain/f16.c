/* f16: IEEE half, 2 bytes little-endian, round to nearest even.  Group 1: any head_dim. */
#include "formats/format.h"

#include "base/half.h"

static void f16_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)param;
    (void)encoder;                         /* nearest is already the least error */
    store_u16(bytes, f32_to_half(*x));
}

static void f16_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    (void)param;
    *acc = half_to_f32(load_u16(bytes));
}

KVANT_FORMAT_REAL_SPACE(f16, 1)
KVANT_FORMAT_DEFINE(f16, "fp16 half", 1, 2, 1, KVANT_FORMAT_WIDE);
