#version 450
/* mul: y *= x, n rows of d. */
#define SLOTS 2
#define ARGS ARGPTR y; ARGPTR x; uint n; uint d; uint ldy; uint ldx;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex, i = u / args.d, j = u % args.d;
    PTR y = P(0, y), x = P(1, x);
    if (i < args.n)
        stf(y, i * args.ldy + j, ldf(y, i * args.ldy + j) * ldf(x, i * args.ldx + j));
}
