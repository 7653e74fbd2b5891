#version 450
/* softcap: x = cap * tanh(x / cap) over n values. */
#define SLOTS 1
#define ARGS ARGPTR x; float cap; uint n;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint i = group_at() * GROUP + gl_LocalInvocationIndex;
    PTR x = P(0, x);
    if (i < args.n)
        stf(x, i, args.cap * tanh(clamp(ldf(x, i) / args.cap, -15.0, 15.0)));    /* tanh(15) is 1 */
}
