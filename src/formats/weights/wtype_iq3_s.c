/* wtype_iq3_s.c: IQ3_S weights, which are read only.
 * Block of 256 values, 110 bytes: f16 d | u8 qs[64] | u8 qh[8] | u8 signs[32] | u8 sc[4].   Four values have entry
 * qs[g], bit g % 8 of qh[g / 8] above it; eight have a byte of signs; 32 a nibble s of sc, low one first.
 * x = d * (2s + 1) * +-level. */
#include "formats/weights/wtype_internal.h"

#include "cards/grids.h"

static const uint16_t grid[] = { GRID_iq3_s };
static const int8_t levels[] = { GRID_LEVELS_iq3_s };
enum { N = 256, BYTES = 110, QS = 2, QH = 66, SIGNS = 74, SC = 106 };

void wtype_iq3_s_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int g = 0; g < N / 4; g++) {
            const int k = g / 8, s = src[SC + k / 2] >> 4 * (k & 1) & 15;
            const int at = src[QS + g] | (src[QH + k] >> g % 8 & 1) << 8;
            const unsigned signs = (unsigned)src[SIGNS + g / 2] >> 4 * (g & 1);
            wtype_grid_four(grid[at], levels, signs, d * (float)(2 * s + 1), dst + 4 * g);
        }
    }
}
