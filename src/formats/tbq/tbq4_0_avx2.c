/* tbq4_0_avx2.c: 18 bytes per 32 values: [d fp16][qs u8 x 16], low nibbles first (see tbq4_0.c).
 * A code becomes its f32 centroid by four byte-plane lookups, then one multiplication by d: the reference's value. */
#include "formats/format.h"
#include "formats/simd_avx2.h"
#include "formats/simd_tables.h"

static const uint8_t planes[4][16] = TABLE_PLANES(TBQ4_BITS);

static inline void tbq4_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 18;
    lookup16(planes, codes4_low_high(block + 2), vf_splat_f16(block), v);
}

#define BLOCK_DECODE tbq4_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_tbq4_0_kernels_avx2 = {
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
