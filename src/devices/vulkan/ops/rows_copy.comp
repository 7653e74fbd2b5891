#version 450
/* rows_copy: y[i][j] = x[i][j], words; n rows of h groups of d. */
#define SLOTS 2
#define ARGS ARGPTR x; ARGPTR y; uint n; uint h; uint d; uint ldx; uint gx; uint ldy; uint gy;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex, e = u % args.d, j = u / args.d % args.h,
               i = u / args.d / args.h;
    PTR x = P(0, x), y = P(1, y);
    if (i < args.n)
        st(y, i * args.ldy + j * args.gy + e, ld(x, i * args.ldx + j * args.gx + e));
}
