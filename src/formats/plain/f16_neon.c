/* f16_neon.c: f16 rows, converted in registers; a conversion is shared by the queries of a tile. */
#include "formats/format.h"
#include "formats/simd_neon.h"

#define WIDE_BYTES 2
#define WIDE_LOAD vf_load_f16
#define WIDE_STORE vf_store_f16
#include "formats/simd_wide.h"
#include "formats/simd_plain.h"

const kvant_format_kernels kvant_f16_kernels_neon = {
    .encode = plain_encode, .decode_acc = plain_decode_acc, .score = wide_score, .axpy = wide_axpy,
};
