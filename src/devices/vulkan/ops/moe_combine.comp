#version 450
/* moe_combine: y[i] = sum_j wts[i*k + j] * x[i*k + j], j ascending. */
#define SLOTS 3
#define ARGS ARGPTR x; ARGPTR wts; ARGPTR y; uint n; uint k; uint d;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex, i = u / args.d, e = u % args.d;
    PTR x = P(0, x), wts = P(1, wts), y = P(2, y);
    float sum = 0.0;
    if (i >= args.n)
        return;
    for (uint j = 0u; j < args.k; j++)
        sum += ldf(wts, i * args.k + j) * ldf(x, (i * args.k + j) * args.d + e);
    stf(y, u, sum);
}
