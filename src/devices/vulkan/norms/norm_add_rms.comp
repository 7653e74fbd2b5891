#version 450
/* norm_add_rms: x += add, then y = norm_rms(x) * w; one workgroup per row of d. */
#define SLOTS 4
#define ARGS ARGPTR x; ARGPTR add; ARGPTR w; ARGPTR y; float eps; uint n; uint d;
#define GROUP_SIZE WIDE_GROUP
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/reduce.glsl"
layout(local_size_x = GROUP_SIZE) in;

/* Rows of at most eight values a thread stay in registers. */
void short_row(uint o)
{
    const uint t = gl_LocalInvocationIndex;
    PTR x = P(0, x), add = P(1, add), w = P(2, w), y = P(3, y);
    float v[8], f[8], s = 0.0;
    [[unroll]] for (uint k = 0u; k < 8u; k++) {
        const uint e = t + k * GROUP;
        v[k] = e < args.d ? ldf(x, o + e) + ldf(add, o + e) : 0.0;
        f[k] = e < args.d ? ldf(w, e) : 0.0;
    }
    [[unroll]] for (uint k = 0u; k < 8u; k++)
        s += v[k] * v[k];
    const float scale = 1.0 / sqrt(group_sum(s) / float(args.d) + args.eps);
    [[unroll]] for (uint k = 0u; k < 8u; k++)
        if (t + k * GROUP < args.d) {
            stf(x, o + t + k * GROUP, v[k]);
            stf(y, o + t + k * GROUP, v[k] * scale * f[k]);
        }
}

void main()
{
    const uint i = group_at(), t = gl_LocalInvocationIndex, o = i * args.d;
    PTR x = P(0, x), add = P(1, add), w = P(2, w), y = P(3, y);
    float s = 0.0;
    if (i >= args.n)
        return;
    if (args.d <= 8u * GROUP) {
        short_row(o);
        return;
    }
    /* eight loads in flight: a store among them would make each wait for the one before */
    for (uint e0 = t; e0 < args.d; e0 += 8u * GROUP) {
        float v[8];
        [[unroll]] for (uint k = 0u; k < 8u; k++) {
            const uint e = e0 + k * GROUP;
            v[k] = e < args.d ? ldf(x, o + e) + ldf(add, o + e) : 0.0;
        }
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            if (e0 + k * GROUP < args.d) {
                stf(x, o + e0 + k * GROUP, v[k]);
                s += v[k] * v[k];
            }
    }
    const float scale = 1.0 / sqrt(group_sum(s) / float(args.d) + args.eps);
    for (uint e0 = t; e0 < args.d; e0 += 8u * GROUP) {     /* each thread reads what it wrote */
        float v[8];
        [[unroll]] for (uint k = 0u; k < 8u; k++) {
            const uint e = e0 + k * GROUP;
            v[k] = e < args.d ? ldf(x, o + e) * scale * ldf(w, e) : 0.0;
        }
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            if (e0 + k * GROUP < args.d)
                stf(y, o + e0 + k * GROUP, v[k]);
    }
}
