/* turbo4_simd.h: 18 bytes per 32 values as tbq4_0 (see turbo4.c and tbq4_0_avx2.c), with the tie-upper code rule.
 * Shared by its ISAs, after simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/tbq/tbq_simd.h"
#include "formats/turbo/turbo_tables.inc"

static const uint8_t planes[4][16] = TABLE_PLANES(TBQ4_BITS);
static const float centroids[16] = { TURBO4_CENTROIDS };
static const float midpoints[15] = { TURBO4_MIDPOINTS };
static const search_book book = { .c = centroids, .n = 16 };

static inline void turbo4_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 18;
    lookup16(planes, codes4_low_high(block + 2), vf_splat_f16(block), v);
}

#define BLOCK_DECODE turbo4_decode32
#include "formats/simd_blocks.h"

static void turbo4_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int b = 0; b < d; b += 32, row += 18) {
        vf y[4];
        vi code[4];
        load32(x + b, y);
        tbq_rotate(y);
        float rms = tbq_rms(y), inv = 1.0f / rms;
        for (int c = 0; c < 4; c++)
            code[c] = rms != 0.0f ? count_from(vf_mul(y[c], vf_set1(inv)), midpoints, 15)
                                  : vi_zero();
        uint16_t h = format_norm(rms, encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            float values[32];
            store32(values, y);
            refine(&book, values, 4, rms, code, &h);
        }
        memcpy(row, &h, sizeof h);
        put_low_high(row + 2, code);
    }
}
