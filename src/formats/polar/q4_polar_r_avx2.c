/* q4_polar_r_avx2.c: q4_polar_r_simd.h compiled for AVX2. */
#include "formats/simd_encode_avx2.h"
#include "formats/polar/q4_polar_r_simd.h"

const kvant_format_kernels kvant_q4_polar_r_kernels_avx2 = {
    .encode = q4_polar_r_encode, .prep_q = polar_transform128, .finish_out = polar_transform128,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
