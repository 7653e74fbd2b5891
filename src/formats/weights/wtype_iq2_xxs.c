/* wtype_iq2_xxs.c: IQ2_XXS weights, which are read only.
 * Block of 256 values, 66 bytes: f16 d | eight times (u8 q[4] | u32 gas).   Byte j of q is the entry of the j-th eight
 * of a sub-block of 32 values; gas as in IQ3_XXS (wtype_iq3_xxs.c).   x = d * (2s + 1) / 8 * +-level. */
#include "formats/weights/wtype_internal.h"

#include "cards/grids.h"

static const uint16_t grid[] = { GRID_iq2_xxs };
static const int8_t levels[] = { GRID_LEVELS_iq2_xxs };
enum { N = 256, SUB = 32, BYTES = 66, QS = 2 };

void wtype_iq2_xxs_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N) {
        const float d = half_to_f32(load_u16(src));
        for (int k = 0; k < N / SUB; k++) {
            const uint8_t *q = src + QS + 8 * k;
            const uint32_t gas = load_u32(q + 4);
            const float a = d * (float)(2 * (gas >> 28) + 1) * 0.125f;       /* exact: 11 + 5 bits */
            for (int j = 0; j < 4; j++)
                wtype_grid_eight(grid[q[j]], levels, wtype_even_signs(gas >> 7 * j & 127), a, dst + SUB * k + 8 * j);
        }
    }
}
