#version 450
/* embed: y[i] = row ids[i] of W, dequantised; one workgroup per row.  Rows outside row_from .. row_to-1 are another
 * window's (w begins at row row_from). */
#define SLOTS 5
#define WT_GRID P(4, grid)
#define ARGS ARGPTR w; ARGPTR scale; ARGPTR ids; ARGPTR y; ARGPTR grid; uint n; uint n_in; uint row_bytes; uint row_from; \
    uint row_to; uint has_scale;
#include "devices/vulkan/core/kv.glsl"
#include "wt.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint T = 0u;

void main()
{
    const uint i = group_at(), t = gl_LocalInvocationIndex;
    PTR y = P(3, y);
    uint b;
    if (i >= args.n)
        return;
    const uint id = ld(P(2, ids), i);
    if (id < args.row_from || id >= args.row_to)
        return;
    PTR row = at_bytes(P(0, w), id - args.row_from, args.row_bytes, b);
    const float scale = args.has_scale != 0u ? ldf(P(1, scale), 0u) : 1.0;
    for (uint c = t; c < args.n_in / 8u; c += GROUP) {
        float w[8];
        wt8(T, row, b, c, w);
        for (uint e = 0u; e < 8u; e++)
            stf(y, i * args.n_in + 8u * c + e, w[e] * scale);
    }
    for (uint k = args.n_in / 8u * 8u + t; k < args.n_in && wt_wide(T); k += GROUP)
        stf(y, i * args.n_in + k, wt1(T, row, b, k) * scale);
}
