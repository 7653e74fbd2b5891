/* turbo3_neon.c: four blocks [norm fp16][qs u8 x 8][signs u8 x 4] per 128 values (see turbo3.c), values by byte
 * planes. */
#include "formats/simd_encode_neon.h"
#include "formats/turbo/turbo3_int_neon.h"
#include "formats/turbo/turbo3_simd.h"

static const uint8_t planes[4][16] = TABLE_PLANES(TURBO3_BITS);

static inline void turbo3_decode32(const uint8_t *row, int b, vf *v)
{
    lookup16(planes, turbo3_codes(row, b), vf_splat_f16(row + (size_t)b * 14), v);
}

#define BLOCK_DECODE turbo3_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_turbo3_kernels_neon = {
    .encode = turbo3_encode, .prep_q = turbo_prep_q, .finish_out = turbo_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
