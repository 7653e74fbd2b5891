/* q4_0_simd.h: the encoder of q4_0 (18 bytes per 32 values, see q4_0.c), shared by its ISAs; after
 * simd_encode_<isa>.h and
 *   q4_top(x, v, amax)    the first of 32 values (v: the same in vectors) whose magnitude is amax; 0 if amax is 0
 *   q4_codes(v)           min(15, trunc(v + 8.5)) - 8, below: -8, NaN: 0 */
#include "formats/format.h"

static const search_book book = { .lo = -8, .hi = 7 };

static void q4_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int b = 0; b < d; b += 32, row += 18) {
        vf v[4];
        vi code[4];
        load32(x + b, v);
        float scale = q4_top(x + b, v, largest32(v)) / -8.0f, inv = scale != 0.0f ? 1.0f / scale : 0.0f;
        for (int c = 0; c < 4; c++)
            code[c] = q4_codes(vf_mul(v[c], vf_set1(inv)));
        uint16_t h = format_norm(scale, encoder);
        if (encoder == KVANT_ENCODER_BEST)
            refine(&book, x + b, 4, scale, 2, code, &h);       /* both signs: the codes are not symmetric */
        for (int c = 0; c < 4; c++)
            code[c] = vi_add(code[c], 8);
        memcpy(row, &h, sizeof h);
        put_low_high(row + 2, code);
    }
}
