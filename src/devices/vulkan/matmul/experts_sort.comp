#version 450
/* Rows of matmul_id by expert, for matrix.glsl: `order` gets the rows, those of one expert after each other; `tiles` how many
 * tiles of up to `height` rows of one expert there are, then of each: expert, first place in order, place behind the last.
 * One workgroup.  Which of an expert's rows is first is left to chance: no result depends on it. */
#define SLOTS 3
#define ARGS ARGPTR ids; ARGPTR order; ARGPTR tiles; uint n; uint n_expert; uint height;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
const uint MOST = 1024u;
shared uint s_at[MOST];            /* rows of an expert; then where its next row goes */

void make_tiles()
{
    uint at = 0u, n = 0u;
    for (uint e = 0u; e < args.n_expert; e++) {
        const uint end = at + s_at[e];
        s_at[e] = at;
        for (; at < end; at = min(at + args.height, end), n++) {
            st(P(2, tiles), 1u + 3u * n, e);
            st(P(2, tiles), 2u + 3u * n, at);
            st(P(2, tiles), 3u + 3u * n, min(at + args.height, end));
        }
    }
    st(P(2, tiles), 0u, n);
}

void main()
{
    const uint t = gl_LocalInvocationIndex;
    for (uint e = t; e < args.n_expert; e += GROUP)
        s_at[e] = 0u;
    barrier();
    for (uint i = t; i < args.n; i += GROUP)
        atomicAdd(s_at[ld(P(0, ids), i)], 1u);
    barrier();
    if (t == 0u)
        make_tiles();
    barrier();
    for (uint i = t; i < args.n; i += GROUP)
        st(P(1, order), atomicAdd(s_at[ld(P(0, ids), i)], 1u), i);
}
