/* wt.glsl: the decoders of the weight types, eight values at a time: wt8(T, p, b, c, w) gives values 8c .. 8c+7 of the
 * row at byte b of p, with the roundings of the reference.  Eight values never cross a sub-block.  wt1 reads one value of
 * a type without blocks.  T is a specialisation constant (vk_numbers.h). */
#include "devices/vulkan/vk_numbers.h"

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

/* A nibble of e2m1 times two: 0 1 2 3 4 6 8 12 and their negatives. */
float e2m1_of(uint n)
{
    const float v = float(0xC8643210u >> 4u * (n & 7u) & 15u);
    return (n & 8u) != 0u ? -v : v;
}

/* Eight nibbles of two words at byte b, the lower (shift 0) or upper (4) of each byte. */
void wt_nibbles(PTR p, uint b, uint shift, out uint q[8])
{
    const uint lo = ld_u32(p, b) >> shift, hi = ld_u32(p, b + 4u) >> shift;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        q[i] = lo >> 8u * i & 15u;
        q[4u + i] = hi >> 8u * i & 15u;
    }
}

void wt8_wide(uint T, PTR p, uint b, uint c, out float w[8])
{
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        w[i] = 0.0;
    if (T == VK_WT_f32) {
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            w[i] = uintBitsToFloat(ld_u32(p, b + 32u * c + 4u * i));
        return;
    }
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const uint u = ld_u32(p, b + 16u * c + 4u * i);
        w[2u * i] = T == VK_WT_f16 ? half_of(u & 0xffffu) : bf16_of(u & 0xffffu);
        w[2u * i + 1u] = T == VK_WT_f16 ? half_of(u >> 16) : bf16_of(u >> 16);
    }
}

void wt8_q4_k(PTR p, uint b, uint c, out float w[8])
{
    const uint r = b + (c >> 5) * 144u, k = c >> 2 & 7u;
    uint q[8];
    const uint s = k < 4u ? ld_u8(p, r + 4u + k) & 63u
                          : (ld_u8(p, r + 8u + k) & 15u) | ld_u8(p, r + k) >> 6 << 4,
               m = k < 4u ? ld_u8(p, r + 8u + k) & 63u : ld_u8(p, r + 8u + k) >> 4 | ld_u8(p, r + 4u + k) >> 6 << 4;
    precise float a = half_of(ld_u16(p, r)) * float(s), least = half_of(ld_u16(p, r + 2u)) * float(m);
    wt_nibbles(p, r + 16u + 32u * (k / 2u) + 8u * (c & 3u), 4u * (k & 1u), q);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        precise float v = a * float(q[i]) - least;
        w[i] = v;
    }
}

void wt8_q6_k(PTR p, uint b, uint c, out float w[8])
{
    const uint r = b + (c >> 5) * 210u, v = 8u * (c & 31u), side = v / 128u, l = v % 32u, quarter = v % 128u / 32u,
               lo = r + 64u * side + l + 32u * (quarter & 1u), hi = r + 128u + 32u * side + l;
    const int sub = bitfieldExtract(int(ld_u8(p, r + 192u + v / 16u)), 0, 8);
    uint q[8];
    precise float scale = half_of(ld_u16(p, r + 208u)) * float(sub);
    const uint h0 = ld_u32(p, hi) >> 2u * quarter, h1 = ld_u32(p, hi + 4u) >> 2u * quarter;
    wt_nibbles(p, lo, 4u * (quarter >> 1), q);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        const uint h = (i < 4u ? h0 : h1) >> 8u * (i & 3u) & 3u;
        w[i] = scale * float(int(q[i] | h << 4) - 32);
    }
}

/* Blocks with one scale: q8_0, q4_0, mxfp4, nvfp4. */
void wt8_block(uint T, PTR p, uint b, uint c, out float w[8])
{
    uint q[8];
    float d;
    if (T == VK_WT_q8_0) {
        const uint r = b + (c >> 2) * 34u;
        const int lo = int(ld_u32(p, r + 2u + 8u * (c & 3u))), hi = int(ld_u32(p, r + 6u + 8u * (c & 3u)));
        d = half_of(ld_u16(p, r));
        [[unroll]] for (int i = 0; i < 4; i++) {
            w[i] = d * float(bitfieldExtract(lo, 8 * i, 8));
            w[4 + i] = d * float(bitfieldExtract(hi, 8 * i, 8));
        }
        return;
    }
    if (T == VK_WT_q4_0) {
        const uint r = b + (c >> 2) * 18u;
        d = half_of(ld_u16(p, r));
        wt_nibbles(p, r + 2u + 8u * (c & 1u), 2u * (c & 2u), q);
    } else if (T == VK_WT_mxfp4) {
        const uint r = b + (c >> 2) * 17u, e = ld_u8(p, r);
        d = uintBitsToFloat(e < 2u ? 0x00200000u << e : e - 1u << 23);
        wt_nibbles(p, r + 1u + 8u * (c & 1u), 2u * (c & 2u), q);
    } else {
        const uint r = b + (c >> 3) * 36u, s = c >> 1 & 3u, u = ld_u8(p, r + s), e = u >> 3 & 15u, m = u & 7u;
        d = e != 0u ? float(8u + m) * uintBitsToFloat(e + 117u << 23) : float(m) * uintBitsToFloat(118u << 23);
        d = u == 0x7fu || u == 0u ? 0.0 : 0.5 * d;
        wt_nibbles(p, r + 4u + 8u * s, 4u * (c & 1u), q);
    }
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        w[i] = d * (T == VK_WT_q4_0 ? float(int(q[i]) - 8) : e2m1_of(q[i]));
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
    else if (wt_wide(T))
        wt8_wide(T, p, b, c, w);
    else if (T == VK_WT_q4_k)
        wt8_q4_k(p, b, c, w);
    else if (T == VK_WT_q6_k)
        wt8_q6_k(p, b, c, w);
    else
        wt8_block(T, p, b, c, w);
}
