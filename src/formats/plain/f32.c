/* f32: the value itself, 4 bytes little-endian.  Group 1: any head_dim. */
#include "formats/format.h"

static void f32_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)param;
    (void)encoder;                         /* nothing to search: the bytes are the value */
    memcpy(bytes, x, sizeof *x);
}

static void f32_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    (void)param;
    memcpy(acc, bytes, sizeof *acc);
}

KVANT_FORMAT_REAL_SPACE(f32, 1)
KVANT_FORMAT_DEFINE(f32, "fp32 float", 1, 4, 1, KVANT_FORMAT_WIDE);
