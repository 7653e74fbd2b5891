/* tbq3_0_simd.h: tables and encoder of tbq3_0 (14 bytes per 32 values, see tbq3_0.c), shared by its ISAs; after
 * simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/tbq/tbq_simd.h"
#include "formats/tbq/tbq_tables.inc"

static const float centroids[8] = { TBQ3_CENTROIDS };
static const search_book book = { .c = centroids, .n = 8 };
static const uint32_t limits[7] = { TBQ3_LIMITS(TABLE_WORD) };

static void tbq3_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int b = 0; b < d; b += 32, row += 14) {
        vf y[4];
        vi code[4];
        load32(x + b, y);
        tbq_rotate(y);
        float rms = tbq_rms(y), inv = 1.0f / rms;
        for (int c = 0; c < 4; c++)
            code[c] = rms != 0.0f ? count_above(vf_mul(y[c], vf_set1(inv)), limits, 7)
                                  : vi_zero();
        uint16_t h = format_norm(rms, encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            float values[32];
            store32(values, y);
            refine(&book, values, 4, rms, code, &h);
        }
        memcpy(row, &h, sizeof h);
        put_bits3(row + 2, code);
    }
}
