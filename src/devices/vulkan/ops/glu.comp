#version 450
/* glu: y of gate and up, n rows of f: kind 0: gelu (tanh form); 1: clamped; 2: relu; 3: gelu without up. */
#define SLOTS 3
#define ARGS ARGPTR gate; ARGPTR up; ARGPTR y; uint n; uint f; uint ldg; uint ldu; uint ldy; uint kind; float alpha; \
             float limit;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint at = group_at() * GROUP + gl_LocalInvocationIndex, i = at / args.f, j = at % args.f;
    PTR gate = P(0, gate), up = P(1, up), y = P(2, y);
    if (i >= args.n)
        return;
    float g = ldf(gate, i * args.ldg + j), u = ldf(up, i * args.ldu + j), s = 1.5957691216 * (g + 0.044715 * g * g * g);
    if (args.kind == 3u)
        u = 1.0;
    if (args.kind == 1u) {
        g = min(g, args.limit);
        u = clamp(u, -args.limit, args.limit) + 1.0;
        s = args.alpha * g;
    }
    stf(y, i * args.ldy + j, args.kind == 2u ? max(g, 0.0) * u : g / (1.0 + exp(-s)) * u);
}
