/* q8_0: 34 bytes per 32 values: [d fp16][q i8 x 32], x = d*q.
 *
 * upstream: d = max|x|/127, q = round half away (x * (1/d)) with the unrounded d.
 * best: codes of least squared error, unbiased scale (search.h).
 * NaN and Inf: d follows max|x| (Inf, or the largest comparable magnitude); their codes are 0 or clamped, so that
 * no byte is undefined.  Source: docs/formats/plain.md. */
#include "formats/format.h"

#include <math.h>
#include "base/half.h"
#include "formats/encoders/search.h"

static const search_book book = { .lo = -127, .hi = 127 };

static int q8_code(float v)
{
    float r = roundf(v);
    if (!(r >= -127.0f))                   /* NaN too */
        return r != r ? 0 : -127;
    return r > 127.0f ? 127 : (int)r;
}

static void q8_0_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    int code[32];
    (void)param;
    float amax = 0.0f;
    for (int j = 0; j < 32; j++)
        if (fabsf(x[j]) > amax)
            amax = fabsf(x[j]);
    float d = amax / 127.0f, id = d > 0.0f ? 1.0f / d : 0.0f;
    for (int j = 0; j < 32; j++)
        code[j] = q8_code(x[j] * id);
    uint16_t scale = format_norm(d, encoder);
    if (encoder == KVANT_ENCODER_BEST)
        search_best(&book, x, 32, d, code, &scale);
    store_u16(bytes, scale);
    for (int j = 0; j < 32; j++)
        bytes[2 + j] = (uint8_t)code[j];
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
