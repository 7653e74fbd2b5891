/* bf16: upper half of an f32, 2 bytes little-endian, round to nearest even, NaN stays NaN.  Group 1: any head_dim. */
#include "formats/format.h"

#include "base/half.h"

static void bf16_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)param;
    (void)encoder;                         /* nearest is already the least error */
    store_u16(bytes, f32_to_bf16(*x));
}

static void bf16_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    (void)param;
    *acc = bf16_to_f32(load_u16(bytes));
}

KVANT_FORMAT_REAL_SPACE(bf16, 1)
KVANT_FORMAT_DEFINE(bf16, "bfloat16", 1, 2, 1, KVANT_FORMAT_WIDE);
