/* turbo3_tcq_int_neon.h: the codes of turbo3_tcq (52 bytes per 128 values, see turbo3_tcq.c) for simd_int_neon.h. */
#include "formats/format.h"
#include "formats/simd_neon.h"
#include "formats/tcq/tcq_pairs.inc"

/* Two values at once: 12 bits of the stream, a table of 8 KiB.  Bits 6p .. 6p+11 from p hold pair p. */
static const uint16_t pairs[4096] = { TCQ_PAIRS };

static inline int8x16_t tcq_16(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
#define TCQ_PAIR(k) ((uint64_t)pairs[w >> (6 * (k)) & 4095] << (16 * ((k) % 4)))
    uint64_t lo = TCQ_PAIR(0) | TCQ_PAIR(1) | TCQ_PAIR(2) | TCQ_PAIR(3);
    uint64_t hi = TCQ_PAIR(4) | TCQ_PAIR(5) | TCQ_PAIR(6) | TCQ_PAIR(7);
    return vsubq_s8(vreinterpretq_s8_u64(vcombine_u64(vcreate_u64(lo), vcreate_u64(hi))), vdupq_n_s8(64));
}

static inline int_codes tcq_signed(const uint8_t *row, int b)
{
    const uint8_t *qs = row + (size_t)(b / 4) * 52 + 2 + b % 4 * 12;
    return (int_codes){ tcq_16(qs), tcq_16(qs + 6) };
}

#define INT_CODES tcq_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 52)
#define INT_GROUP 4
#define INT_STEP TCQ_STEP_VALUE
#define INT_DIGITS 1
#include "formats/simd_int_neon.h"
