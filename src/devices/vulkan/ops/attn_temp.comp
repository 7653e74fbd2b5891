#version 450
/* attn_temp: x *= 1 + beta * log(1 + pos / length), whole lengths; n rows of d. */
#define SLOTS 2
#define ARGS ARGPTR x; ARGPTR pos; float beta; uint len; uint n; uint d; uint ldx;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex, i = u / args.d, o = i * args.ldx + u % args.d;
    PTR x = P(0, x), pos = P(1, pos);
    if (i < args.n)
        stf(x, o, ldf(x, o) * (1.0 + args.beta * log(1.0 + float(uint(ldi(pos, i)) / args.len))));
}
