/* q8_0_simd.h: the encoder of q8_0 (34 bytes per 32 values, see q8_0.c), shared by its ISAs; after
 * simd_encode_<isa>.h and
 *   q8_codes(v)           round half away from zero, clamped to +-127, NaN to 0: as q8_code of the reference
 *   put_bytes(q, code)    32 codes as bytes */
#include "formats/format.h"

static const search_book book = { .lo = -127, .hi = 127 };

static void q8_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int b = 0; b < d; b += 32, row += 34) {
        vf v[4];
        vi code[4];
        load32(x + b, v);
        float amax = largest32(v), scale = amax / 127.0f, inv = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (int c = 0; c < 4; c++)
            code[c] = q8_codes(vf_mul(v[c], vf_set1(inv)));
        uint16_t h = format_norm(scale, encoder);
        if (encoder == KVANT_ENCODER_BEST)
            refine(&book, x + b, 4, scale, 1, code, &h);
        memcpy(row, &h, sizeof h);
        put_bytes(row + 2, code);
    }
}
