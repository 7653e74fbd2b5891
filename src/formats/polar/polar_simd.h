/* polar_simd.h: q4_polar and q4_polar_r over simd_encode_<isa>.h (included before it): 82 bytes per 128 values: [d
 * fp16][qs u8 x 64][qjl u8 x 16], low nibble first (see polar.c).  encode is the reference's: its norm is summed in
 * double, which no vector order equals. */
#ifndef KVANT_FORMATS_POLAR_SIMD_H
#define KVANT_FORMATS_POLAR_SIMD_H

#include "formats/polar/polar_tables.inc"
#include "formats/simd_tables.h"

enum { POLAR_ROW = 82 };

static const uint8_t polar_planes[4][16] = TABLE_PLANES(POLAR4_BITS);

static inline vb polar_codes(const uint8_t *group, int b)
{
    return codes4_adjacent(group + 2 + b % 4 * 16);
}

/* prep_q and finish_out are the same map: the unnormalised Hadamard, over 128 */
static void polar_transform128(const void *param, const float *x, float *y, int d)
{
    (void)param;
    for (int g = 0; g < d; g += 128) {
        for (int c = 0; c < 128; c += 8)
            vf_store(y + g + c, vf_load(x + g + c));
        butterfly128(y + g);
        for (int c = 0; c < 128; c += 8)
            vf_store(y + g + c, vf_mul(vf_load(y + g + c), vf_set1(1.0f / 128.0f)));
    }
}

#endif
