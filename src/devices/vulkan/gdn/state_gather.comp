#version 450
/* state_gather: the state that sequences read, n floats each, into scratch f32[n_seqs][n], before any op writes a slot
 * (conv_*, gdn_*, ssm_*).  in_place: sequences that keep their slot, or write none, are
 * left out. */
#define SLOTS 6
#define ARGS ARGPTR state; ARGPTR copy; ARGPTR q0; ARGPTR prompt; ARGPTR slot_in; ARGPTR slot_out; uint n; \
    uint slot_stride; uint phase; uint in_place;
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/gdn/slots.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint s = gl_WorkGroupID.y;
    const int from = ldi(P(4, slot_in), s);
    PTR q0 = P(2, q0);
    if ((ld(P(3, prompt), s) != 0u) != (args.phase != 0u) || ld(q0, s + 1u) == ld(q0, s) ||
        (args.in_place != 0u && reads_in_place(from, ldi(P(5, slot_out), s))))
        return;
    PTR slot = at_mul(P(0, state), uint(max(from, 0)), args.slot_stride), to = at_mul(P(1, copy), s, args.n);
    for (uint i = gl_WorkGroupID.x * GROUP + gl_LocalInvocationIndex; i < args.n; i += gl_NumWorkGroups.x * GROUP)
        st(to, i, from < 0 ? 0u : ld(slot, i));
}
