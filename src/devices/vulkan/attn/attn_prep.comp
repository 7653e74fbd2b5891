#version 450
/* attn, first pass: prep_q of every (token, head): q f32 -> qp f32[n][h][SDIM]; one workgroup per row. */
#define SLOTS 4
#define ARGS ARGPTR q; ARGPTR qp; ARGPTR books; ARGPTR param; uint n; uint h; uint ldq; uint gq;
#include "devices/vulkan/core/kv.glsl"
#include "cards/vulkan.h"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint SPACE = 0u;
layout(constant_id = 1) const uint D = 64u;
layout(constant_id = 2) const uint DP = 64u;
layout(constant_id = 3) const uint SDIM = 64u;
#include "devices/vulkan/core/space.glsl"

void main()
{
    const uint u = group_at(), t = gl_LocalInvocationIndex;
    PTR q = P(0, q);
    if (u >= args.n * args.h)
        return;
    for (uint j = t; j < DP; j += GROUP)
        sp_real[j] = j < D ? ldf(q, u / args.h * args.ldq + u % args.h * args.gq + j) : 0.0;
    space_prep(P(2, books), P(3, param), SPACE, DP, SDIM);
    for (uint j = t; j < SDIM; j += GROUP)
        stf(P(1, qp), u * SDIM + j, sp[j]);
}
