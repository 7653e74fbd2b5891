/* turbo4_neon.c: turbo4_simd.h compiled for NEON, and the integer path. */
#include "formats/simd_encode_neon.h"
#include "formats/turbo/turbo4_int_neon.h"
#include "formats/turbo/turbo4_simd.h"

const kvant_format_kernels kvant_turbo4_kernels_neon = {
    .encode = turbo4_encode, .prep_q = tbq_prep_q, .finish_out = tbq_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
