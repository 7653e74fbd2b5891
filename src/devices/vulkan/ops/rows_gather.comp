#version 450
/* rows_gather: y[i] = x[idx[i]], rows of d. */
#define SLOTS 3
#define ARGS ARGPTR x; ARGPTR idx; ARGPTR y; uint n; uint d;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint u = group_at() * GROUP + gl_LocalInvocationIndex, i = u / args.d, e = u % args.d;
    PTR x = P(0, x), idx = P(1, idx), y = P(2, y);
    if (i < args.n)
        st(y, u, ld(at_mul(x, ld(idx, i), args.d), e));
}
