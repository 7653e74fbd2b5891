/* eight.glsl: what the decoders that tools/gen_tables makes of the cards are written with: eight values, or eight codes, at any
 * byte of SRC: memory (PTR), or where a shader has put rows; read by ld_u8, ld_u16, ld_u32.  Once for each SRC. */
#ifndef EIGHT_GLSL
#define EIGHT_GLSL

/* Seven signs, above them the one that makes their count even. */
uint even_signs(uint s)
{
    return s | (uint(bitCount(s)) & 1u) << 7;
}

/* Bits moved to where an f32 has them; without an exponent: 1.m - 1 at the least one. */
float e4m3_magnitude(uint b)
{
    const bool small = (b & 0x78u) == 0u;
    return uintBitsToFloat(((b & 0x7fu) << 20) + (small ? 0x3c800000u : 0x3c000000u)) - (small ? 0.015625 : 0.0);
}

float e4m3_of(uint b)
{
    const float v = (b & 0x7fu) == 0x7fu ? NOT_A_NUMBER : e4m3_magnitude(b);
    return uintBitsToFloat(floatBitsToUint(v) | (b & 0x80u) << 24);
}

bool any_e4m3_nan(uint w)
{
    return ((w & 0x7f7f7f7fu) + 0x01010101u & 0x80808080u) != 0u;
}

/* Four of them that are no NaN: a half has the same bits of mantissa and exponent further up, and 256 times too small. */
void e4m3_by_halves(uint w, out float a, out float b, out float c, out float d)
{
    const vec2 even = unpackHalf2x16((w & 0x007f007fu) << 7 | (w & 0x00800080u) << 8) * 256.0,
               odd = unpackHalf2x16(w >> 1 & 0x3f803f80u | w & 0x80008000u) * 256.0;
    a = even.x;
    b = odd.x;
    c = even.y;
    d = odd.y;
}

/* Half of an NVFP4 scale; 0x7f counts as 0. */
float ue4m3_half(uint b)
{
    return b == 0x7fu || b == 0u ? 0.0 : 0.5 * e4m3_magnitude(b);
}

#endif

/* `bits` bits (up to 9) from bit `at` of the record at byte r on; no byte is read that holds none of them. */
uint field(SRC p, uint r, uint at, uint bits)
{
    const uint shift = at & 7u, more = shift + bits > 8u ? ld_u8(p, r + (at >> 3) + 1u) << 8 : 0u;
    return (ld_u8(p, r + (at >> 3)) | more) >> shift & (1u << bits) - 1u;
}

/* Scale k of eight in bits 0..5, its minimum above, of the 12 bytes of Q4_K and Q5_K. */
uint six_bit_pairs(SRC p, uint b, uint k)
{
    if (k < 4u)
        return (ld_u8(p, b + k) & 63u) | (ld_u8(p, b + k + 4u) & 63u) << 6;
    const uint both = ld_u8(p, b + k + 4u);
    return (both & 15u) | ld_u8(p, b + k - 4u) >> 6 << 4 | (both >> 4 | ld_u8(p, b + k) >> 6 << 4) << 6;
}

float one_f32(SRC p, uint b, uint k)
{
    return uintBitsToFloat(ld_u32(p, b + 4u * k));
}

float one_f16(SRC p, uint b, uint k)
{
    return half_of(ld_u16(p, b + 2u * k));
}

float one_bf16(SRC p, uint b, uint k)
{
    return bf16_of(ld_u16(p, b + 2u * k));
}

void eight_f32(SRC p, uint b, out float v[8])
{
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        v[i] = uintBitsToFloat(ld_u32(p, b + 4u * i));
}

void eight_f16(SRC p, uint b, out float v[8])
{
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const uint w = ld_u32(p, b + 4u * i);
        v[2u * i] = half_of(w & 0xffffu);
        v[2u * i + 1u] = half_of(w >> 16);
    }
}

void eight_bf16(SRC p, uint b, out float v[8])
{
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const uint w = ld_u32(p, b + 4u * i);
        v[2u * i] = bf16_of(w & 0xffffu);
        v[2u * i + 1u] = bf16_of(w >> 16);
    }
}

void eight_e4m3(SRC p, uint b, out float v[8])
{
    const uint lo = ld_u32(p, b), hi = ld_u32(p, b + 4u);
    if (HALVES != 0u && !any_e4m3_nan(lo) && !any_e4m3_nan(hi)) {
        e4m3_by_halves(lo, v[0], v[1], v[2], v[3]);
        e4m3_by_halves(hi, v[4], v[5], v[6], v[7]);
        return;
    }
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        v[i] = e4m3_of(lo >> 8u * i & 255u);
        v[4u + i] = e4m3_of(hi >> 8u * i & 255u);
    }
}

void eight_i8(SRC p, uint b, out float v[8])
{
    const int lo = int(ld_u32(p, b)), hi = int(ld_u32(p, b + 4u));
    [[unroll]] for (int i = 0; i < 4; i++) {
        v[i] = float(bitfieldExtract(lo, 8 * i, 8));
        v[4 + i] = float(bitfieldExtract(hi, 8 * i, 8));
    }
}

/* Eight bytes, of each the bits of mask above `shift`. */
void codes_halves(SRC p, uint b, uint shift, uint mask, out uint code[8])
{
    const uint lo = ld_u32(p, b) >> shift, hi = ld_u32(p, b + 4u) >> shift;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        code[i] = lo >> 8u * i & mask;
        code[4u + i] = hi >> 8u * i & mask;
    }
}

#ifdef CARDS_FORMATS
/* The step of the mean of a page of page scope: an f16, a bit in each of 16 bytes. */
float page_step(SRC p, uint start)
{
    uint bits = 0u;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const uint w = ld_u32(p, start + 4u * i) >> 7;
        bits |= (w & 1u | w >> 7 & 2u | w >> 14 & 4u | w >> 21 & 8u) << 4u * i;
    }
    return half_of(bits);
}

/* Values 8c .. 8c+7 of row r of the page of 128 values at byte b (formats/ptcq/ptcq.h), whole: their eight symbols are k bytes,
 * a state the nine bits that end with its symbol, so the first ones have bits of the byte before. */
float page_eight(SRC p, uint b, uint r, uint c, uint k, uint lut, out float v[8])
{
    const uint codes = b + 16u * k * r + k * c, scales = b + 1024u * k, mean = scales + 128u, start = mean + 128u;
    const uint w = ld_u32(p, codes),
               before = c > 0u ? ld_u8(p, codes - 1u) : (ld_u8(p, start + r) & (512u >> k) - 1u) << k - 1u;
    const float scale = half_of(ld_u16(p, scales + 2u * r)), step = page_step(p, start);
    eight_i8(p, mean + 8u * c, v);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        const uint end = k * (i + 1u), state = (end >= 9u ? w >> end - 9u : (before | w << 8) >> end - 1u) & 511u;
        precise float shared_part = v[i] * step, own = fmt_lut[lut + state] * scale, sum = own + shared_part;
        v[i] = sum;
    }
    return 1.0;
}
#endif

/* The highest nibbles of four u16, lowest first (IQ1_M's scale). */
uint nibbles_u16(SRC p, uint b)
{
    return ld_u8(p, b + 1u) >> 4 | ld_u8(p, b + 3u) >> 4 << 4 | ld_u8(p, b + 5u) >> 4 << 8 | ld_u8(p, b + 7u) >> 4 << 12;
}

/* Codes v .. v + 7 of the 256 of TQ1_0: digit n of a byte is what its product with 3^n, modulo 256, times 3 carries. */
void codes_trits(SRC p, uint b, uint v, out uint code[8])
{
    const uint row = v < 160u ? 32u : v < 240u ? 16u : 4u, first = v < 160u ? 0u : v < 240u ? 160u : 240u;
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        const uint at = v + i - first, n = at / row, power = n == 4u ? 81u : 0x1b090301u >> 8u * n & 255u;
        code[i] = 3u * (ld_u8(p, b + first / 5u + at % row) * power & 255u) >> 8;
    }
}

/* Eight codes of up to eight bits that follow each other, lowest bit first: `bits` bytes, and no other byte is read where that matters:
 * a record's last codes may be the buffer's last bytes. */
void codes_stream(SRC p, uint b, uint bits, out uint code[8])
{
    const uint lo = bits == 1u ? ld_u8(p, b) : bits == 2u ? ld_u16(p, b) : ld_u32(p, b),
               hi = bits == 5u ? ld_u8(p, b + 4u) : bits == 6u ? ld_u16(p, b + 4u) : bits > 6u ? ld_u32(p, b + 4u) : 0u;
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        const uint at = bits * i;
        const uint w = at >= 32u ? hi >> (at & 31u) : at + bits > 32u ? lo >> at | hi << (32u - at & 31u) : lo >> at;
        code[i] = w & (1u << bits) - 1u;
    }
}

/* Eight overlapping codes, `step` bits from one to the next, within 32 bits. */
void codes_trellis(SRC p, uint b, uint step, uint mask, out uint code[8])
{
    const uint w = ld_u32(p, b);
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        code[i] = w >> step * i & mask;
}
