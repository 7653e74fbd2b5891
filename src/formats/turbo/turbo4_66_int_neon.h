/* turbo4_66_int_neon.h: the codes of turbo4_66 (66 bytes per 128 values, see turbo4_66.c) for simd_int_neon.h. */
#include "formats/format.h"
#include "formats/simd_neon.h"
#include "formats/simd_tables.h"

static const uint8_t turbo4_66_centred[16] = { CENTRED_BYTES(TURBO4_66_BYTES) };

static inline int_codes turbo4_66_signed(const uint8_t *row, int b)
{
    return int_lookup(turbo4_66_centred, codes4_adjacent(row + (size_t)(b / 4) * 66 + 2 + b % 4 * 16));
}

#define INT_CODES turbo4_66_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 66)
#define INT_GROUP 4
#define INT_STEP TURBO4_66_STEP
#define INT_DIGITS 1
#include "formats/simd_int_neon.h"
