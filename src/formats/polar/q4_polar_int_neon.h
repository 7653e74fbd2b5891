/* q4_polar_int_neon.h: the codes of q4_polar (82 bytes per 128 values, see q4_polar.c) for simd_int_neon.h. */
#include "formats/format.h"
#include "formats/simd_neon.h"
#include "formats/simd_tables.h"

static const uint8_t q4_polar_centred[16] = { CENTRED_BYTES(POLAR4_BYTES) };

static inline int_codes q4_polar_signed(const uint8_t *row, int b)
{
    return int_lookup(q4_polar_centred, codes4_adjacent(row + (size_t)(b / 4) * 82 + 2 + b % 4 * 16));
}

#define INT_CODES q4_polar_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 82)
#define INT_GROUP 4
#define INT_STEP POLAR4_STEP
#define INT_DIGITS 1
#include "formats/simd_int_neon.h"
