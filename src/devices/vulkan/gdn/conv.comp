#version 450
/* conv_step and conv_chunk: depthwise causal conv, then SiLU unless linear.  One thread per token and channel; the thread of a sequence's
 * last token also writes the new window.  window: f32[n_seqs][c][k-1], gathered before (state_gather). */
#define SLOTS 9
#define ARGS ARGPTR x; ARGPTR w; ARGPTR window; ARGPTR state; ARGPTR y; ARGPTR q0; ARGPTR prompt; ARGPTR slot_out; \
    ARGPTR bias; uint n; uint n_seqs; uint c; uint k; uint ldx; uint slot_stride; uint phase; \
    uint linear; uint has_bias;
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/seqs.glsl"
layout(local_size_x = 128) in;

/* Input of channel ch, `back` tokens before row i of sequence s (back < k). */
float conv_input(uint s, uint first, uint i, uint ch, uint back)
{
    if (i >= first + back)
        return ldf(P(0, x), (i - back) * args.ldx + ch);
    return ldf(P(2, window), (s * args.c + ch) * (args.k - 1u) + args.k - 1u + i - back - first);
}

void main()
{
    const uint ch = gl_WorkGroupID.x * GROUP + gl_LocalInvocationIndex, i = gl_WorkGroupID.y;
    PTR q0 = P(5, q0);
    if (ch >= args.c || i >= args.n)
        return;
    const uint s = seq_of(q0, args.n_seqs, i), first = ld(q0, s), end = ld(q0, s + 1u);
    if (i >= end || (ld(P(6, prompt), s) != 0u) != (args.phase != 0u))
        return;
    precise float sum = 0.0;
    for (uint j = 0u; j < args.k; j++)
        sum += conv_input(s, first, i, ch, args.k - 1u - j) * ldf(P(1, w), ch * args.k + j);
    sum += args.has_bias != 0u ? ldf(P(8, bias), ch) : 0.0;   /* -0.0 becomes +0.0, as in the plain op */
    stf(P(4, y), i * args.c + ch, args.linear != 0u ? sum : sum / (1.0 + exp(-sum)));
    const int slot = ldi(P(7, slot_out), s);
    if (i != end - 1u || slot < 0)
        return;
    PTR to = at_mul(P(3, state), uint(slot), args.slot_stride);
    for (uint j = 0u; j + 1u < args.k; j++)
        stf(to, ch * (args.k - 1u) + j, conv_input(s, first, i, ch, args.k - 2u - j));
}
