/* simd_card.h: where a block of 32 values lies in a row, from the card of the format (cards/card_<format>.h,
 * included before). */
#ifndef KVANT_FORMATS_SIMD_CARD_H
#define KVANT_FORMATS_SIMD_CARD_H

#include "base/half.h"
#include "formats/format.h"

#define CARD_JOIN_(a, b) a##_##b
#define CARD_JOIN(a, b) CARD_JOIN_(a, b)
#define CARD_OF(name) CARD_JOIN(name, CARD_ORDER)          /* codes4_halves, put_planes, ... */
#define CARD_REFERENCE_(format) kvant_format_##format
#define CARD_REFERENCE(format) CARD_REFERENCE_(format)
#define CARD_KERNELS_(format, isa) kvant_##format##_kernels_##isa
#define CARD_KERNELS(format, isa) CARD_KERNELS_(format, isa)

#ifdef CARD_BITS
enum { CARD_BLOCKS = CARD_VALUES / 32 };   /* of a record */

static inline const uint8_t *card_record(const uint8_t *row, int b)
{
    return row + (size_t)(b / CARD_BLOCKS) * CARD_BYTES_OF_RECORD;
}

static inline const uint8_t *card_scale(const uint8_t *row, int b)
{
    return card_record(row, b) + CARD_SCALE_AT;
}

static inline const uint8_t *card_codes(const uint8_t *row, int b)
{
    return card_record(row, b) + CARD_CODES_AT + b % CARD_BLOCKS * CARD_BLOCK_BYTES;
}
#endif

#endif
