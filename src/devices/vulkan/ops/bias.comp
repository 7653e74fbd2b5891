#version 450
/* bias: y += b, one value per column, of the row's own vector where there are ids; n rows of d. */
#define SLOTS 3
#define ARGS ARGPTR y; ARGPTR b; ARGPTR ids; uint n; uint d; uint ldy; uint has_ids;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex, i = u / args.d, j = u % args.d,
               o = i * args.ldy + j;
    PTR y = P(0, y), b = P(1, b), ids = P(2, ids);
    if (i >= args.n)
        return;
    const uint row = args.has_ids != 0u ? uint(ldi(ids, i)) : 0u;
    stf(y, o, ldf(y, o) + ldf(b, row * args.d + j));
}
