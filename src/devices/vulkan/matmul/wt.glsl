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

/* A row of all blocks' low halves, then their high pairs of bits, their factors, their scales. */
void wt8_split_six(PTR p, uint b, uint c, out float w[8])
{
    const uint blocks = args.n_in / 256u, block = c / 32u, half_of_it = c / 16u & 1u, v = 8u * (c & 15u);
    const uint low = b / 4u + 32u * block + 16u * half_of_it + (v & 63u) / 4u,
               high = b / 4u + 32u * blocks + 16u * block + 8u * half_of_it + (v & 31u) / 4u;
    const float d = half_of(ld_u16(p, b + 208u * blocks + 2u * block));
    precise float scale = d * float(bitfieldExtract(int(ld_u8(p, b + 192u * blocks + c / 2u)), 0, 8));
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        const uint at = 8u * (i & 3u);
        const uint code = (ld(p, low + i / 4u) >> at + 4u * (v / 64u) & 15u) |
                          (ld(p, high + i / 4u) >> at + 2u * (v / 32u) & 3u) << 4;
        precise float x = scale * float(int(code) - 32);
        w[i] = x;
    }
}

void wt8(uint T, PTR p, uint b, uint c, out float w[8])
{
    if (T == VK_WEIGHT_SPLIT)
        wt8_split(p, b, c, w);
    else if (T == VK_WEIGHT_SPLIT_SIX)
        wt8_split_six(p, b, c, w);
    else
        wt8_of_file(T, p, b, c, w);
}
