#version 450
/* norm_layer: y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b; one workgroup per group of d values. */
#define SLOTS 4
#define ARGS ARGPTR x; ARGPTR w; ARGPTR b; ARGPTR y; float eps; uint n; uint h; uint d; uint ldx; uint gx; uint ldy; \
             uint gy; uint gw; uint has_b;
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/reduce.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at(), i = u / args.h, j = u % args.h, t = gl_LocalInvocationIndex;
    PTR x = P(0, x), w = P(1, w), b = P(2, b), y = P(3, y);
    if (i >= args.n)
        return;
    const uint from = i * args.ldx + j * args.gx, to = i * args.ldy + j * args.gy, own = j * args.gw;
    float sum = 0.0, squares = 0.0;
    for (uint e = t; e < args.d; e += GROUP)
        sum += ldf(x, from + e);
    const float mean = group_sum(sum) / float(args.d);
    for (uint e = t; e < args.d; e += GROUP) {
        const float v = ldf(x, from + e) - mean;
        squares += v * v;
    }
    const float scale = 1.0 / sqrt(group_sum(squares) / float(args.d) + args.eps);
    for (uint e = t; e < args.d; e += GROUP) {
        float v = (ldf(x, from + e) - mean) * scale * ldf(w, own + e);
        if (args.has_b != 0u)
            v += ldf(b, own + e);
        stf(y, to + e, v);
    }
}
