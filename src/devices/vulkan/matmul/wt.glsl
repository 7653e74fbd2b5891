/* wt.glsl: the decoders of the weight types, eight values at a time: wt8(T, p, b, c, w) gives values 8c .. 8c+7 of the
 * row at byte b of p, with the roundings of the reference.  Eight values never cross a sub-block.  wt_wide: a type without
 * blocks, of which wt1 reads one value.  wt_bytes: a row is signed bytes, then scales.  T is a specialisation constant
 * (cards/vulkan.h).  Rows that vk_weight.c rearranges have args.n_in values.  WT_GRID: the pointer of vk_grid_ptr. */
#include "cards/vulkan.h"

/* As codes_halves and eight_i8, at a multiple of four bytes: of rearranged rows. */
void words_halves(PTR p, uint b, uint shift, uint mask, out uint code[8])
{
    const uint lo = ld(p, b >> 2) >> shift, hi = ld(p, (b >> 2) + 1u) >> shift;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        code[i] = lo >> 8u * i & mask;
        code[4u + i] = hi >> 8u * i & mask;
    }
}

void words_i8(PTR p, uint b, out float v[8])
{
    const int lo = int(ld(p, b >> 2)), hi = int(ld(p, (b >> 2) + 1u));
    [[unroll]] for (int i = 0; i < 4; i++) {
        v[i] = float(bitfieldExtract(lo, 8 * i, 8));
        v[4 + i] = float(bitfieldExtract(hi, 8 * i, 8));
    }
}

#define CARDS_WEIGHTS
#define SRC PTR
#include "cards/decode.glsl"
#undef SRC
#undef CARDS_WEIGHTS
