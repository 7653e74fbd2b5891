/* fmt.glsl: the decoders of the cache formats, eight values at a time.  Byte layouts: docs/formats.
 *
 * fmt8(F, p, b, c, lut, v) decodes values 8c .. 8c+7 of the row at byte b of p, in acc space: value = v[i] * result.
 * The result is the scale of these eight (1 for the wide formats).  lut: where fmt_fill put the format's table.
 * param: f8_e4m3's factor.  F is a specialisation constant, so one branch is left. */
#include "devices/vulkan/vk_numbers.h"

shared float fmt_lut[FMT_LUT];     /* FMT_LUT: room for the tables of all formats that the shader reads; at least 1 */

/* n values of the books from `from` on, to fmt_lut[base ..].  Needs a barrier before the first use. */
void fmt_fill(PTR books, uint from, uint n, uint base)
{
    for (uint i = gl_LocalInvocationIndex; i < n; i += GROUP)
        fmt_lut[base + i] = ldf(books, from + i);
}

float e4m3_of(uint b)
{
    const uint e = b >> 3 & 15u, m = b & 7u;
    float v = e != 0u ? float(8u + m) * uintBitsToFloat(e + 117u << 23) : float(m) * uintBitsToFloat(118u << 23);
    v = (b & 0x7fu) == 0x7fu ? NOT_A_NUMBER : v;
    return (b & 0x80u) != 0u ? -v : v;
}

/* Eight nibbles of a 32-value record of nibbles behind its scale: low nibbles first. */
void fmt_nibbles(PTR p, uint record, uint c, out uint code[8])
{
    const uint at_byte = record + 2u + 8u * (c & 1u), shift = 2u * (c & 2u), lo = ld_u32(p, at_byte) >> shift,
               hi = ld_u32(p, at_byte + 4u) >> shift;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        code[i] = lo >> 8u * i & 15u;
        code[4u + i] = hi >> 8u * i & 15u;
    }
}

float fmt8_wide(uint F, PTR p, uint b, uint c, float param, out float v[8])
{
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        v[i] = 0.0;
    if (F == VK_FMT_f32) {
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            v[i] = uintBitsToFloat(ld_u32(p, b + 32u * c + 4u * i));
    } else if (F == VK_FMT_f8_e4m3) {
        const uint lo = ld_u32(p, b + 8u * c), hi = ld_u32(p, b + 8u * c + 4u);
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            v[i] = e4m3_of(lo >> 8u * i & 255u);
            v[4u + i] = e4m3_of(hi >> 8u * i & 255u);
        }
        return param;
    } else {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            const uint w = ld_u32(p, b + 16u * c + 4u * i);
            v[2u * i] = F == VK_FMT_f16 ? half_of(w & 0xffffu) : bf16_of(w & 0xffffu);
            v[2u * i + 1u] = F == VK_FMT_f16 ? half_of(w >> 16) : bf16_of(w >> 16);
        }
    }
    return 1.0;
}

/* Records of 32 values: a half, then codes. */
float fmt8_record(uint F, PTR p, uint b, uint c, uint lut, out float v[8])
{
    const uint bytes = F == VK_FMT_q8_0 ? 34u : F == VK_FMT_tbq3_0 || F == VK_FMT_turbo3 ? 14u : 18u;
    const uint r = b + (c >> 2) * bytes, k = c & 3u;
    uint code[8];
    if (F == VK_FMT_q8_0) {
        const int lo = int(ld_u32(p, r + 2u + 8u * k)), hi = int(ld_u32(p, r + 6u + 8u * k));
        [[unroll]] for (int i = 0; i < 4; i++) {
            v[i] = float(bitfieldExtract(lo, 8 * i, 8));
            v[4 + i] = float(bitfieldExtract(hi, 8 * i, 8));
        }
        return half_of(ld_u16(p, r));
    }
    if (F == VK_FMT_tbq3_0) {
        const uint w = ld_u32(p, r + 2u + 3u * k);
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            code[i] = w >> 3u * i & 7u;
    } else if (F == VK_FMT_turbo3) {
        const uint low = ld_u16(p, r + 2u + 2u * k), high = ld_u8(p, r + 10u + k);
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            code[i] = (low >> 2u * i & 3u) | (high >> i & 1u) << 2;
    } else {
        fmt_nibbles(p, r, c, code);
    }
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        v[i] = F == VK_FMT_q4_0 ? float(int(code[i]) - 8) : fmt_lut[lut + code[i]];
    return half_of(ld_u16(p, r));
}

/* Groups of 128 values: a half, then codes of four or three bits. */
float fmt8_group(uint F, PTR p, uint b, uint c, uint lut, out float v[8])
{
    const uint bytes = F == VK_FMT_turbo4_66 ? 66u : F == VK_FMT_turbo3_tcq ? 52u : 82u;
    const uint r = b + (c >> 4) * bytes, k = c & 15u;
    if (F == VK_FMT_turbo3_tcq) {          /* state t is the nine bits of the stream at bit 3t */
        const uint w = ld_u32(p, r + 2u + 3u * k);
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            v[i] = fmt_lut[lut + (w >> 3u * i & 511u)];
        return half_of(ld_u16(p, r));
    }
    const uint w = ld_u32(p, r + 2u + 4u * k);
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        v[i] = fmt_lut[lut + (w >> 4u * i & 15u)];
    if (F == VK_FMT_q4_polar_r) {
        const float one = uintBitsToFloat(0x3d3504f3u), s = (ld_u8(p, r + 66u) & 1u) != 0u ? one : -one;
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            v[i] += s * fmt_lut[lut + 16u + 8u * k + i];
    }
    return half_of(ld_u16(p, r));
}

float fmt8(uint F, PTR p, uint b, uint c, uint lut, float param, out float v[8])
{
    if (F <= VK_FMT_bf16 || F == VK_FMT_f8_e4m3)
        return fmt8_wide(F, p, b, c, param, v);
    if (F == VK_FMT_qjl1_256) {
        const uint r = b + (c >> 5) * 34u, bits = ld_u8(p, r + (c & 31u));
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            v[i] = (bits >> i & 1u) != 0u ? 1.0 : -1.0;
        return uintBitsToFloat(0x3ba06c99u) * bf16_of(ld_u16(p, r + 32u));     /* sqrt(pi/2)/256 */
    }
    if (F == VK_FMT_turbo4_66 || F == VK_FMT_turbo3_tcq || F == VK_FMT_q4_polar || F == VK_FMT_q4_polar_r)
        return fmt8_group(F, p, b, c, lut, v);
    return fmt8_record(F, p, b, c, lut, v);
}
