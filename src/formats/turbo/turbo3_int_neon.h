/* turbo3_int_neon.h: the codes of turbo3 (four blocks of 14 bytes per 128 values, see turbo3.c) for simd_int_neon.h. */
#include "formats/format.h"
#include "formats/simd_neon.h"
#include "formats/simd_tables.h"

static const uint8_t turbo3_centred[16] = { CENTRED_BYTES(TURBO3_LOW_BYTES, TURBO3_HIGH_BYTES,
                                                             TURBO3_LOW_BYTES, TURBO3_HIGH_BYTES) };

static inline vb turbo3_codes(const uint8_t *row, int b)
{
    const uint8_t *block = row + (size_t)b * 14;
    return codes_planes(block + 2, block + 10);
}

static inline int_codes turbo3_signed(const uint8_t *row, int b)
{
    return int_lookup(turbo3_centred, turbo3_codes(row, b));
}

#define INT_CODES turbo3_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 14)
#define INT_GROUP 1
#define INT_STEP TURBO3_STEP
#define INT_DIGITS 1
#include "formats/simd_int_neon.h"
