#version 450
/* cache_read: rows of pages to f32, real space; one workgroup per row and head. */
#define SLOTS 6
#define ARGS ARGPTR pages; ARGPTR page; ARGPTR row; ARGPTR y; ARGPTR books; ARGPTR param; \
    uint n; uint h; uint page_words; uint head_bytes; uint row_bytes; uint has_factor;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint F = 0u;
layout(constant_id = 1) const uint SPACE = 0u;
layout(constant_id = 2) const uint D = 64u;
layout(constant_id = 3) const uint DP = 64u;
layout(constant_id = 4) const uint SDIM = 64u;
layout(constant_id = 5) const uint BOOK = 0u;
layout(constant_id = 6) const uint BOOK_N = 0u;
const uint FMT_LUT = BOOK_N + 1u;
#include "devices/vulkan/core/fmt.glsl"
#include "devices/vulkan/core/space.glsl"

void main()
{
    const uint u = group_at(), i = u / args.h, t = gl_LocalInvocationIndex;
    PTR y = P(3, y), books = P(4, books), param = P(5, param);
    if (i >= args.n)
        return;
    PTR pages = at_mul(P(0, pages), ld(P(1, page), i), args.page_words);
    const uint head = u % args.h * args.head_bytes, r = ld(P(2, row), i);
    const float factor = args.has_factor != 0u ? ldf(param, 0u) : 1.0;
    fmt_fill(books, BOOK, BOOK_N, 0u);
    barrier();
    for (uint c = t; 8u * c < SDIM; c += GROUP) {
        float v[8];
        precise float scale = row8(F, pages, head, args.row_bytes, r, c, 0u, factor, v);
        for (uint e = 0u; e < 8u && 8u * c + e < SDIM; e++)
            sp[8u * c + e] = v[e] * scale;
    }
    space_finish(books, param, SPACE, DP);
    for (uint e = t; e < D; e += GROUP)
        stf(y, u * D + e, sp_real[e]);
}
