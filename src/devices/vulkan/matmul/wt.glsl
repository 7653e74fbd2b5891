/* wt.glsl: the decoders of the weight types, eight values at a time: wt8(T, p, b, c, w) gives values 8c .. 8c+7 of the
 * row at byte b of p, with the roundings of the reference.  Eight values never cross a sub-block.  wt_wide: a type without
 * blocks, of which wt1 reads one value.  T is a specialisation constant (cards/vulkan.h).  WT_GRID: the pointer of
 * vk_grid_ptr. */
#include "cards/vulkan.h"

#define CARDS_WEIGHTS
#define SRC PTR
#include "cards/decode.glsl"
#undef SRC
#undef CARDS_WEIGHTS

/* A row's codes, then its scales; args.n_in is a multiple of 32. */
void wt8_split(PTR p, uint b, uint c, out float w[8])
{
    const int lo = int(ld(p, b / 4u + 2u * c)), hi = int(ld(p, b / 4u + 2u * c + 1u));
    const float d = half_of(ld_u16(p, b + args.n_in + 2u * (c >> 2)));
    [[unroll]] for (int i = 0; i < 4; i++) {
        w[i] = d * float(bitfieldExtract(lo, 8 * i, 8));
        w[4 + i] = d * float(bitfieldExtract(hi, 8 * i, 8));
    }
}

void wt8(uint T, PTR p, uint b, uint c, out float w[8])
{
    if (T == VK_WEIGHT_SPLIT)
        wt8_split(p, b, c, w);
    else
        wt8_of_file(T, p, b, c, w);
}
