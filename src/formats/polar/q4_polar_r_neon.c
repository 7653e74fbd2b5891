/* q4_polar_r_neon.c: q4_polar_r_simd.h compiled for NEON. */
#include "formats/simd_encode_neon.h"
#include "formats/polar/q4_polar_r_simd.h"

const kvant_format_kernels kvant_q4_polar_r_kernels_neon = {
    .encode = q4_polar_r_encode, .prep_q = polar_transform128, .finish_out = polar_transform128,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
