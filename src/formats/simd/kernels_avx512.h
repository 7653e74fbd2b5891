/* kernels_avx512.h: the kernels of a format from the functions of its class; the queries' rotation is that of AVX2. */
#define BLOCK_DECODE card_decode32
#include "formats/simd/simd_blocks.h"

const kvant_format_kernels CARD_KERNELS(CARD_NAME, avx512) = {
    .encode = card_encode, .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
