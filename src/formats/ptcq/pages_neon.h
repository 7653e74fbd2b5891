/* pages_neon.h: pages of trellis codes (pages_x86.h).  There are no gathers: eight loads of the book a vector. */
#include "formats/ptcq/page_row.h"

static const float card_levels[CARD_N] = { CARD_LEVELS };

/* 8 values from k bytes of codes and the byte before them. */
static inline vf page_values(const uint8_t *codes, int before)
{
    uint64_t w = (uint64_t)before;
    for (int i = 0; i < CARD_K; i++)
        w |= (uint64_t)codes[i] << (8 * i + 8);
#define PAGE_VALUE(v) card_levels[w >> (CARD_K * ((v) + 1) - 1) & 511]
    float32x4_t lo = { PAGE_VALUE(0), PAGE_VALUE(1), PAGE_VALUE(2), PAGE_VALUE(3) };
    float32x4_t hi = { PAGE_VALUE(4), PAGE_VALUE(5), PAGE_VALUE(6), PAGE_VALUE(7) };
    return (vf){ lo, hi };
}

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const page_block p = page_block_of(CARD_K, row, b);
    const vf scale = vf_splat_f16(p.scale);
#define PAGE_PUT(i)                                                                                         \
    v[i] = vf_add(vf_mul(page_values(p.codes + CARD_K * (i), (i) ? p.codes[CARD_K * (i) - 1] : p.before), scale), \
                  vf_load(p.mean + VF_LANES * (i)));
    VF_BLOCK(PAGE_PUT)
}
