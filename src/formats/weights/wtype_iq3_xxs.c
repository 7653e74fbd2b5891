/* wtype_iq3_xxs.c: IQ3_XXS weights, which are read only.
 * Block of 256 values, 98 bytes: f16 d | u8 qs[64] | u32 gas[8].   Byte 8k + 2j + h of qs is the entry of values 4h to
 * 4h+3 of the j-th eight of sub-block k (32 values); bits 7j .. 7j+6 of gas[k] are their signs without the last, which
 * makes the count of minuses even; bits 28-31 are its scale s.   x = d * (2s + 1) / 4 * +-level. */
#include "formats/weights/wtype_internal.h"

#include "cards/grids.h"

static const uint16_t grid[] = { GRID_iq3_xxs };
static const int8_t levels[] = { GRID_LEVELS_iq3_xxs };
enum { N = 256, SUB = 32, BYTES = 98, QS = 2, GAS = 66 };

void wtype_iq3_xxs_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int k = 0; k < N / SUB; k++) {
            const uint32_t gas = load_u32(src + GAS + 4 * k);
            const float a = d * (float)(2 * (gas >> 28) + 1) * 0.25f;        /* exact: 11 + 5 bits */
            for (int j = 0; j < 4; j++) {
                const uint8_t *q = src + QS + 8 * k + 2 * j;
                const unsigned signs = wtype_even_signs(gas >> 7 * j & 127);
                wtype_grid_four(grid[q[0]], levels, signs, a, dst + SUB * k + 8 * j);
                wtype_grid_four(grid[q[1]], levels, signs >> 4, a, dst + SUB * k + 8 * j + 4);
            }
        }
    }
}
