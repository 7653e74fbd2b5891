#version 450
/* norm_add_rms: x += add, then y = norm_rms(x) * w; one workgroup per row of d. */
#define SLOTS 4
#define ARGS ARGPTR x; ARGPTR add; ARGPTR w; ARGPTR y; float eps; uint n; uint d;
#include "kv.glsl"
#include "reduce.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint i = group_at(), t = gl_LocalInvocationIndex, o = i * args.d;
    PTR x = P(0, x), add = P(1, add), w = P(2, w), y = P(3, y);
    float s = 0.0;
    if (i >= args.n)
        return;
    for (uint e = t; e < args.d; e += GROUP) {
        const float v = ldf(x, o + e) + ldf(add, o + e);
        stf(x, o + e, v);
        s += v * v;
    }
    const float scale = 1.0 / sqrt(group_sum(s) / float(args.d) + args.eps);
    for (uint e = t; e < args.d; e += GROUP)               /* each thread reads what it wrote */
        stf(y, o + e, ldf(x, o + e) * scale * ldf(w, e));
}
