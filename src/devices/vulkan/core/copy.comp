#version 450
/* copy: n vectors of 16 bytes; what the memory can do, for the denominator of measurements (vk_time.c). */
#define SLOTS 2
#define ARGS ARGPTR from; ARGPTR to; uint n;
#include "kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint step_n = gl_NumWorkGroups.x * GROUP;
    for (uint i = gl_WorkGroupID.x * GROUP + gl_LocalInvocationIndex; i < args.n; i += 4u * step_n) {
        uvec4 v[4];
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            v[k] = ld4(P(0, from), min(i + k * step_n, args.n - 1u));
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            if (i + k * step_n < args.n)
                st4(P(1, to), i + k * step_n, v[k]);
    }
}
