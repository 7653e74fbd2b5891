/* wtype_iq1_m.c: IQ1_M weights, which are read only.
 * Block of 256 values, 56 bytes: u8 qs[32] | u8 qh[16] | u16 sc[4].   Eight values have entry qs[g], above it the lower
 * three bits of nibble g of qh, whose fourth says the shift as in IQ1_S (wtype_iq1_s.c); 16 have bits 3(k % 4) .. +2 of
 * sc[k / 4], s.   Bits 12-15 of sc[i] are bits 4i .. 4i+3 of f16 d.   x = d * (2s + 1) / 8 * (level +- 1). */
#include "formats/weights/wtype_internal.h"

#include "cards/grids.h"

static const uint16_t grid[] = { GRID_iq1 };
enum { N = 256, BYTES = 56, QH = 32, SC = 48 };

void wtype_iq1_m_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(wtype_nibbles(src + SC));
        for (int g = 0; g < N / 8; g++) {
            const unsigned h = src[QH + g / 2] >> 4 * (g % 2) & 15;
            const unsigned s = load_u16(src + SC + 2 * (g / 8)) >> 3 * (g / 2 % 4) & 7;
            wtype_ternary_eight(grid[src[g] | (h & 7) << 8], h >> 3, d * (float)(2 * s + 1) * 0.125f, dst + 8 * g);
        }
    }
}
