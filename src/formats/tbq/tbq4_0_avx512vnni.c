/* tbq4_0_avx512vnni.c: 18 bytes per 32 values: [d fp16][qs u8 x 16] (see tbq4_0.c): the integer path.  Nibbles are
 * indices of a byte table (vpermb), 64 at a time. */
#include "formats/format.h"
#include "formats/simd_keys_avx512vnni.h"

static const uint8_t bytes[16] = { TBQ4_BYTES8 };

static inline const uint8_t *tbq4_0_codes(const uint8_t *row, int b)
{
    return row + (size_t)b * 18 + 2;
}

#define INT_KEYS(p, stride, b, x) keys_nibbles16(tbq4_0_codes(p, b), stride, bytes, x)
#define INT_QUAD(p, stride, b, x) keys_nibbles4(tbq4_0_codes(p, b), stride, bytes, x)
#define INT_VALUE KEYS_LOW_HIGH
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 18)
#define INT_GROUP 1
#define INT_STEP TBQ4_STEP8
#define INT_OFFSET INT_CENTRE8
#define INT_DIGITS 1
#define INT_MAX_ROW (16 * 18)
#include "formats/simd_int_avx512vnni.h"

const kvant_format_kernels kvant_tbq4_0_kernels_avx512vnni = {
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
