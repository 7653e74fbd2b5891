/* tbq4_0_simd.h: 18 bytes per 32 values: [d fp16][qs u8 x 16], low nibbles first (see tbq4_0.c).
 * A code becomes its f32 centroid by four byte-plane lookups, then one multiplication by d: the reference's value.
 * Shared by its ISAs, after simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/tbq/tbq_simd.h"
#include "cards/tables.inc"

static const uint8_t planes[4][16] = TABLE_PLANES(TBQ4_BITS);

static const float centroids[16] = { TBQ4_CENTROIDS };
static const search_book book = { .c = centroids, .n = 16 };
static const uint32_t limits[15] = { TBQ4_LIMITS(TABLE_WORD) };

static inline void tbq4_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 18;
    lookup16(planes, codes4_low_high(block + 2), vf_splat_f16(block), v);
}

#define BLOCK_DECODE tbq4_decode32
#include "formats/simd_blocks.h"

static inline vi tbq4_code(vf y)
{
    return count_above(y, limits, 15);
}

static void tbq4_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    tbq_encode_rows((tbq_rule){ 18, &book, tbq4_code, put_low_high }, x, row, d, encoder);
}
