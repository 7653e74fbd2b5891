/* kernels_dotprod.h: the integer path of a format with sdot. */
#include "formats/simd/simd_int_neon.h"

const kvant_format_kernels CARD_KERNELS(CARD_NAME, dotprod) = {
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
