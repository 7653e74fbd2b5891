#version 450
/* add: x += y over n values. */
#define SLOTS 2
#define ARGS ARGPTR x; ARGPTR y; uint n;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint i = group_at() * GROUP + gl_LocalInvocationIndex;
    PTR x = P(0, x), y = P(1, y);
    if (i < args.n)
        stf(x, i, ldf(x, i) + ldf(y, i));
}
