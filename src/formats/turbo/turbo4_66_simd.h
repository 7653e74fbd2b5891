/* turbo4_66_simd.h: 66 bytes per 128 values: [norm fp16][qs u8 x 64], low nibble first (see turbo4_66.c).
 * Shared by its ISAs, after simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/turbo/turbo_simd.h"
#include "cards/tables.inc"

static const uint8_t planes[4][16] = TABLE_PLANES(TURBO4_66_BITS);
static const float centroids[16] = { TURBO4_66_CENTROIDS };
static const float midpoints[15] = { TURBO4_66_MIDPOINTS };
static const search_book book = { .c = centroids, .n = 16 };

static inline void turbo4_66_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * 66;
    lookup16(planes, codes4_adjacent(group + 2 + b % 4 * 16), vf_splat_f16(group), v);
}

#define BLOCK_DECODE turbo4_66_decode32
#include "formats/simd_blocks.h"

static void turbo4_66_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += 128, row += 66) {
        float y[128], values[128];
        vi code[16];
        float norm = turbo_unit(x + g, y);
        for (int c = 0; c < 16; c++) {
            code[c] = count_from(vf_load(y + 8 * c), midpoints, 15);
            vf_store(values + 8 * c, vf_lookup16(vf_load(centroids), vf_load(centroids + 8), code[c]));
        }
        uint16_t h = format_norm(turbo_corrected(norm, turbo_squares(values)), encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            for (int c = 0; c < 16; c++)
                vf_store(values + 8 * c, vf_mul(vf_load(y + 8 * c), vf_set1(norm)));
            refine(&book, values, 16, norm, 1, code, &h);
        }
        memcpy(row, &h, sizeof h);
        for (int b = 0; b < 4; b++)
            put_adjacent(row + 2 + 16 * b, code + 4 * b);
    }
}
