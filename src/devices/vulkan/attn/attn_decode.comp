#version 450
/* attn, second pass, one query per sequence: the partial sums of attn_tile over one split of SPLIT keys, faster, for any
 * pair of formats.  KEYS keys a turn: their rows of K and V are copied to shared memory as they lie in the page, whole
 * quads of words, the next turn's being on their way to registers (AHEAD), and decoded there, eight values at a time.
 *   keys     GROUP / KEYS threads share a key's values, each for the ROWS heads of a KV head
 *   values   a thread owns eight columns and takes every KG-th row
 * DIRECT: the only part of a row whose values need no rotation back: the result itself is written. */
#define BIG_ARGS
#define SLOTS 14
#define ARGS ARGPTR q; ARGPTR qp; ARGPTR part; ARGPTR kpages; ARGPTR ktail; ARGPTR vpages; ARGPTR vtail; \
    ARGPTR kparam; ARGPTR vparam; ARGPTR books; ARGPTR q0; ARGPTR pos0; ARGPTR table; ARGPTR tails; \
    uint n_seqs; uint stride; uint ldq; uint gq; uint h; uint h_kv; uint heads; uint head_tiles; uint tokens; \
    uint n_split; uint n_part; uint tail_pages; uint tile0; uint width; uint k_page_words; uint k_head_bytes; \
    uint k_row_bytes; uint v_page_words; uint v_head_bytes; uint v_row_bytes; uint has_ktail; uint has_vtail; \
    uint has_kfactor; uint has_vfactor; float scale; uint part_from; uint ldp; uint gp;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint KF = 0u;
layout(constant_id = 1) const uint VF = 0u;
layout(constant_id = 2) const uint ROWS = 1u;
layout(constant_id = 3) const uint DK = 64u;
layout(constant_id = 4) const uint DV = 64u;
layout(constant_id = 5) const uint KBOOK = 0u;
layout(constant_id = 6) const uint VBOOK = 0u;
layout(constant_id = 7) const uint SK = 64u;               /* values of a row in acc space, a multiple of 8 */
layout(constant_id = 8) const uint SV = 64u;
layout(constant_id = 9) const uint KBOOK_N = 0u;
layout(constant_id = 10) const uint VBOOK_N = 0u;
layout(constant_id = 11) const uint KROW = 256u;           /* bytes of a row */
layout(constant_id = 12) const uint VROW = 256u;
layout(constant_id = 13) const uint KEYS = 64u;            /* 16 to 64 */
layout(constant_id = 14) const uint SPLIT = 1024u;         /* keys of a part, at most 128 pages */
layout(constant_id = 15) const uint FLAGS = 0u;            /* 1: DIRECT; 2: pages begin at multiples of 16 bytes */
const uint FMT_LUT = KBOOK_N + VBOOK_N + 1u;
#include "devices/vulkan/core/fmt.glsl"
#include "tiles.glsl"

const bool DIRECT = (FLAGS & 1u) != 0u, VEC = (FLAGS & 2u) != 0u;
/* Bytes between rows in shared memory: an odd number of words, where rows are words. */
const uint KSTEP = KROW % 8u == 0u ? KROW + 4u : KROW, VSTEP = VROW;
const uint KQUADS = KEYS * KROW / 16u, VQUADS = KEYS * VROW / 16u;
const uint KLOADS = (KQUADS + GROUP - 1u) / GROUP, VLOADS = (VQUADS + GROUP - 1u) / GROUP;
const uint V_AT = (KEYS * KSTEP + 3u) / 4u, RAW = V_AT + KEYS * VSTEP / 4u + 1u;      /* words; ld_u32 reads one more */
/* Registers for what is on its way cost threads: on an H200 4 to 10 % where rows are short, and it pays for long ones. */
const bool AHEAD = KLOADS + VLOADS >= 16u;
const uint TEAM = GROUP / KEYS, RQ = (ROWS + 3u) / 4u, H4 = ROWS < 4u ? ROWS : 4u;
const uint CG = SV / 8u, KG = GROUP / CG, SUMS = ROWS * 8u;
shared uint s_rows[RAW > 8u * GROUP ? RAW : 8u * GROUP];   /* at the end: the thread groups' sums of one head */
shared vec4 s_q[SK * RQ];
shared float s_part[GROUP * ROWS];
shared vec4 s_p[KEYS * RQ];
shared float s_top[ROWS * 32u];
shared int s_page[SPLIT / PAGE];

/* Rows in shared memory: word p on, byte b. */
uint ld_u32(uint p, uint b)
{
    const uint s = 8u * (b & 3u), i = p + (b >> 2);
    return s_rows[i] >> s | s_rows[i + 1u] << 1u << (31u - s);
}

uint ld_u16(uint p, uint b)
{
    return ld_u32(p, b) & 0xffffu;
}

uint ld_even(uint p, uint b)
{
    return s_rows[p + (b >> 2)] >> 8u * (b & 2u) & 0xffffu;
}

uint ld_u8(uint p, uint b)
{
    return s_rows[p + (b >> 2)] >> 8u * (b & 3u) & 255u;
}

#define CARDS_FORMATS
#define SRC uint
#include "cards/decode.glsl"
#undef SRC
#undef CARDS_FORMATS

/* A page that is read exactly, by the last part, is -1. */
int page_of(tile o, uint j)
{
    int exact = -1;
    if (o.pos / PAGE - j < args.tail_pages && args.n_part > args.n_split)
        exact = ldi(P(13, tails), o.seq * args.stride + j);
    return exact >= 0 ? -1 : ldi(P(12, table), o.seq * args.stride + j);
}

uvec4 quad(PTR p, uint u)
{
    if (VEC)
        return ld4(p, u);
    return uvec4(ld(p, 4u * u), ld(p, 4u * u + 1u), ld(p, 4u * u + 2u), ld(p, 4u * u + 3u));
}

/* The rows of keys first .. of a part; of a page that is not there, of page 0. */
void fetch(uint first, uint head, out uvec4 k[KLOADS], out uvec4 v[VLOADS])
{
    const uint t = gl_LocalInvocationIndex, page = uint(max(s_page[first / PAGE], 0)), row = first % PAGE;
    const PTR ks = at(at_mul(P(3, kpages), page, args.k_page_words), (head * args.k_head_bytes + row * KROW) / 4u),
              vs = at(at_mul(P(5, vpages), page, args.v_page_words), (head * args.v_head_bytes + row * VROW) / 4u);
    [[unroll]] for (uint i = 0u; i < KLOADS; i++)
        k[i] = quad(ks, min(t + GROUP * i, KQUADS - 1u));
    [[unroll]] for (uint i = 0u; i < VLOADS; i++)
        v[i] = quad(vs, min(t + GROUP * i, VQUADS - 1u));
}

void put(uvec4 k[KLOADS], uvec4 v[VLOADS])
{
    const uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0u; i < KLOADS; i++)
        if (t + GROUP * i < KQUADS)
            [[unroll]] for (uint e = 0u; e < 4u; e++) {
                const uint w = 4u * (t + GROUP * i) + e;
                s_rows[w + (KSTEP == KROW ? 0u : w / (KROW / 4u))] = k[i][e];
            }
    [[unroll]] for (uint i = 0u; i < VLOADS; i++)
        if (t + GROUP * i < VQUADS)
            [[unroll]] for (uint e = 0u; e < 4u; e++)
                s_rows[V_AT + 4u * (t + GROUP * i) + e] = v[i][e];
}

/* Head r of value e of the query in component r of s_q[e]. */
void load_queries(tile o, uint kv_tile)
{
    for (uint u = gl_LocalInvocationIndex; u < SK * RQ; u += GROUP) {
        vec4 x = vec4(0.0);
        [[unroll]] for (uint i = 0u; i < H4; i++) {
            const row_id id = row_of(o, kv_tile, u % RQ * 4u + i);
            if (id.token >= 0)
                x[i] = ldf(P(1, qp), uint(id.token) * args.ldp + id.head * args.gp + u / RQ) * args.scale;
        }
        s_q[u] = x;
    }
}

/* This thread's share of its key's scores. */
void score(float factor)
{
    const uint t = gl_LocalInvocationIndex, key = t % KEYS;
    vec4 s[RQ];
    [[unroll]] for (uint g = 0u; g < RQ; g++)
        s[g] = vec4(0.0);
    for (uint c = t / KEYS; c < SK / 8u; c += TEAM) {
        float v[8];
        vec4 dot[RQ];
        const float f = fmt8(KF, 0u, key * KSTEP, c, 0u, factor, v);
        [[unroll]] for (uint g = 0u; g < RQ; g++)
            dot[g] = vec4(0.0);
        [[unroll]] for (uint e = 0u; e < 8u; e++)
            [[unroll]] for (uint g = 0u; g < RQ; g++) {
                const vec4 q = s_q[(8u * c + e) * RQ + g];
                [[unroll]] for (uint i = 0u; i < H4; i++)
                    dot[g][i] += q[i] * v[e];
            }
        [[unroll]] for (uint g = 0u; g < RQ; g++)
            s[g] += dot[g] * f;
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++)
        s_part[r * GROUP + t] = s[r / 4u][r & 3u];
}

/* Largest score of head r in a turn. */
float top_of(uint r)
{
    float top = NEG_INF;
#ifdef FAST
    for (uint i = 0u; i < gl_NumSubgroups; i++)
        top = max(top, s_top[r * 32u + i]);
#else
    for (uint i = 0u; i < KEYS; i++)
        top = max(top, s_part[r * GROUP + i]);
#endif
    return top;
}

/* Weights of n keys, from the shares; raises m, acc and l with it. */
void weights(uint n, inout float m[ROWS], inout float l[ROWS], inout float acc[SUMS])
{
    const uint t = gl_LocalInvocationIndex;
    float s[ROWS];
    bool bad[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        s[r] = NEG_INF;
        if (t < n) {
            s[r] = 0.0;
            [[unroll]] for (uint i = 0u; i < TEAM; i++)
                s[r] += s_part[r * GROUP + t + KEYS * i];
        }
        bad[r] = is_nan(s[r]);
        s[r] = bad[r] ? NEG_INF : s[r];
#ifdef FAST
        const float top = subgroupMax(s[r]);
        if (subgroupElect())
            s_top[r * 32u + gl_SubgroupID] = top;
#endif
    }
    barrier();
#ifndef FAST
    [[unroll]] for (uint r = 0u; r < ROWS; r++)
        if (t < KEYS)
            s_part[r * GROUP + t] = s[r];
    barrier();
#endif
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const float top = max(m[r], top_of(r)), by = top == NEG_INF ? 1.0 : exp(m[r] - top);
        float p = s[r] == NEG_INF ? 0.0 : exp(s[r] - top);
        p = bad[r] ? NOT_A_NUMBER : p;
        if (t < KEYS)
            s_p[t * RQ + r / 4u][r & 3u] = p;
        l[r] = l[r] * by + p;
        m[r] = top;
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            acc[8u * r + i] *= by;
    }
    barrier();
}

/* acc += weight * value over this thread's rows of the turn. */
void weigh(uint n, float factor, inout float acc[SUMS])
{
    const uint t = gl_LocalInvocationIndex, cg = t % CG;
    for (uint k = t / CG; k < n && t < KG * CG; k += KG) {
        float v[8];
        const float f = fmt8(VF, V_AT, k * VSTEP, cg, KBOOK_N, factor, v);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const float w = s_p[k * RQ + r / 4u][r & 3u] * f;
            [[unroll]] for (uint i = 0u; i < 8u; i++)
                acc[8u * r + i] += w * v[i];
        }
    }
}

/* The thread groups' sums of every head, in order, then m and l. */
void store(tile o, uint ti, uint kv_tile, uint part, float acc[SUMS], float m[ROWS], float l[ROWS])
{
    const uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const row_id id = row_of(o, kv_tile, r);
        const uint to = DIRECT ? uint(max(id.token, 0)) * args.width + id.head * DV : part_at(ti, kv_tile, part, r) + 2u;
        float total = 0.0;
        barrier();
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            s_rows[t * 8u + i] = floatBitsToUint(acc[8u * r + i]);
        s_part[t] = l[r];
        barrier();
        if (t == 0u || DIRECT)
            for (uint i = 0u; i < KEYS; i++)
                total += s_part[i];
        for (uint e = t; e < (DIRECT ? DV : SV); e += GROUP) {
            float sum = 0.0;
            for (uint g = 0u; g < KG; g++)
                sum += uintBitsToFloat(s_rows[(g * CG + e / 8u) * 8u + e % 8u]);
            if (id.token >= 0)
                stf(P(2, part), to + e, DIRECT ? sum / total : sum);
        }
        if (!DIRECT && t == 0u && id.token >= 0) {
            stf(P(2, part), to - 2u, m[r]);
            stf(P(2, part), to - 1u, total);
        }
    }
}

void main()
{
    const uint t = gl_LocalInvocationIndex, per = args.h_kv * args.head_tiles, kv_tile = gl_WorkGroupID.x % per,
               ti = gl_WorkGroupID.x / per, head = kv_tile / args.head_tiles,
               part = args.part_from + gl_WorkGroupID.y;
    tile o;
    float acc[SUMS], m[ROWS], l[ROWS];
    uvec4 k[KLOADS], v[VLOADS];
    if (!tile_at(P(10, q0), P(11, pos0), args.tile0 + ti, o))
        return;
    const uint begin = part * SPLIT, end = min(o.pos + 1u, begin + SPLIT);
    if (begin >= end)
        return;
    const uint n = end - begin, last = (n - 1u) / KEYS * KEYS;
    const float kfactor = args.has_kfactor != 0u ? ldf(P(7, kparam), 0u) : 1.0,
                vfactor = args.has_vfactor != 0u ? ldf(P(8, vparam), 0u) : 1.0;
    if (t < (n + PAGE - 1u) / PAGE)
        s_page[t] = page_of(o, begin / PAGE + t);
    barrier();
    if (AHEAD)
        fetch(0u, head, k, v);
    fmt_fill(P(9, books), KBOOK, KBOOK_N, 0u);
    fmt_fill(P(9, books), VBOOK, VBOOK_N, KBOOK_N);
    load_queries(o, kv_tile);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        m[r] = NEG_INF;
        l[r] = 0.0;
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            acc[8u * r + i] = 0.0;
    }
    [[dont_unroll]] for (uint base = 0u; base < n; base += KEYS) {
        const uint count = s_page[base / PAGE] < 0 ? 0u : min(KEYS, n - base);
        barrier();                 /* the turn before is used up; the first: queries and tables are there */
        if (!AHEAD)
            fetch(base, head, k, v);
        put(k, v);
        if (AHEAD)
            fetch(min(base + KEYS, last), head, k, v);
        barrier();
        score(kfactor);
        barrier();
        weights(count, m, l, acc);
        weigh(count, vfactor, acc);
    }
    store(o, ti, kv_tile, part, acc, m, l);
}
