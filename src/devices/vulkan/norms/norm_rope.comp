#version 450
/* norm_rms, then rope, both in place: one workgroup per head of d values, the first 2 half_n of which are rotated.
 * WRITE: then cache_write of the row into pages of f16, an even number of at most MOST values. */
#define SLOTS 8
#define ARGS ARGPTR x; ARGPTR w; ARGPTR pos; ARGPTR inv_freq; ARGPTR pages; ARGPTR q0; ARGPTR pos0; ARGPTR table; \
    float eps; float mscale; uint neox; uint half_n; uint n; uint h; uint d; uint ldx; uint gx; uint n_seqs; uint stride; \
    uint page_words; uint head_bytes; uint row_bytes;
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/reduce.glsl"
#include "devices/vulkan/ops/rope.glsl"
#include "devices/vulkan/core/seqs.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint WRITE = 0u;
const uint MOST = 512u;
shared float s_row[WRITE != 0u ? MOST : 1u];

/* First word of row i of head j in its page. */
PTR page_row(uint i, uint j)
{
    const uint s = seq_of(P(5, q0), args.n_seqs, i), pos = ld(P(6, pos0), s) + i - ld(P(5, q0), s);
    const PTR page = at_mul(P(4, pages), ld(P(7, table), s * args.stride + pos / PAGE), args.page_words);
    return at(page, (j * args.head_bytes + pos % PAGE * args.row_bytes) / 4u);
}

void put(PTR x, uint from, uint e, float v)
{
    stf(x, from + e, v);
    if (WRITE != 0u)
        s_row[e] = v;
}

void main()
{
    const uint u = group_at(), i = u / args.h, j = u % args.h, t = gl_LocalInvocationIndex;
    PTR x = P(0, x), w = P(1, w), row;
    float s = 0.0;
    if (i >= args.n)
        return;
    const uint from = i * args.ldx + j * args.gx;
    if (WRITE != 0u)
        row = page_row(i, j);
    for (uint e = t; e < args.d; e += GROUP) {
        const float v = ldf(x, from + e);
        s += v * v;
    }
    const float scale = 1.0 / sqrt(group_sum(s) / float(args.d) + args.eps), pos = float(ldi(P(2, pos), i));
    for (uint e = t; e < args.half_n; e += GROUP) {
        precise float angle = pos * ldf(P(3, inv_freq), e);
        const vec2 sc = sin_cos(angle) * args.mscale;
        const uint a = args.neox != 0u ? e : 2u * e, b = args.neox != 0u ? e + args.half_n : 2u * e + 1u;
        const float v0 = ldf(x, from + a) * scale * ldf(w, a), v1 = ldf(x, from + b) * scale * ldf(w, b);
        put(x, from, a, v0 * sc.y - v1 * sc.x);
        put(x, from, b, v0 * sc.x + v1 * sc.y);
    }
    for (uint e = 2u * args.half_n + t; e < args.d; e += GROUP)
        put(x, from, e, ldf(x, from + e) * scale * ldf(w, e));
    if (WRITE == 0u)
        return;
    barrier();
    for (uint e = t; e < args.d / 2u; e += GROUP)
        st(row, e, to_half(s_row[2u * e]) | to_half(s_row[2u * e + 1u]) << 16);
}
