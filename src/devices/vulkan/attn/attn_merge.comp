#version 450
/* attn, last pass: merges the parts of a row in ascending order, finish_out once per head; one workgroup per row. */
#define SLOTS 7
#define ARGS ARGPTR part; ARGPTR out_rows; ARGPTR books; ARGPTR vparam; ARGPTR q0; ARGPTR pos0; ARGPTR sinks; \
    uint n_seqs; uint h; uint h_kv; uint heads; uint head_tiles; uint tokens; uint n_split; uint n_part; \
    uint tile0; uint width; uint ldo; uint has_vtail; uint window; uint has_sinks;
#include "devices/vulkan/core/kv.glsl"
#include "cards/vulkan.h"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint SPACE = 0u;
layout(constant_id = 1) const uint DV = 64u;
layout(constant_id = 2) const uint DP = 64u;
layout(constant_id = 3) const uint SV = 64u;
layout(constant_id = 4) const uint SPLIT = 1024u;          /* keys of a part */
#include "devices/vulkan/core/space.glsl"
#include "tiles.glsl"
#include "window.glsl"

void main()
{
    const uint t = gl_LocalInvocationIndex, per = args.h_kv * args.head_tiles, kv_tile = gl_WorkGroupID.x % per,
               ti = gl_WorkGroupID.x / per, r = gl_WorkGroupID.y;
    PTR part = P(0, part);
    tile o;
    if (!tile_at(P(4, q0), P(5, pos0), args.tile0 + ti, o))
        return;
    const row_id id = row_of(o, kv_tile, r);
    if (id.token < 0)
        return;
    const uint n = (o.pos + o.count - 1u) / SPLIT + 1u, first = window_begin(o) / SPLIT;   /* the tile's splits */
    const bool tail = args.n_part > args.n_split;
    const uint tail_at = part_at(ti, kv_tile, args.n_split, r);
    const float sink = args.has_sinks != 0u ? ldf(P(6, sinks), id.head) : NEG_INF;
    float top = max(sink, tail ? ldf(part, tail_at) : NEG_INF), total = 0.0;
    for (uint i = first; i < n; i++)
        top = max(top, ldf(part, part_at(ti, kv_tile, i, r)));
    if (args.has_sinks != 0u)
        total = exp(sink - top);
    for (uint i = first; i < n; i++) {
        const uint from = part_at(ti, kv_tile, i, r);
        total += exp(ldf(part, from) - top) * ldf(part, from + 1u);
    }
    const float tail_weight = tail ? exp(ldf(part, tail_at) - top) : 0.0;
    if (tail)
        total += tail_weight * ldf(part, tail_at + 1u);
    const float inv = 1.0 / total;
    for (uint e = t; e < SV; e += GROUP) {
        float sum = 0.0;
        for (uint i = first; i < n; i++) {
            const uint from = part_at(ti, kv_tile, i, r);
            sum += exp(ldf(part, from) - top) * ldf(part, from + 2u + e);
        }
        if (tail && args.has_vtail == 0u)
            sum += tail_weight * ldf(part, tail_at + 2u + e);
        sp[e] = sum * inv;
    }
    space_finish(P(2, books), P(3, vparam), SPACE, DP);
    for (uint e = t; e < DV; e += GROUP) {
        const float exact = tail && args.has_vtail != 0u ? tail_weight * ldf(part, tail_at + 2u + e) * inv : 0.0;
        stf(P(1, out_rows), uint(id.token) * args.ldo + id.head * DV + e, sp_real[e] + exact);
    }
}
