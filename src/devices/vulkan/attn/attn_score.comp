#version 450
/* attn_score: the K side alone: s[i][j][t] = scale * <q, k_t>; a workgroup per (token, head) and block of keys, one
 * thread per key. */
#define BIG_ARGS
#define SLOTS 10
#define ARGS ARGPTR q; ARGPTR s; ARGPTR kpages; ARGPTR ktail; ARGPTR kparam; ARGPTR books; ARGPTR q0; ARGPTR pos0; \
    ARGPTR table; ARGPTR tails; uint n; uint n_seqs; uint stride; uint ldq; uint gq; uint lds; uint h; \
    uint h_kv; uint tail_pages; uint k_page_words; uint k_head_bytes; uint k_row_bytes; uint has_ktail; \
    uint has_kfactor; float scale;
#include "devices/vulkan/core/kv.glsl"
#include "cards/vulkan.h"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint KF = 0u;
layout(constant_id = 1) const uint SPACE = 0u;
layout(constant_id = 2) const uint D = 64u;
layout(constant_id = 3) const uint DP = 64u;
layout(constant_id = 4) const uint SDIM = 64u;
layout(constant_id = 5) const uint BOOK = 0u;
layout(constant_id = 6) const uint BOOK_N = 0u;
const uint FMT_LUT = BOOK_N + 1u;
#include "devices/vulkan/core/fmt.glsl"
#include "devices/vulkan/core/space.glsl"
#include "devices/vulkan/core/seqs.glsl"
shared float s_raw[D];

void main()
{
    const uint u = gl_WorkGroupID.x, i = u / args.h, head = u % args.h, kv = head / (args.h / args.h_kv),
               t = gl_LocalInvocationIndex;
    PTR q0 = P(6, q0);
    if (i >= args.n)
        return;
    const uint seq = seq_of(q0, args.n_seqs, i), pos = ld(P(7, pos0), seq) + i - ld(q0, seq);
    for (uint j = t; j < DP; j += GROUP) {
        const float v = j < D ? ldf(P(0, q), i * args.ldq + head * args.gq + j) : 0.0;
        sp_real[j] = v;
        if (j < D)
            s_raw[j] = v;
    }
    fmt_fill(P(5, books), BOOK, BOOK_N, 0u);
    space_prep(P(5, books), P(4, kparam), SPACE, DP, SDIM);
    const float factor = args.has_kfactor != 0u ? ldf(P(4, kparam), 0u) : 1.0;
    for (uint key = gl_WorkGroupID.y * GROUP + t; key <= pos; key += gl_NumWorkGroups.y * GROUP) {
        const uint page = key / PAGE, r = key % PAGE;
        const int exact = args.has_ktail != 0u && pos / PAGE - page < args.tail_pages
                              ? ldi(P(9, tails), seq * args.stride + page)
                              : -1;
        float sum = 0.0, v[8];
        const uint width = exact >= 0 ? D : SDIM;
        for (uint c = 0u; 8u * c < width; c++) {
            float f;
            if (exact >= 0)
                f = tail8(at_mul(P(3, ktail), uint(exact) * args.h_kv + kv, PAGE * D / 2u), r * D + 8u * c, v);
            else
                f = row8(KF, at_mul(P(2, kpages), ld(P(8, table), seq * args.stride + page), args.k_page_words),
                         kv * args.k_head_bytes, args.k_row_bytes, r, c, 0u, factor, v);
            float dot = 0.0;
            [[unroll]] for (uint e = 0u; e < 8u; e++)
                if (8u * c + e < width)
                    dot += (exact >= 0 ? s_raw[min(8u * c + e, D - 1u)] : sp[8u * c + e]) * v[e];
            sum += dot * f;
        }
        stf(P(1, s), (i * args.h + head) * args.lds + key, sum * args.scale);
    }
}
