#version 450
/* gate_add: y[i] += x[i] * sigmoid(gate[i]), one gate per row of d. */
#define SLOTS 3
#define ARGS ARGPTR y; ARGPTR x; ARGPTR gate; uint n; uint d;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex;
    PTR y = P(0, y), x = P(1, x), gate = P(2, gate);
    if (u < args.n * args.d)
        stf(y, u, ldf(y, u) + ldf(x, u) * sigmoid(ldf(gate, u / args.d)));
}
