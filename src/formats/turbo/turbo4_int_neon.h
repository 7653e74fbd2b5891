/* turbo4_int_neon.h: the codes of turbo4 (18 bytes per 32 values, see turbo4.c) for simd_int_neon.h. */
#include "formats/format.h"
#include "formats/simd_neon.h"
#include "formats/simd_tables.h"

static const uint8_t turbo4_centred[16] = { CENTRED_BYTES(TBQ4_BYTES) };

static inline int_codes turbo4_signed(const uint8_t *row, int b)
{
    return int_lookup(turbo4_centred, codes4_low_high(row + (size_t)b * 18 + 2));
}

#define INT_CODES turbo4_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 18)
#define INT_GROUP 1
#define INT_STEP TBQ4_STEP
#define INT_DIGITS 1
#include "formats/simd_int_neon.h"
