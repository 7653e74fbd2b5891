#version 450
/* norm_rms, then rope, both in place: one workgroup per head of d values, the first 2 half_n of which are rotated. */
#define SLOTS 4
#define ARGS ARGPTR x; ARGPTR w; ARGPTR pos; ARGPTR inv_freq; float eps; float mscale; uint neox; uint half_n; uint n; \
    uint h; uint d; uint ldx; uint gx;
#include "kv.glsl"
#include "reduce.glsl"
#include "rope.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at(), i = u / args.h, j = u % args.h, t = gl_LocalInvocationIndex;
    PTR x = P(0, x), w = P(1, w);
    float s = 0.0;
    if (i >= args.n)
        return;
    const uint from = i * args.ldx + j * args.gx;
    for (uint e = t; e < args.d; e += GROUP) {
        const float v = ldf(x, from + e);
        s += v * v;
    }
    const float scale = 1.0 / sqrt(group_sum(s) / float(args.d) + args.eps), pos = float(ldi(P(2, pos), i));
    for (uint e = t; e < args.half_n; e += GROUP) {
        precise float angle = pos * ldf(P(3, inv_freq), e);
        const vec2 sc = sin_cos(angle) * args.mscale;
        const uint a = args.neox != 0u ? e : 2u * e, b = args.neox != 0u ? e + args.half_n : 2u * e + 1u;
        const float v0 = ldf(x, from + a) * scale * ldf(w, a), v1 = ldf(x, from + b) * scale * ldf(w, b);
        stf(x, from + a, v0 * sc.y - v1 * sc.x);
        stf(x, from + b, v0 * sc.x + v1 * sc.y);
    }
    for (uint e = 2u * args.half_n + t; e < args.d; e += GROUP)
        stf(x, from + e, ldf(x, from + e) * scale * ldf(w, e));
}
