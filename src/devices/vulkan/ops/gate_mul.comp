#version 450
/* gate_mul: y *= sigmoid(gate); n rows of h groups of d. */
#define SLOTS 2
#define ARGS ARGPTR y; ARGPTR gate; uint n; uint h; uint d; uint ldy; uint gy; uint ldg; uint gg;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex, e = u % args.d, j = u / args.d % args.h,
               i = u / args.d / args.h, o = i * args.ldy + j * args.gy + e;
    PTR y = P(0, y), gate = P(1, gate);
    if (i < args.n)
        stf(y, o, ldf(y, o) * sigmoid(ldf(gate, i * args.ldg + j * args.gg + e)));
}
