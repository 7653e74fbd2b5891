/* kernels_neon.h: the kernels of a format from the functions of its class and its space. */
#define BLOCK_DECODE card_decode32
#include "formats/simd/simd_blocks.h"

#ifndef CARD_RESIDUAL_AT
#include "formats/simd/simd_int_neon.h"
#endif

const kvant_format_kernels CARD_KERNELS(CARD_NAME, neon) = {
    .encode = card_encode, SPACE_KERNELS .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
#ifndef CARD_RESIDUAL_AT
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
#endif
};
