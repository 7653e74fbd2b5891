/* q4_0_int_neon.h: the codes of q4_0 (18 bytes per 32 values, see q4_0.c) for simd_int_neon.h. */
#include "formats/format.h"
#include "formats/simd_neon.h"

static inline int_codes q4_signed(const uint8_t *row, int b)
{
    vb x = codes4_low_high(row + (size_t)b * 18 + 2);
    return (int_codes){ vsubq_s8(vreinterpretq_s8_u8(x.lo), vdupq_n_s8(8)),
                        vsubq_s8(vreinterpretq_s8_u8(x.hi), vdupq_n_s8(8)) };
}

#define INT_CODES q4_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 18)
#define INT_GROUP 1
#define INT_STEP 1.0f
#define INT_DIGITS 2
#include "formats/simd_int_neon.h"
