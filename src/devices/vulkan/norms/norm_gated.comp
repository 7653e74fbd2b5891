#version 450
/* norm_gated: y = norm_rms(o; w) * silu(z) per value head of dv. */
#define SLOTS 4
#define ARGS ARGPTR o; ARGPTR z; ARGPTR w; ARGPTR y; float eps; uint n; uint h; uint dv; uint ldz;
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/reduce.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at(), i = u / args.h, t = gl_LocalInvocationIndex, from = u * args.dv,
               gate = i * args.ldz + u % args.h * args.dv;
    PTR o = P(0, o), z = P(1, z), w = P(2, w), y = P(3, y);
    float s = 0.0;
    if (i >= args.n)
        return;
    for (uint e = t; e < args.dv; e += GROUP) {
        const float v = ldf(o, from + e);
        s += v * v;
    }
    const float scale = 1.0 / sqrt(group_sum(s) / float(args.dv) + args.eps);
    for (uint e = t; e < args.dv; e += GROUP) {
        const float g = ldf(z, gate + e);
        stf(y, from + e, ldf(o, from + e) * scale * ldf(w, e) * (g / (1.0 + exp(-g))));
    }
}
