#version 450
/* slot_copy: one pass of a copy of slots of `words` whole words and `tail` bytes: slots to scratch (gather 1), or
 * scratch to slots (0).  Two passes, so that all reads come before any write.  Slot strides are bytes. */
#define SLOTS 3
#define ARGS ARGPTR base; ARGPTR copy; ARGPTR ids; uint stride; uint bytes; uint copy_words; uint gather; uint per;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    PTR base = P(0, base), copy = P(1, copy), ids = P(2, ids);
    const uint i = gl_WorkGroupID.y;
    uint rest;
    PTR slot = at_bytes(base, ld(ids, i), args.stride, rest), row = at_mul(copy, i, args.copy_words);
    const uint end = min(args.bytes, (gl_WorkGroupID.x + 1u) * args.per);
    for (uint b = gl_WorkGroupID.x * args.per + 4u * gl_LocalInvocationIndex; b < end; b += 4u * GROUP) {
        const uint n = min(4u, args.bytes - b);
        if (args.gather != 0u)
            st(row, b >> 2, ld_u32(slot, rest + b));
        else
            st_bytes(slot, rest + b, ld(row, b >> 2), n);
    }
}
