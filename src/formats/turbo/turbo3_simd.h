/* turbo3_simd.h: tables and encoder of turbo3 (four blocks of 14 bytes per 128 values, see turbo3.c), shared by its
 * ISAs; after simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/turbo/turbo_simd.h"
#include "cards/tables.inc"

static const float centroids[8] = { TURBO3_CENTROIDS };
static const float midpoints[7] = { TURBO3_MIDPOINTS };
static const search_book book = { .c = centroids, .n = 8 };

static void turbo3_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += 128, row += 56) {
        float y[128], values[128];
        vi code[16];
        float norm = turbo_unit(x + g, y);
        for (int c = 0; c < 16; c++) {
            code[c] = count_from(vf_load(y + 8 * c), midpoints, 7);
            vf_store(values + 8 * c, vf_lookup8(vf_load(centroids), code[c]));
        }
        uint16_t h = format_norm(turbo_corrected(norm, turbo_squares(values)), encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            for (int c = 0; c < 16; c++)
                vf_store(values + 8 * c, vf_mul(vf_load(y + 8 * c), vf_set1(norm)));
            refine(&book, values, 16, norm, 1, code, &h);
        }
        for (int b = 0; b < 4; b++) {
            memcpy(row + 14 * b, &h, sizeof h);
            put_planes(row + 14 * b + 2, row + 14 * b + 10, code + 4 * b);
        }
    }
}
