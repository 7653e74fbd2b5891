#version 450
/* attn of prompts, before wide.glsl: the rows of K's or V's pages as halves in real space, keys from .. from + keys - 1
 * of every sequence: [sequence][KV head][key][D].  A workgroup per ROWS keys of a head; keys that no query reads
 * encoded are left out. */
#define SLOTS 8
#define ARGS ARGPTR pages; ARGPTR to; ARGPTR q0; ARGPTR pos0; ARGPTR table; ARGPTR tails; ARGPTR books; ARGPTR param; \
    uint n_seqs; uint h; uint stride; uint page_words; uint head_bytes; uint row_bytes; uint has_factor; uint from; \
    uint keys; uint window; uint tail_pages;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint F = 0u;
layout(constant_id = 1) const uint SPACE = 0u;
layout(constant_id = 2) const uint D = 64u;
layout(constant_id = 3) const uint DP = 64u;
layout(constant_id = 4) const uint SDIM = 64u;
layout(constant_id = 5) const uint BOOK = 0u;
layout(constant_id = 6) const uint BOOK_N = 0u;
layout(constant_id = 7) const uint ROWS = 4u;              /* of a workgroup, as many as space.glsl has room for */
const uint FMT_LUT = BOOK_N + 1u;
#include "devices/vulkan/core/fmt.glsl"
#include "devices/vulkan/core/space.glsl"

/* The page of key j of a sequence; -1: no query reads it encoded. */
int page_of(uint seq, uint j)
{
    const uint rows = ld(P(2, q0), seq + 1u) - ld(P(2, q0), seq), pos = ld(P(3, pos0), seq), end = pos + rows,
               at = seq * args.stride + j / PAGE;
    if (rows == 0u || j >= end || args.window > 0u && j + ROWS + args.window <= pos + 1u)
        return -1;
    if ((end - 1u) / PAGE - j / PAGE < args.tail_pages && ldi(P(5, tails), at) >= 0)
        return -1;                 /* exact for the last query that sees it, so for all */
    return ldi(P(4, table), at);
}

uint two_halves(float a, float b)
{
    return HALVES != 0u ? packHalf2x16(vec2(a, b)) : to_half(a) | to_half(b) << 16;
}

void decode(int page, uint head, uint row)
{
    const PTR from = at_mul(P(0, pages), uint(page), args.page_words);
    const float factor = args.has_factor != 0u ? ldf(P(7, param), 0u) : 1.0;
    for (uint u = gl_LocalInvocationIndex; u < ROWS * (SDIM / 8u); u += GROUP) {
        const uint r = u / (SDIM / 8u), c = u % (SDIM / 8u);
        float v[8];
        precise float scale = row8(F, from, head * args.head_bytes, args.row_bytes, row + r, c, 0u, factor, v);
        [[unroll]] for (uint e = 0u; e < 8u; e++)
            sp[r * SDIM + 8u * c + e] = v[e] * scale;
    }
}

float real_at(uint i)
{
    return SPACE == VK_SPACE_SKETCH ? sp_real[i % (SP_MAX / 2u)] : sp[i];
}

void main()
{
    const uint runs = args.keys / ROWS, u = group_at(), unit = u / runs, first = u % runs * ROWS, seq = unit / args.h,
               head = unit % args.h, j = args.from + first;
    if (seq >= args.n_seqs)
        return;
    const int page = page_of(seq, j);
    if (page < 0)
        return;
    fmt_fill(P(6, books), BOOK, BOOK_N, 0u);
    barrier();
    decode(page, head, j % PAGE);
    if (SPACE == VK_SPACE_SKETCH)
        space_finish(P(6, books), P(7, param), SPACE, ROWS * DP);
    else                           /* in place: sp has room for more rows than sp_real */
        space_rotate(P(6, books), SPACE, true, ROWS * DP);
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < ROWS * (D / 8u); i += GROUP) {
        const uint r = i / (D / 8u), c = i % (D / 8u), at = r * DP + 8u * c;
        uvec4 w;
        [[unroll]] for (uint e = 0u; e < 4u; e++)
            w[e] = two_halves(real_at(at + 2u * e), real_at(at + 2u * e + 1u));
        st4(P(1, to), (unit * args.keys + first + r) * (D / 8u) + c, w);
    }
}
