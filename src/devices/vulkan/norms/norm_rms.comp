#version 450
/* norm_rms: y = x / sqrt(mean(x^2) + eps) * w; one workgroup per group of d values. */
#define SLOTS 3
#define ARGS ARGPTR x; ARGPTR w; ARGPTR y; float eps; uint n; uint h; uint d; uint ldx; uint gx; uint ldy; uint gy;
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/reduce.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at(), i = u / args.h, j = u % args.h, t = gl_LocalInvocationIndex;
    PTR x = P(0, x), w = P(1, w), y = P(2, y);
    float s = 0.0;
    if (i >= args.n)
        return;
    const uint from = i * args.ldx + j * args.gx, to = i * args.ldy + j * args.gy;
    for (uint e0 = t; e0 < args.d; e0 += 8u * GROUP) {     /* eight loads in flight */
        float v[8];
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            v[k] = e0 + k * GROUP < args.d ? ldf(x, from + e0 + k * GROUP) : 0.0;
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            s += v[k] * v[k];
    }
    const float scale = 1.0 / sqrt(group_sum(s) / float(args.d) + args.eps);
    for (uint e0 = t; e0 < args.d; e0 += 8u * GROUP) {
        float v[8];
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            v[k] = e0 + k * GROUP < args.d ? ldf(x, from + e0 + k * GROUP) * scale * ldf(w, e0 + k * GROUP) : 0.0;
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            if (e0 + k * GROUP < args.d)
                stf(y, to + e0 + k * GROUP, v[k]);
    }
}
