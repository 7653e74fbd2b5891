/* q4_polar_neon.c: q4_polar_simd.h compiled for NEON, and the integer path. */
#include "formats/simd_encode_neon.h"
#include "formats/polar/q4_polar_int_neon.h"
#include "formats/polar/q4_polar_simd.h"

const kvant_format_kernels kvant_q4_polar_kernels_neon = {
    .encode = q4_polar_encode, .prep_q = polar_transform128, .finish_out = polar_transform128,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
