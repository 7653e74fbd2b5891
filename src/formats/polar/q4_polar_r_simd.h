/* q4_polar_r_simd.h: q4_polar with its residual sign (see polar_simd.h): (centroid +- signs/(2 sqrt 128)) * d.
 * Shared by its ISAs, after simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/polar/polar_simd.h"

static const float signs[128] = { POLAR_SIGNS };

static inline void q4_polar_r_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * POLAR_ROW;
    const float *s = signs + b % 4 * 32;
    /* 0x3d3504f3 */
    vf residual = vf_set1(group[66] & 1 ? 0x1.6a09e6p-5f : -0x1.6a09e6p-5f), d = vf_splat_f16(group);

    lookup16_plain(polar_planes, polar_codes(group, b), v);
    v[0] = vf_mul(vf_add(v[0], vf_mul(residual, vf_load(s))), d);
    v[1] = vf_mul(vf_add(v[1], vf_mul(residual, vf_load(s + 8))), d);
    v[2] = vf_mul(vf_add(v[2], vf_mul(residual, vf_load(s + 16))), d);
    v[3] = vf_mul(vf_add(v[3], vf_mul(residual, vf_load(s + 24))), d);
}

#define BLOCK_DECODE q4_polar_r_decode32
#include "formats/simd_blocks.h"

static void q4_polar_r_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += POLAR_GROUP, row += POLAR_ROW)
        polar_encode128(x + g, row, 1, encoder);
}
