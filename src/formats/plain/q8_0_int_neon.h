/* q8_0_int_neon.h: the codes of q8_0 (34 bytes per 32 values, see q8_0.c) for simd_int_neon.h. */
#include "formats/format.h"
#include "formats/simd_neon.h"

static inline int_codes q8_signed(const uint8_t *row, int b)
{
    const int8_t *q = (const int8_t *)row + (size_t)b * 34 + 2;
    return (int_codes){ vld1q_s8(q), vld1q_s8(q + 16) };
}

#define INT_CODES q8_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 34)
#define INT_GROUP 1
#define INT_STEP 1.0f
#define INT_DIGITS 2
#include "formats/simd_int_neon.h"
