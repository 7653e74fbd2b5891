/* eight.glsl: what the decoders that tools/gen_tables makes of the cards are written with: eight values, or eight codes, at any byte. */

float e4m3_magnitude(uint b)
{
    const uint e = b >> 3 & 15u, m = b & 7u;
    return e != 0u ? float(8u + m) * uintBitsToFloat(e + 117u << 23) : float(m) * uintBitsToFloat(118u << 23);
}

float e4m3_of(uint b)
{
    const float v = (b & 0x7fu) == 0x7fu ? NOT_A_NUMBER : e4m3_magnitude(b);
    return (b & 0x80u) != 0u ? -v : v;
}

/* Half of an NVFP4 scale; 0x7f counts as 0. */
float ue4m3_half(uint b)
{
    return b == 0x7fu || b == 0u ? 0.0 : 0.5 * e4m3_magnitude(b);
}

/* Half of 2^(e - 127). */
float e8m0_half(uint e)
{
    return uintBitsToFloat(e < 2u ? 0x00200000u << e : e - 1u << 23);
}

/* A nibble of e2m1 times two: 0 1 2 3 4 6 8 12 and their negatives. */
float e2m1_doubled(uint n)
{
    const float v = float(0xC8643210u >> 4u * (n & 7u) & 15u);
    return (n & 8u) != 0u ? -v : v;
}

/* Scale k of eight in bits 0..5, its minimum above, of the 12 bytes of Q4_K and Q5_K. */
uint six_bit_pairs(PTR p, uint b, uint k)
{
    if (k < 4u)
        return (ld_u8(p, b + k) & 63u) | (ld_u8(p, b + k + 4u) & 63u) << 6;
    const uint both = ld_u8(p, b + k + 4u);
    return (both & 15u) | ld_u8(p, b + k - 4u) >> 6 << 4 | (both >> 4 | ld_u8(p, b + k) >> 6 << 4) << 6;
}

void eight_f32(PTR p, uint b, out float v[8])
{
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        v[i] = uintBitsToFloat(ld_u32(p, b + 4u * i));
}

void eight_f16(PTR p, uint b, out float v[8])
{
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const uint w = ld_u32(p, b + 4u * i);
        v[2u * i] = half_of(w & 0xffffu);
        v[2u * i + 1u] = half_of(w >> 16);
    }
}

void eight_bf16(PTR p, uint b, out float v[8])
{
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const uint w = ld_u32(p, b + 4u * i);
        v[2u * i] = bf16_of(w & 0xffffu);
        v[2u * i + 1u] = bf16_of(w >> 16);
    }
}

void eight_e4m3(PTR p, uint b, out float v[8])
{
    const uint lo = ld_u32(p, b), hi = ld_u32(p, b + 4u);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        v[i] = e4m3_of(lo >> 8u * i & 255u);
        v[4u + i] = e4m3_of(hi >> 8u * i & 255u);
    }
}

void eight_i8(PTR p, uint b, out float v[8])
{
    const int lo = int(ld_u32(p, b)), hi = int(ld_u32(p, b + 4u));
    [[unroll]] for (int i = 0; i < 4; i++) {
        v[i] = float(bitfieldExtract(lo, 8 * i, 8));
        v[4 + i] = float(bitfieldExtract(hi, 8 * i, 8));
    }
}

/* Eight bytes, of each the bits of mask above `shift`. */
void codes_halves(PTR p, uint b, uint shift, uint mask, out uint code[8])
{
    const uint lo = ld_u32(p, b) >> shift, hi = ld_u32(p, b + 4u) >> shift;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        code[i] = lo >> 8u * i & mask;
        code[4u + i] = hi >> 8u * i & mask;
    }
}

/* Eight codes of up to eight bits that follow each other, lowest bit first: `bits` bytes, and no other byte is read where that matters:
 * a record's last codes may be the buffer's last bytes. */
void codes_stream(PTR p, uint b, uint bits, out uint code[8])
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
void codes_trellis(PTR p, uint b, uint step, uint mask, out uint code[8])
{
    const uint w = ld_u32(p, b);
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        code[i] = w >> step * i & mask;
}
