/* q4_polar_simd.h: q4_polar, the residual ignored (see polar_simd.h).
 * Shared by its ISAs, after simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/polar/polar_simd.h"

static inline void q4_polar_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * POLAR_ROW;
    lookup16(polar_planes, polar_codes(group, b), vf_splat_f16(group), v);
}

#define BLOCK_DECODE q4_polar_decode32
#include "formats/simd_blocks.h"

static void q4_polar_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += POLAR_GROUP, row += POLAR_ROW)
        polar_encode128(x + g, row, 0, encoder);
}
