/* q8_0: 34 bytes per 32 values: [d fp16][q i8 x 32], x = d*q.
 *
 * upstream: d = max|x|/127, q = round half away (x * (1/d)) with the unrounded d.
 * NaN and Inf: d follows max|x| (Inf, or the largest comparable magnitude); their codes are 0 or clamped, so that
 * no byte is undefined.  Source: spec engine 3.3. */
#include "formats/format.h"

#include <math.h>
#include "base/half.h"

static int8_t q8_code(float v)
{
    float r = roundf(v);
    if (!(r >= -127.0f))                   /* NaN too */
        return (int8_t)(r != r ? 0 : -127);
    return (int8_t)(r > 127.0f ? 127.0f : r);
}

static void q8_0_encode_upstream(const float *x, uint8_t *bytes)
{
    float amax = 0.0f;
    for (int j = 0; j < 32; j++)
        if (fabsf(x[j]) > amax)
            amax = fabsf(x[j]);
    float d = amax / 127.0f, id = d > 0.0f ? 1.0f / d : 0.0f;
    store_u16(bytes, f32_to_half(d));
    for (int j = 0; j < 32; j++)
        bytes[2 + j] = (uint8_t)q8_code(x[j] * id);
}

static void q8_0_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)param;
    (void)encoder;
    q8_0_encode_upstream(x, bytes);
}

static void q8_0_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    float d = half_to_f32(load_u16(bytes));
    (void)param;
    for (int j = 0; j < 32; j++)
        acc[j] = d * (float)(int8_t)bytes[2 + j];
}

KVANT_FORMAT_REAL_SPACE(q8_0, 32)
KVANT_FORMAT_DEFINE(q8_0, "q8", 32, 34, 32, 0);
