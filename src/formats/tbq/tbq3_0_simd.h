/* tbq3_0_simd.h: tables and encoder of tbq3_0 (14 bytes per 32 values, see tbq3_0.c), shared by its ISAs; after
 * simd_encode_<isa>.h. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/tbq/tbq_simd.h"
#include "cards/tables.inc"

static const float centroids[8] = { TBQ3_CENTROIDS };
static const search_book book = { .c = centroids, .n = 8 };
static const uint32_t limits[7] = { TBQ3_LIMITS(TABLE_WORD) };

static inline vi tbq3_code(vf y)
{
    return count_above(y, limits, 7);
}

static void tbq3_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    tbq_encode_rows((tbq_rule){ 14, &book, tbq3_code, put_bits3 }, x, row, d, encoder);
}
