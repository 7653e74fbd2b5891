/* turbo4_66_neon.c: turbo4_66_simd.h compiled for NEON, and the integer path. */
#include "formats/simd_encode_neon.h"
#include "formats/turbo/turbo4_66_int_neon.h"
#include "formats/turbo/turbo4_66_simd.h"

const kvant_format_kernels kvant_turbo4_66_kernels_neon = {
    .encode = turbo4_66_encode, .prep_q = turbo_prep_q, .finish_out = turbo_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
