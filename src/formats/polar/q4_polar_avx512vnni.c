/* q4_polar_avx512vnni.c: 82 bytes per 128 values: [d fp16][qs u8 x 64][qjl u8 x 16] (see polar.c): the integer
 * path.  Nibbles are indices of a byte table (vpermb), 64 at a time. */
#include "formats/format.h"
#include "formats/simd_keys_avx512vnni.h"

static const uint8_t bytes[16] = { POLAR4_BYTES8 };

static inline const uint8_t *q4_polar_codes(const uint8_t *row, int b)
{
    return row + (size_t)(b / 4) * 82 + 2 + b % 4 * 16;
}

#define INT_KEYS(p, stride, b, x) keys_nibbles16(q4_polar_codes(p, b), stride, bytes, x)
#define INT_QUAD(p, stride, b, x) keys_nibbles4(q4_polar_codes(p, b), stride, bytes, x)
#define INT_VALUE KEYS_ADJACENT
#define INT_COLUMNS 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 82)
#define INT_GROUP 4
#define INT_STEP POLAR4_STEP8
#define INT_OFFSET INT_CENTRE8
#define INT_DIGITS 1
#define INT_MAX_ROW (4 * 82)
#include "formats/simd_int_avx512vnni.h"

const kvant_format_kernels kvant_q4_polar_kernels_avx512vnni = {
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
