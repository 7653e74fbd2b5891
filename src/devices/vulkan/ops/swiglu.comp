#version 450
/* swiglu: y = silu(gate) * up, n rows of f. */
#define SLOTS 3
#define ARGS ARGPTR gate; ARGPTR up; ARGPTR y; uint n; uint f; uint ldg; uint ldu; uint ldy;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex, i = u / args.f, j = u % args.f;
    PTR gate = P(0, gate), up = P(1, up), y = P(2, y);
    if (i >= args.n)
        return;
    const float g = ldf(gate, i * args.ldg + j);
    stf(y, i * args.ldy + j, g / (1.0 + exp(-g)) * ldf(up, i * args.ldu + j));
}
