#version 450
/* slot_zero: zeroes `bytes` of each slot. */
#define SLOTS 2
#define ARGS ARGPTR base; ARGPTR ids; uint stride; uint bytes; uint per;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    PTR base = P(0, base), ids = P(1, ids);
    uint rest;
    PTR slot = at_bytes(base, ld(ids, gl_WorkGroupID.y), args.stride, rest);
    const uint end = min(args.bytes, (gl_WorkGroupID.x + 1u) * args.per);
    for (uint b = gl_WorkGroupID.x * args.per + 4u * gl_LocalInvocationIndex; b < end; b += 4u * GROUP)
        st_bytes(slot, rest + b, 0u, min(4u, args.bytes - b));
}
