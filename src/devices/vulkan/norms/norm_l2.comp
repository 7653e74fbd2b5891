#version 450
/* norm_l2: x / max(sqrt(sum x^2), eps) in place; one workgroup per group of d values. */
#define SLOTS 1
#define ARGS ARGPTR x; float eps; uint n; uint h; uint d; uint ldx; uint gx;
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/reduce.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at(), i = u / args.h, t = gl_LocalInvocationIndex;
    PTR x = P(0, x);
    const uint o = i * args.ldx + u % args.h * args.gx;
    float s = 0.0;
    if (i >= args.n)
        return;
    for (uint e = t; e < args.d; e += GROUP) {
        const float v = ldf(x, o + e);
        s += v * v;
    }
    const float length = sqrt(group_sum(s)), scale = 1.0 / (length < args.eps ? args.eps : length);
    for (uint e = t; e < args.d; e += GROUP)
        stf(x, o + e, ldf(x, o + e) * scale);
}
