/* q4_0: 18 bytes per 32 values: [d fp16][qs u8 x 16], x = d*(n - 8); value j < 16 is the low nibble of qs[j],
 * value j + 16 the high one.
 *
 * upstream: d = (value of largest magnitude)/-8, n = min(15, trunc(x*(1/d) + 8.5)) with the unrounded d.
 * best: codes of least squared error (scale of either sign), unbiased scale (search.h).
 * NaN and Inf: their codes are clamped to 0..15, so that no byte is undefined.  Source: docs/formats/plain.md. */
#include "formats/format.h"

#include <math.h>
#include "base/half.h"
#include "formats/encoders/search.h"

static const search_book book = { .lo = -8, .hi = 7 };

static int q4_code(float v)
{
    float t = v + 8.5f;
    if (!(t >= 0.0f))                      /* NaN too */
        return t != t ? 8 : 0;
    return t >= 15.0f ? 15 : (int)t;
}

static void q4_0_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    int code[32];
    (void)param;
    float amax = 0.0f, top = 0.0f;
    for (int j = 0; j < 32; j++)
        if (fabsf(x[j]) > amax) {
            amax = fabsf(x[j]);
            top = x[j];
        }
    float d = top / -8.0f, id = d != 0.0f ? 1.0f / d : 0.0f;
    for (int j = 0; j < 32; j++)
        code[j] = q4_code(x[j] * id) - 8;
    uint16_t scale = format_norm(d, encoder);
    if (encoder == KVANT_ENCODER_BEST) {
        search_scale(&book, x, 32, d, code, &scale);
        search_scale(&book, x, 32, -d, code, &scale);      /* the codes are not symmetric */
        scale = search_unbiased(&book, x, 32, code, scale);
    }
    store_u16(bytes, scale);
    for (int j = 0; j < 16; j++)
        bytes[2 + j] = (uint8_t)((code[j] + 8) | (code[j + 16] + 8) << 4);
}

static void q4_0_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    float d = half_to_f32(load_u16(bytes));
    (void)param;
    for (int j = 0; j < 16; j++) {
        acc[j] = d * (float)((bytes[2 + j] & 15) - 8);
        acc[j + 16] = d * (float)((bytes[2 + j] >> 4) - 8);
    }
}

KVANT_FORMAT_REAL_SPACE(q4_0, 32)
KVANT_FORMAT_DEFINE(q4_0, "q4", 32, 18, 32, 0);
