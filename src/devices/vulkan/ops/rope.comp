#version 450
/* rope: rotates the first n_rot values of each head in place. */
#define SLOTS 3
#define ARGS ARGPTR x; ARGPTR pos; ARGPTR inv_freq; float mscale; uint neox; uint n_rot; uint n; uint h; uint ldx; uint gx;
#include "devices/vulkan/core/kv.glsl"
#include "rope.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint half_n = args.n_rot / 2u, u = group_at() * GROUP + gl_LocalInvocationIndex, e = u % half_n,
               j = u / half_n % args.h, i = u / half_n / args.h;
    PTR x = P(0, x), pos = P(1, pos), inv_freq = P(2, inv_freq);
    if (i >= args.n)
        return;
    precise float angle = float(ldi(pos, i)) * ldf(inv_freq, e);
    const vec2 sc = sin_cos(angle) * args.mscale;
    const uint o = i * args.ldx + j * args.gx, a = o + (args.neox != 0u ? e : 2u * e),
               b = o + (args.neox != 0u ? e + half_n : 2u * e + 1u);
    const float v0 = ldf(x, a), v1 = ldf(x, b);
    stf(x, a, v0 * sc.y - v1 * sc.x);
    stf(x, b, v0 * sc.x + v1 * sc.y);
}
