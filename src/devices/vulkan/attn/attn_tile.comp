#version 450
/* attn, second pass: partial sums of a tile of query rows over one part of the context: KVANT_SPLIT keys, or (the last
 * part) the pages that are read exactly.  Scores never leave the workgroup.
 *
 * 128 keys a turn.  Scores: one thread per key decodes that key's row once for all ROWS queries of the tile; maxima over
 * the workgroup; each thread keeps the sum of its own weights.  Values: CG threads share a value row, eight columns
 * each, and the other thread groups take other keys; the groups' sums are added in order at the end.  So every page is
 * read once per KV head, and no subgroup size matters. */
#define BIG_ARGS
#define SLOTS 14
#define ARGS ARGPTR q; ARGPTR qp; ARGPTR part; ARGPTR kpages; ARGPTR ktail; ARGPTR vpages; ARGPTR vtail; \
    ARGPTR kparam; ARGPTR vparam; ARGPTR books; ARGPTR q0; ARGPTR pos0; ARGPTR table; ARGPTR tails; \
    uint n_seqs; uint stride; uint ldq; uint gq; uint h; uint h_kv; uint heads; uint head_tiles; uint tokens; \
    uint n_split; uint n_part; uint tail_pages; uint tile0; uint width; uint k_page_words; uint k_head_bytes; \
    uint k_row_bytes; uint v_page_words; uint v_head_bytes; uint v_row_bytes; uint has_ktail; uint has_vtail; \
    uint has_kfactor; uint has_vfactor; float scale; uint part_from; uint ldp; uint gp; uint window; float softcap;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint KF = 0u;
layout(constant_id = 1) const uint VF = 0u;
layout(constant_id = 2) const uint ROWS = 1u;
layout(constant_id = 3) const uint DK = 64u;
layout(constant_id = 4) const uint DV = 64u;
layout(constant_id = 5) const uint KBOOK = 0u;
layout(constant_id = 6) const uint VBOOK = 0u;
layout(constant_id = 7) const uint SK = 64u;
layout(constant_id = 8) const uint SV = 64u;
layout(constant_id = 9) const uint KBOOK_N = 0u;
layout(constant_id = 10) const uint VBOOK_N = 0u;
const uint FMT_LUT = KBOOK_N + VBOOK_N + 1u;
#include "devices/vulkan/core/fmt.glsl"
#include "tiles.glsl"

const uint KEYS = GROUP, SPLIT = 1024u;
const uint WIDE = SV > DV ? SV : DV, CG = (WIDE + 7u) / 8u, KG = GROUP / CG;   /* threads of a value row; rows at once */
shared float s_q[ROWS * SK];
shared float s_p[(ROWS > 8u ? ROWS : 8u) * KEYS];
shared float s_top[ROWS * 32u];
shared int s_page[2], s_exact[2];  /* pages of this turn: page id, or -1: not in this part; tail page id */

/* Values 8c .. 8c+7 of row r of this KV head in a page of the K (V) side; tail: of a tail page, f16. */
float k8(bool tail, int page, uint head, uint r, uint c, float factor, out float v[8])
{
    if (tail)
        return tail8(at_mul(P(4, ktail), uint(page) * args.h_kv + head, PAGE * DK / 2u), r * DK + 8u * c, v);
    return row8(KF, at_mul(P(3, kpages), uint(page), args.k_page_words), head * args.k_head_bytes, args.k_row_bytes, r, c,
                0u, factor, v);
}

float v8(bool tail, int page, uint head, uint r, uint c, float factor, out float v[8])
{
    if (tail)
        return tail8(at_mul(P(6, vtail), uint(page) * args.h_kv + head, PAGE * DV / 2u), r * DV + 8u * c, v);
    return row8(VF, at_mul(P(5, vpages), uint(page), args.v_page_words), head * args.v_head_bytes, args.v_row_bytes, r, c,
                KBOOK_N, factor, v);
}

/* Logical page j: its page id, or -1 where the other part reads it; its tail page, or -1. */
int page_of(tile o, uint j, bool tail_part, out int exact)
{
    exact = -1;
    if (o.pos / PAGE - j < args.tail_pages && args.n_part > args.n_split)
        exact = ldi(P(13, tails), o.seq * args.stride + j);
    return (exact >= 0) == tail_part ? ldi(P(12, table), o.seq * args.stride + j) : -1;
}

#include "window.glsl"

/* Largest x over the workgroup, for every row: s_top[32 r] .. */
float top_of(uint r)
{
#ifdef FAST
    float top = s_top[r * 32u];
    for (uint i = 1u; i < gl_NumSubgroups; i++)
        top = max(top, s_top[r * 32u + i]);
    return top;
#else
    return s_p[r * KEYS];
#endif
}

void tops(float x[ROWS])
{
#ifdef FAST
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const float top = subgroupMax(x[r]);
        if (subgroupElect())
            s_top[r * 32u + gl_SubgroupID] = top;
    }
    barrier();
#else
    const uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint r = 0u; r < ROWS; r++)
        s_p[r * KEYS + t] = x[r];
    for (uint m = GROUP / 2u; m > 0u; m >>= 1) {
        barrier();
        if (t < m)
            [[unroll]] for (uint r = 0u; r < ROWS; r++)
                s_p[r * KEYS + t] = max(s_p[r * KEYS + t], s_p[r * KEYS + t + m]);
    }
    barrier();
#endif
}

void load_queries(tile o, uint kv_tile, bool raw)
{
    for (uint u = gl_LocalInvocationIndex; u < ROWS * SK; u += GROUP) {
        const row_id id = row_of(o, kv_tile, u / SK);
        const uint e = u % SK;
        float v = 0.0;
        if (id.token >= 0 && raw)
            v = e < DK ? ldf(P(0, q), uint(id.token) * args.ldq + id.head * args.gq + e) : 0.0;
        else if (id.token >= 0)
            v = ldf(P(1, qp), uint(id.token) * args.ldp + id.head * args.gp + e);
        s_q[u] = v;
    }
}

/* Partial sums of the thread groups, in order, to the part's row r; s_p is free. */
void store_row(float acc[8], uint to, uint width)
{
    const uint t = gl_LocalInvocationIndex;
    barrier();
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        s_p[t * 8u + i] = acc[i];
    barrier();
    for (uint e = t; e < width; e += GROUP) {
        float sum = 0.0;
        for (uint g = 0u; g < KG; g++)
            sum += s_p[(g * CG + e / 8u) * 8u + e % 8u];
        stf(P(2, part), to + 2u + e, sum);
    }
}

void main()
{
    const uint t = gl_LocalInvocationIndex, per = args.h_kv * args.head_tiles, kv_tile = gl_WorkGroupID.x % per,
               ti = gl_WorkGroupID.x / per, head = kv_tile / args.head_tiles, part = args.part_from + gl_WorkGroupID.y,
               cg = t % CG, kg = t / CG;
    const bool tail_part = part >= args.n_split, ktail = tail_part && args.has_ktail != 0u,
               vtail = tail_part && args.has_vtail != 0u;
    tile o;
    float acc[ROWS * 8u], m[ROWS], l[ROWS], s[ROWS], v[8];
    if (!tile_at(P(10, q0), P(11, pos0), args.tile0 + ti, o))
        return;
    const uint last = o.pos + o.count, now = o.pos / PAGE;
    uint begin = part * SPLIT, end = min(last, begin + SPLIT);
    if (tail_part) {
        begin = (now + 1u > args.tail_pages ? now + 1u - args.tail_pages : 0u) * PAGE;
        end = last;
    }
    begin = max(begin, window_begin(o) / PAGE * PAGE);
    if (begin >= end)
        return;
    const float kfactor = args.has_kfactor != 0u ? ldf(P(7, kparam), 0u) : 1.0,
                vfactor = args.has_vfactor != 0u ? ldf(P(8, vparam), 0u) : 1.0;
    fmt_fill(P(9, books), KBOOK, KBOOK_N, 0u);
    fmt_fill(P(9, books), VBOOK, VBOOK_N, KBOOK_N);
    load_queries(o, kv_tile, ktail);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        m[r] = NEG_INF;
        l[r] = 0.0;
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            acc[8u * r + i] = 0.0;
    }
    for (uint base = begin; base < end; base += KEYS) {
        barrier();                 /* s_page and s_p of the turn before are used up; the first: queries are there */
        if (t < 2u)
            s_page[t] = base + PAGE * t < end ? page_of(o, base / PAGE + t, tail_part, s_exact[t]) : -1;
        barrier();
        const uint key = base + t;
        const bool mine = key < end && s_page[t / PAGE] >= 0;
        const int page = ktail ? s_exact[t / PAGE] : s_page[t / PAGE];
        [[unroll]] for (uint r = 0u; r < ROWS; r++)
            s[r] = 0.0;
        const uint k_width = ktail ? DK : SK;
        for (uint c = 0u; mine && 8u * c < k_width; c++) {
            const float f = k8(ktail, page, head, key % PAGE, c, kfactor, v);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                float dot = 0.0;
                [[unroll]] for (uint i = 0u; i < 8u; i++)
                    if (SK % 8u == 0u && DK % 8u == 0u || 8u * c + i < k_width)
                        dot += s_q[r * SK + 8u * c + i] * v[i];
                s[r] += dot * f;
            }
        }
        bool bad[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const row_id id = row_of(o, kv_tile, r);
            const bool seen = mine && id.token >= 0 && key <= id.pos && (args.window == 0u || key + args.window > id.pos);
            s[r] = seen ? s[r] * args.scale : NEG_INF;
            bad[r] = is_nan(s[r]);
            if (seen && !bad[r] && args.softcap > 0.0)     /* tanh(15) is 1 */
                s[r] = args.softcap * tanh(clamp(s[r] / args.softcap, -15.0, 15.0));
            s[r] = bad[r] ? NEG_INF : s[r];
        }
        tops(s);
        float by[ROWS], p[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const float top = max(m[r], top_of(r));
            by[r] = top == NEG_INF ? 1.0 : exp(m[r] - top);
            p[r] = s[r] == NEG_INF ? 0.0 : exp(s[r] - top);
            p[r] = bad[r] ? NOT_A_NUMBER : p[r];
            l[r] = l[r] * by[r] + p[r];
            m[r] = top;
        }
        barrier();                 /* top_of has read s_p */
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            s_p[r * KEYS + t] = p[r];
            [[unroll]] for (uint i = 0u; i < 8u; i++)
                acc[8u * r + i] *= by[r];
        }
        barrier();
        const uint n = min(KEYS, end - base), v_width = vtail ? DV : SV;
        for (uint k = kg; k < n && kg < KG && 8u * cg < v_width; k += KG) {
            if (s_page[k / PAGE] < 0)
                continue;
            const float f = v8(vtail, vtail ? s_exact[k / PAGE] : s_page[k / PAGE], head, k % PAGE, cg, vfactor, v);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                const float w = s_p[r * KEYS + k];
                if (w != 0.0)      /* a key that this row does not see may hold anything */
                    [[unroll]] for (uint i = 0u; i < 8u; i++)
                        acc[8u * r + i] += w * f * v[i];
            }
        }
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const row_id id = row_of(o, kv_tile, r);
        const uint to = part_at(ti, kv_tile, part, r);
        float row[8];
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            row[i] = acc[8u * r + i];
        store_row(row, to, vtail ? DV : SV);
        barrier();
        s_p[t] = l[r];
        barrier();
        if (t == 0u) {
            float sum = 0.0;
            for (uint i = 0u; i < KEYS; i++)
                sum += s_p[i];
            stf(P(2, part), to, m[r]);
            stf(P(2, part), to + 1u, sum);
        }
    }
}
