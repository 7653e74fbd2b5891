/* wtype_iq2_s.c: IQ2_S weights, which are read only.
 * Block of 256 values, 82 bytes: f16 d | u8 qs[32] | u8 signs[32] | u8 qh[8] | u8 sc[8].   Eight values have entry
 * qs[g], bits 2(g % 4), 2(g % 4)+1 of qh[g / 4] above it, and signs[g]; 16 have a nibble s of sc, low one first.
 * x = d * (2s + 1) / 8 * +-level. */
#include "formats/weights/wtype_internal.h"

#include "cards/grids.h"

static const uint16_t grid[] = { GRID_iq2_s };
static const int8_t levels[] = { GRID_LEVELS_iq2_s };
enum { N = 256, BYTES = 82, QS = 2, SIGNS = 34, QH = 66, SC = 74 };

void wtype_iq2_s_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int g = 0; g < N / 8; g++) {
            const int at = src[QS + g] | (src[QH + g / 4] >> 2 * (g % 4) & 3) << 8;
            const int k = g / 2, s = src[SC + k / 2] >> 4 * (k & 1) & 15;
            wtype_grid_eight(grid[at], levels, src[SIGNS + g], d * (float)(2 * s + 1) * 0.125f, dst + 8 * g);
        }
    }
}
