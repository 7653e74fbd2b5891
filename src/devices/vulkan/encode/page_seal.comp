#version 450
/* page_seal: encodes whole tail pages: all heads, 64 rows. */
#define SLOTS 6
#define ARGS ARGPTR pages; ARGPTR tail; ARGPTR books; ARGPTR param; ARGPTR src; ARGPTR dst; uint n; uint h; uint d; \
    uint units; uint page_words; uint head_bytes; uint row_bytes; uint has_factor;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
#include "write.glsl"

void main()
{
    const uint u = BY_GROUP ? group_at() : group_at() * GROUP + gl_LocalInvocationIndex, t = gl_LocalInvocationIndex;
    const uint k = u % args.units, head = u / args.units % args.h, row = u / args.units / args.h, i = row / PAGE,
               r = row % PAGE, g = k * WIDTH;
    PTR books = P(2, books), param = P(3, param);
    fmt_fill(books, BOOK, BOOK_N, 0u);
    barrier();
    if (i >= args.n)
        return;
    const uint count = g < args.d ? min(WIDTH, args.d - g) : 0u, b = head * args.head_bytes + r * args.row_bytes + k * UNIT_BYTES;
    PTR from = at_mul(P(1, tail), ld(P(4, src), i) * args.h + head, PAGE * args.d / 2u);
    PTR page = at_mul(P(0, pages), ld(P(5, dst), i), args.page_words);
    const uint x_at = r * args.d + g;
    if (BY_GROUP) {
        for (uint e = t; e < 128u; e += GROUP)
            sp[e] = e < count ? half_of(ld_u16(from, 2u * (x_at + e))) : 0.0;
        unit_encode_group(books, param);
        if (t == 0u)
            unit_store(page, b, count);
        return;
    }
    for (uint e = 0u; e < WIDTH; e++)
        y[e] = e < count ? half_of(ld_u16(from, 2u * (x_at + e))) : 0.0;
    unit_encode(books, param, args.has_factor, count);
    unit_store(page, b, count);
}
