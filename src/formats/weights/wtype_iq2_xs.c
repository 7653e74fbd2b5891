/* wtype_iq2_xs.c: IQ2_XS weights, which are read only.
 * Block of 256 values, 74 bytes: f16 d | u16 qs[32] | u8 sc[8].   Eight values have the entry in bits 0-8 of qs[g] and
 * the signs in bits 9-15, without the last (wtype_iq3_xxs.c); 16 have a nibble s of sc, low one first.
 * x = d * (2s + 1) / 8 * +-level. */
#include "formats/weights/wtype_internal.h"

#include "cards/grids.h"

static const uint16_t grid[] = { GRID_iq2_xs };
static const int8_t levels[] = { GRID_LEVELS_iq2_xs };
enum { N = 256, BYTES = 74, QS = 2, SC = 66 };

void wtype_iq2_xs_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int g = 0; g < N / 8; g++) {
            const unsigned q = load_u16(src + QS + 2 * g);
            const int k = g / 2, s = src[SC + k / 2] >> 4 * (k & 1) & 15;
            const float a = d * (float)(2 * s + 1) * 0.125f;
            wtype_grid_eight(grid[q & 511], levels, wtype_even_signs(q >> 9), a, dst + 8 * g);
        }
    }
}
