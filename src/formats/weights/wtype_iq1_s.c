/* wtype_iq1_s.c: IQ1_S weights, which are read only.
 * Block of 256 values, 50 bytes: f16 d | u8 qs[32] | u16 qh[8].   Eight values have entry qs[g], above it bits
 * 3(g % 4) .. +2 of qh[g / 4]; 32 have bits 12-14 of qh[k], s, and bit 15: their levels are shifted by an eighth, down
 * where it is set.   x = d * (2s + 1) / 8 * (level +- 1), levels -8, 0 and 8. */
#include "formats/weights/wtype_internal.h"

#include "cards/grids.h"

static const uint16_t grid[] = { GRID_iq1 };
enum { N = 256, BYTES = 50, QS = 2, QH = 34 };

void wtype_iq1_s_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int g = 0; g < N / 8; g++) {
            const unsigned h = load_u16(src + QH + 2 * (g / 4)), s = h >> 12 & 7;
            const float a = d * (float)(2 * s + 1) * 0.125f;             /* exact: 11 + 4 bits */
            wtype_ternary_eight(grid[src[QS + g] | (h >> 3 * (g % 4) & 7) << 8], h >> 15, a, dst + 8 * g);
        }
    }
}
