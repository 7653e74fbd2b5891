/* tbq3_0_int_neon.h: the codes of tbq3_0 (14 bytes per 32 values, see tbq3_0.c) for simd_int_neon.h. */
#include "formats/format.h"
#include "formats/simd_neon.h"
#include "formats/simd_tables.h"

static const uint8_t tbq3_centred[16] = { CENTRED_BYTES(TBQ3_BYTES, TBQ3_BYTES) };

static inline vb tbq3_codes(const uint8_t *row, int b)
{
    const uint8_t *block = row + (size_t)b * 14;
    return codes3(block + 2);
}

static inline int_codes tbq3_signed(const uint8_t *row, int b)
{
    return int_lookup(tbq3_centred, tbq3_codes(row, b));
}

#define INT_CODES tbq3_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 14)
#define INT_GROUP 1
#define INT_STEP TBQ3_STEP
#define INT_DIGITS 1
#include "formats/simd_int_neon.h"
