/* wt.glsl: the decoders of the weight types, eight values at a time: wt8(T, p, b, c, w) gives values 8c .. 8c+7 of the
 * row at byte b of p, with the roundings of the reference.  Eight values never cross a sub-block.  wt1 reads one value of
 * a type without blocks.  T is a specialisation constant (vk_numbers.h). */
#include "devices/vulkan/vk_numbers.h"

#define CARDS_WEIGHTS
#include "cards/decode.glsl"
#undef CARDS_WEIGHTS

bool wt_wide(uint T)
{
    return T <= VK_WT_bf16;
}

float wt1(uint T, PTR p, uint b, uint k)
{
    if (T == VK_WT_f32)
        return uintBitsToFloat(ld_u32(p, b + 4u * k));
    return T == VK_WT_f16 ? half_of(ld_u16(p, b + 2u * k)) : bf16_of(ld_u16(p, b + 2u * k));
}

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
    if (T == VK_WT_q8_split)
        wt8_split(p, b, c, w);
    else
        wt8_of_file(T, p, b, c, w);
}
