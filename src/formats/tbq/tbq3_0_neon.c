/* tbq3_0_neon.c: 14 bytes per 32 values: [d fp16][qs u8 x 12] (see tbq3_0.c), values by byte planes. */
#include "formats/simd_encode_neon.h"
#include "formats/tbq/tbq3_0_int_neon.h"
#include "formats/tbq/tbq3_0_simd.h"

static const uint8_t planes[4][16] = TABLE_PLANES(TBQ3_BITS);

static inline void tbq3_decode32(const uint8_t *row, int b, vf *v)
{
    lookup16(planes, tbq3_codes(row, b), vf_splat_f16(row + (size_t)b * 14), v);
}

#define BLOCK_DECODE tbq3_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_tbq3_0_kernels_neon = {
    .encode = tbq3_encode, .prep_q = tbq_prep_q, .finish_out = tbq_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
