/* q4_0_avx512vnni.c: 18 bytes per 32 values: [d fp16][qs u8 x 16] (see q4_0.c): the integer path.  Codes are masked
 * nibbles, exact; queries have two digits, as on AVX2. */
#include "formats/format.h"
#include "formats/simd_keys_avx512vnni.h"

static const uint8_t bytes[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

#define INT_KEYS(p, stride, b, x) keys_nibbles16((p) + (size_t)(b) * 18 + 2, stride, bytes, x)
#define INT_QUAD(p, stride, b, x) keys_nibbles4((p) + (size_t)(b) * 18 + 2, stride, bytes, x)
#define INT_VALUE KEYS_LOW_HIGH
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 18)
#define INT_GROUP 1
#define INT_STEP 1.0f
#define INT_OFFSET 8
#define INT_DIGITS 2
#define INT_MAX_ROW (16 * 18)
#include "formats/simd_int_avx512vnni.h"

const kvant_format_kernels kvant_q4_0_kernels_avx512vnni = {
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
