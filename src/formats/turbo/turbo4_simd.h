/* turbo4_simd.h: 18 bytes per 32 values as tbq4_0 (see turbo4.c and tbq4_0_avx2.c), with the tie-upper code rule.
 * Shared by its ISAs, after simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/tbq/tbq_simd.h"
#include "cards/tables.inc"

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

static inline vi turbo4_code(vf y)
{
    return count_from(y, midpoints, 15);
}

static void turbo4_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    tbq_encode_rows((tbq_rule){ 18, &book, turbo4_code, put_low_high }, x, row, d, encoder);
}
