/* tbq4_0_neon.c: tbq4_0_simd.h compiled for NEON, and the integer path. */
#include "formats/simd_encode_neon.h"
#include "formats/tbq/tbq4_0_int_neon.h"
#include "formats/tbq/tbq4_0_simd.h"

const kvant_format_kernels kvant_tbq4_0_kernels_neon = {
    .encode = tbq4_encode, .prep_q = tbq_prep_q, .finish_out = tbq_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
