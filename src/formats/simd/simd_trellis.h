/* simd_trellis.h: 32 values whose codes are windows of a stream, VF_LANES at a time: a register's states lie in
 * 3 VF_LANES / 8 bytes and a bit; those of a group's last register end before its pad. */
#include "formats/simd/simd_card.h"

static const float card_levels[CARD_N] = { CARD_LEVELS };

/* VF_LANES values from p on, times norm: of each instruction set. */
static inline vf trellis_chunk(const uint8_t *p, vf norm);

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *qs = card_codes(row, b);
    const vf norm = vf_splat_f16(card_scale(row, b));
#define TRELLIS_CHUNK(i) v[i] = trellis_chunk(qs + 3 * VF_LANES / 8 * (i), norm);
    VF_BLOCK(TRELLIS_CHUNK)
}
