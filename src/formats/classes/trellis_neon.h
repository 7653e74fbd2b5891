/* trellis_neon.h: codes that are windows of a stream.  There are no gathers: eight loads of the codebook a vector,
 * which a load of two lanes at once would not shorten. */
#include "formats/simd/simd_trellis.h"

/* 8 values from the 3 bytes (and a bit) at p */
static inline vf trellis_chunk(const uint8_t *p, vf norm)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
#define TRELLIS_VALUE(k) card_levels[w >> (3 * (k)) & 511]
    float32x4_t lo = { TRELLIS_VALUE(0), TRELLIS_VALUE(1), TRELLIS_VALUE(2), TRELLIS_VALUE(3) };
    float32x4_t hi = { TRELLIS_VALUE(4), TRELLIS_VALUE(5), TRELLIS_VALUE(6), TRELLIS_VALUE(7) };
    return vf_mul((vf){ lo, hi }, norm);
}

/* Two values at once: 12 bits of the stream, a table of 8 KiB.  Bits 6p .. 6p+11 from p hold pair p. */
static const uint16_t pairs[4096] = { CARD_PAIRS7 };

static inline uint8x16_t trellis_sixteen(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
#define TRELLIS_PAIR(k) ((uint64_t)pairs[w >> (6 * (k)) & 4095] << (16 * ((k) % 4)))
    uint64_t lo = TRELLIS_PAIR(0) | TRELLIS_PAIR(1) | TRELLIS_PAIR(2) | TRELLIS_PAIR(3);
    uint64_t hi = TRELLIS_PAIR(4) | TRELLIS_PAIR(5) | TRELLIS_PAIR(6) | TRELLIS_PAIR(7);
    return vsubq_u8(vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(lo), vcreate_u64(hi))), vdupq_n_u8(CARD_OFFSET7));
}

static inline vb card_signed(const uint8_t *row, int b)
{
    const uint8_t *qs = card_codes(row, b);
    return (vb){ trellis_sixteen(qs), trellis_sixteen(qs + 6) };
}
