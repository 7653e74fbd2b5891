#version 450
/* scale: x *= s over n values. */
#define SLOTS 1
#define ARGS ARGPTR x; float s; uint n;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint i = group_at() * GROUP + gl_LocalInvocationIndex;
    PTR x = P(0, x);
    if (i < args.n)
        stf(x, i, ldf(x, i) * args.s);
}
