/* bf16_avx512.c: bf16 rows, converted in registers; see bf16_avx2.c. */
#include "formats/format.h"
#include "formats/simd_avx512.h"

#define WIDE_BYTES 2
#define WIDE_LOAD vf_load_bf16
#include "formats/simd_wide.h"
#include "formats/simd_plain.h"

const kvant_format_kernels kvant_bf16_kernels_avx512 = {
    .decode_acc = plain_decode_acc, .score = wide_score, .axpy = wide_axpy,
};
