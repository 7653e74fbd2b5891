#version 450
/* attn, second pass, one query per sequence, up to four heads, on matrix units: the partial sums of attn_tile over one
 * split of SPLIT keys, of rows of 128 values in 4-bit records (a half, 16 bytes of nibbles: q4_0, tbq4_0, turbo4).
 *
 * Each 32 threads (a team) take every fourth page by themselves, 16 keys a turn: rows go through registers to shared
 * memory, the next ones being on their way.  A byte is looked up once and gives two halves, ready as a pair of a matrix
 * 16 x 16: no value passes through memory after its look-up.
 *   keys     a pair is byte b of a record: values b and b + 16.  matrix: 16 keys x 16 values; times queries, in whose
 *            even columns the heads are; the sums of a record are multiplied by its scale in f32
 *   values   the low nibbles of two keys make one byte, the high nibbles another: a pair is two keys of one value.
 *            matrix: 16 values x 16 keys, scaled as halves; times weights
 * Thread 4 g + t has of a matrix 16 x 16 row g, columns 2 t, 2 t + 8 and the ones after them, then those of row g + 8; of
 * one 16 x 8 columns 2 t and 2 t + 1 of row g, then of row g + 8 (vk_matrix.c sees whether the device agrees).
 * The maxima that weights refer to grow only when a score exceeds them by more than SLACK (of log2): weights are then
 * below 2^SLACK, and sums are f32.
 * It earns its place beside attn_half: on an H200 341 us instead of 524 (tbq4_0, 32 sequences of 16384 tokens).
 * Without FAST the products are made one by one, so that any driver can check the indices. */
#define BIG_ARGS
#define SLOTS 14
#define ARGS ARGPTR q; ARGPTR qp; ARGPTR part; ARGPTR kpages; ARGPTR ktail; ARGPTR vpages; ARGPTR vtail; \
    ARGPTR kparam; ARGPTR vparam; ARGPTR books; ARGPTR q0; ARGPTR pos0; ARGPTR table; ARGPTR tails; \
    uint n_seqs; uint stride; uint ldq; uint gq; uint h; uint h_kv; uint heads; uint head_tiles; uint tokens; \
    uint n_split; uint n_part; uint tail_pages; uint tile0; uint width; uint k_page_words; uint k_head_bytes; \
    uint k_row_bytes; uint v_page_words; uint v_head_bytes; uint v_row_bytes; uint has_ktail; uint has_vtail; \
    uint has_kfactor; uint has_vfactor; float scale; uint part_from; uint ldp; uint gp;
#ifdef FAST
layout(constant_id = 9) const uint COPIES = 32u;           /* of the table: 8, 16 or 32 */
layout(constant_id = 10) const uint THREADS = 128u;
layout(local_size_x_id = 10) in;
#define GROUP_SIZE THREADS
#endif
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/team.glsl"
#ifdef FAST
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#define HALF float16_t
#define HALF2 f16vec2
#define halves_of(w) unpackFloat2x16(w)
#define halves_to(a, b) packFloat2x16(f16vec2(a, b))
#define MAT_A fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>
#define MAT_B fcoopmatNV<16, gl_ScopeSubgroup, 16, 8>
#define MAT_C fcoopmatNV<32, gl_ScopeSubgroup, 16, 8>
#define MAT_C_ZERO MAT_C(0.0)
#else
#define HALF float
#define HALF2 vec2
#define halves_of(w) unpackHalf2x16(w)
#define halves_to(a, b) packHalf2x16(vec2(a, b))
#define MAT_A float[8]
#define MAT_B float[4]
#define MAT_C float[4]
#define MAT_C_ZERO float[4](0.0, 0.0, 0.0, 0.0)
#define COPIES 8u
layout(local_size_x = 128) in;
#endif
layout(constant_id = 11) const uint CENTRE = 0u;           /* of integers; 0: levels of the book */
layout(constant_id = 2) const uint ROWS = 4u;              /* heads: 1 to 4 */
layout(constant_id = 5) const uint BOOK = 0u;
layout(constant_id = 7) const uint SPLIT = 1024u;          /* keys of a part, at most 128 pages */
layout(constant_id = 8) const uint DIRECT = 0u;            /* as attn_half */
#include "cards/vulkan.h"
#include "tiles.glsl"

const uint D = 128u, ROW = 18u, KEYS = 16u, TEAMS = GROUP / 32u;    /* ROW: words */
const uint QUADS = KEYS * ROW / 4u, LOADS = (2u * QUADS + 31u) / 32u;      /* of one side; of a thread, both sides */
const uint NIBBLES = 0x0f0f0f0fu;
const float SLACK = 8.0, LOG2E = 1.44269504;
shared uint s_table[256][COPIES];
#define spare(i) s_table[(i) / COPIES][(i) % COPIES]       /* at first: queries as f32; at the end: sums of the teams */
shared uint s_rows[TEAMS * 2u * QUADS * 4u + 4u];
shared HALF s_q[8u * 128u];
shared float s_qmax[4], s_m[TEAMS * 4u], s_l[TEAMS * 4u];
shared uint s_big[4];
shared int s_page[SPLIT / PAGE];

#ifndef FAST
shared float e_a[128 * 8], e_b[128 * 4];
shared uint e_word[128];

float[4] product(float a[8], float b[4], float c[4])
{
    const uint t = gl_LocalInvocationIndex, team = t & ~31u;
    barrier();
    for (uint i = 0u; i < 8u; i++)
        e_a[t * 8u + i] = a[i];
    for (uint i = 0u; i < 4u; i++)
        e_b[t * 4u + i] = b[i];
    barrier();
    for (uint i = 0u; i < 4u; i++) {
        const uint row = (t & 31u) / 4u, col = 2u * (t & 3u) + (i & 1u);
        for (uint k = 0u; k < 16u; k++)
            c[i] += e_a[(team + 4u * row + k % 8u / 2u) * 8u + (k & 1u) + k / 8u * 2u + i / 2u * 4u] *
                    e_b[(team + 4u * (k % 8u) + col / 2u) * 4u + (col & 1u) + k / 8u * 2u];
    }
    return c;
}

uint shuffled(uint v, uint from)
{
    barrier();
    e_word[gl_LocalInvocationIndex] = v;
    barrier();
    return e_word[(gl_LocalInvocationIndex & ~31u) + from];
}

bool any_of(bool v)
{
    if (gl_LocalInvocationIndex == 0u)
        s_big[0] = 0u;
    barrier();
    if (v)
        s_big[0] = 1u;
    barrier();
    return s_big[0] != 0u;
}

#else
#define product(a, b, c) coopMatMulAddNV(a, b, c)
#define shuffled(v, from) subgroupShuffle(v, from)
#define any_of(v) subgroupAny(v)
#endif
#define put_pair(m, i, v) { const HALF2 pair = v; m[2u * i] = pair.x; m[2u * i + 1u] = pair.y; }

float value_of(uint i)
{
    return CENTRE != 0u ? float(int(i) - int(CENTRE)) : ldf(P(9, books), BOOK + i);
}

void table_fill()
{
    for (uint u = gl_LocalInvocationIndex; u < 256u; u += GROUP) {
        const uint both = halves_to(value_of(u & 15u), value_of(u >> 4));
        [[unroll]] for (uint i = 0u; i < COPIES; i++)
            s_table[u][(i + u) % COPIES] = both;
    }
}

/* Returns the values that byte i of a word stands for. */
HALF2 pair_of(uint w, uint i, uint lane)
{
    return halves_of(s_table[bitfieldExtract(w, int(8u * i), 8)][lane]);
}

int page_of(tile o, uint j)
{
    int exact = -1;
    if (o.pos / PAGE - j < args.tail_pages && args.n_part > args.n_split)
        exact = ldi(P(13, tails), o.seq * args.stride + j);
    return exact >= 0 ? -1 : ldi(P(12, table), o.seq * args.stride + j);
}

/* Queries over their largest value.  Row k of block 2 r + e is byte 4 (k % 8 / 2) + 2 e + k / 8 of record r, low nibble
 * then high; column 2 n is head n. */
void load_queries(tile o, uint kv_tile)
{
    const uint t = gl_LocalInvocationIndex;
    if (t < 4u)
        s_big[t] = 0u;
    barrier();
    for (uint u = t; u < D * ROWS; u += GROUP) {
        const row_id id = row_of(o, kv_tile, u / D);
        const float x = id.token >= 0 ? ldf(P(1, qp), uint(id.token) * args.ldp + id.head * args.gp + u % D) : 0.0;
        spare(u) = floatBitsToUint(x);
        atomicMax(s_big[u / D], floatBitsToUint(abs(x)));
    }
    barrier();
    if (t < 4u)
        s_qmax[t] = s_big[t] == 0u ? 1.0 : uintBitsToFloat(s_big[t]);
    barrier();
    for (uint u = t; u < 8u * 128u; u += GROUP) {
        const uint block = u / 128u, k = u / 8u % 16u, n = u % 8u / 2u,
                   d = block / 2u * 32u + 4u * (k % 8u / 2u) + 2u * (block & 1u) + k / 8u + 16u * (k & 1u);
        s_q[u] = HALF(n < ROWS && (u & 1u) == 0u ? uintBitsToFloat(spare(n * D + d)) / s_qmax[n] : 0.0);
    }
    barrier();
}

MAT_B query_block(uint i)
{
    MAT_B m;
#ifdef FAST
    coopMatLoadNV(m, s_q, i * 128u, 8u, false);
#else
    for (uint e = 0u; e < 4u; e++)
        m[e] = s_q[i * 128u + (LANE / 4u + e / 2u * 8u) * 8u + 2u * (LANE & 3u) + (e & 1u)];
#endif
    return m;
}

/* Rows 16 sub .. + 15 of a page, K then V; of a page that is not there, of page 0. */
void fetch(int page, uint sub, uint head, uint lane, out uvec4 w[LOADS])
{
    const PTR k = at(at_mul(P(3, kpages), uint(max(page, 0)), args.k_page_words), head * args.k_head_bytes / 4u),
              v = at(at_mul(P(5, vpages), uint(max(page, 0)), args.v_page_words), head * args.v_head_bytes / 4u);
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        const uint u = min(lane + 32u * i, 2u * QUADS - 1u);
        const PTR side = u < QUADS ? k : v;
        w[i] = ld4(side, sub * QUADS + (u < QUADS ? u : u - QUADS));
    }
}

void put(uint from, uint lane, uvec4 w[LOADS])
{
    [[unroll]] for (uint i = 0u; i < LOADS; i++)
        if (lane + 32u * i < 2u * QUADS)
            [[unroll]] for (uint e = 0u; e < 4u; e++)
                s_rows[from + (lane + 32u * i) * 4u + e] = w[i][e];
}

/* Sums of rows g and g + 8 times the query of head t. */
vec2 scores(uint from, uint g, uint t, uint lane, MAT_B q[8])
{
    vec2 sum = vec2(0.0);
    [[unroll]] for (uint r = 0u; r < 4u; r++) {
        const uint first = (18u * r + 2u) / 4u, scale = 18u * r / 4u, odd = r & 1u;
        uint code[2], d[2];
        [[unroll]] for (uint i = 0u; i < 2u; i++) {
            const uint row = from + (g + 8u * i) * ROW, lo = s_rows[row + first + t];
            code[i] = odd != 0u ? lo : lo >> 16 | s_rows[row + first + t + 1u] << 16;
            d[i] = s_rows[row + scale] >> 16u * odd;
        }
        MAT_C c = MAT_C_ZERO;
        [[unroll]] for (uint e = 0u; e < 2u; e++) {
            MAT_A a;
            put_pair(a, 0u, pair_of(code[0], 2u * e, lane))
            put_pair(a, 1u, pair_of(code[0], 2u * e + 1u, lane))
            put_pair(a, 2u, pair_of(code[1], 2u * e, lane))
            put_pair(a, 3u, pair_of(code[1], 2u * e + 1u, lane))
            c = product(a, q[2u * r + e], c);
        }
        sum += vec2(c[0], c[2]) * vec2(halves_of(d[0]).x, halves_of(d[1]).x);
    }
    return sum;
}

/* Reads of one key the eight bytes of this thread's values, and their scale. */
void value_codes(uint row, uint g, out uint w[2], out uint d)
{
    const uint record = g >> 1, byte = 18u * record + 2u + 8u * (g & 1u), upper = record & 1u;
    const uint a = s_rows[row + byte / 4u], b = s_rows[row + byte / 4u + 1u], c = s_rows[row + byte / 4u + 2u];
    w[0] = upper != 0u ? a : a >> 16 | b << 16;
    w[1] = upper != 0u ? b : b >> 16 | c << 16;
    d = s_rows[row + 18u * record / 4u] >> 16u * upper & 0xffffu;
}

/* acc += weight * value; keys from n on hold anything. */
void weigh(uint from, uint n, uint g, uint t, uint lane, MAT_B p, inout MAT_C acc[8])
{
    uint w[4][2], d[4];
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const uint key = 2u * t + (i & 1u) + 8u * (i / 2u);
        value_codes(from + key * ROW, g, w[i], d[i]);
        d[i] = key < n ? d[i] : 0u;
    }
    const HALF2 d0 = halves_of(d[0] | d[1] << 16), d1 = halves_of(d[2] | d[3] << 16);
    [[unroll]] for (uint word = 0u; word < 2u; word++) {
        const uint lo0 = w[0][word] & NIBBLES | w[1][word] << 4 & ~NIBBLES,
                   hi0 = w[0][word] >> 4 & NIBBLES | w[1][word] & ~NIBBLES,
                   lo1 = w[2][word] & NIBBLES | w[3][word] << 4 & ~NIBBLES,
                   hi1 = w[2][word] >> 4 & NIBBLES | w[3][word] & ~NIBBLES;
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            MAT_A a;
            put_pair(a, 0u, pair_of(lo0, i, lane) * d0)
            put_pair(a, 1u, pair_of(lo1, i, lane) * d1)
            put_pair(a, 2u, pair_of(hi0, i, lane) * d0)
            put_pair(a, 3u, pair_of(hi1, i, lane) * d1)
            acc[4u * word + i] = product(a, p, acc[4u * word + i]);
        }
    }
}

/* Weights of keys g and g + 8 for head t, as two halves; raises m where it must. */
uint weights(vec2 y, inout float m, inout float l, inout MAT_C acc[8])
{
    const float top = max(y.x, y.y);
    if (any_of(top > m + SLACK)) {
        float most = max(m, top);
        [[unroll]] for (uint i = 4u; i < 32u; i *= 2u)
            most = max(most, uintBitsToFloat(shuffled(floatBitsToUint(most), LANE ^ i)));
        const float by = most == m ? 1.0 : exp2(m - most);
        m = most;
        l *= by;
        [[unroll]] for (uint i = 0u; i < 8u; i++) {
            acc[i][0] *= by;
            acc[i][2] *= by;
        }
    }
    const uint p = halves_to(y.x == NEG_INF ? 0.0 : exp2(y.x - m), y.y == NEG_INF ? 0.0 : exp2(y.y - m));
    const HALF2 as_read = halves_of(p);
    l += float(as_read.x) + float(as_read.y);
    return p;
}

MAT_B weight_block(uint p)
{
    MAT_B m;
    put_pair(m, 0u, HALF2(halves_of(p).x, 0.0))
    put_pair(m, 1u, HALF2(halves_of(p).y, 0.0))
    return m;
}

/* The teams' sums of every head, in order. */
void store(tile o, uint ti, uint kv_tile, uint part, uint g, uint t, float m, float l, MAT_C acc[8])
{
    [[unroll]] for (uint i = 4u; i < 32u; i *= 2u)
        l += uintBitsToFloat(shuffled(floatBitsToUint(l), LANE ^ i));
    barrier();
    if (g == 0u) {
        s_m[TEAM * 4u + t] = m;
        s_l[TEAM * 4u + t] = l;
    }
    if (t < ROWS)
        [[unroll]] for (uint i = 0u; i < 8u; i++) {
            const uint to = (TEAM * 4u + t) * D + 32u * (g >> 1) + 8u * (g & 1u) + i;
            spare(to) = floatBitsToUint(acc[i][0]);
            spare(to + 16u) = floatBitsToUint(acc[i][2]);
        }
    barrier();
    for (uint u = gl_LocalInvocationIndex; u < ROWS * D; u += GROUP) {
        const uint r = u / D, c = u % D;
        const row_id id = row_of(o, kv_tile, r);
        const uint to = DIRECT != 0u ? uint(max(id.token, 0)) * args.width + id.head * D
                                     : part_at(ti, kv_tile, part, r) + 2u;
        float top = NEG_INF, total = 0.0, sum = 0.0;
        [[unroll]] for (uint i = 0u; i < TEAMS; i++)
            top = max(top, s_m[i * 4u + r]);
        [[unroll]] for (uint i = 0u; i < TEAMS; i++) {
            const float by = s_m[i * 4u + r] == top ? 1.0 : exp2(s_m[i * 4u + r] - top);
            total += by * s_l[i * 4u + r];
            sum += by * uintBitsToFloat(spare((i * 4u + r) * D + c));
        }
        if (id.token >= 0)
            stf(P(2, part), to + c, DIRECT != 0u ? sum / total : sum);
        if (DIRECT == 0u && c == 0u && id.token >= 0) {
            stf(P(2, part), to - 2u, top / LOG2E);
            stf(P(2, part), to - 1u, total);
        }
    }
}

void main()
{
    const uint per = args.h_kv * args.head_tiles, kv_tile = gl_WorkGroupID.x % per, ti = gl_WorkGroupID.x / per,
               head = kv_tile / args.head_tiles, part = args.part_from + gl_WorkGroupID.y, lane = LANE, g = lane >> 2,
               t = lane & 3u, copy = lane & COPIES - 1u, from = TEAM * 2u * QUADS * 4u;
    tile o;
    MAT_C acc[8];
    MAT_B q[8];
    uvec4 w[LOADS];
    float m = NEG_INF, l = 0.0;
    if (!tile_at(P(10, q0), P(11, pos0), args.tile0 + ti, o))
        return;
    const uint begin = part * SPLIT, end = min(o.pos + 1u, begin + SPLIT);
    if (begin >= end)
        return;
    const uint pages = (end - begin + PAGE - 1u) / PAGE, turns = (pages + TEAMS - 1u) / TEAMS * 4u;
    if (gl_LocalInvocationIndex < pages)
        s_page[gl_LocalInvocationIndex] = page_of(o, begin / PAGE + gl_LocalInvocationIndex);
    load_queries(o, kv_tile);
    fetch(s_page[min(TEAM, pages - 1u)], 0u, head, lane, w);
    table_fill();
    barrier();
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        q[i] = query_block(i);
        acc[i] = MAT_C_ZERO;
    }
    const float by = args.scale * s_qmax[t] * LOG2E;
    [[dont_unroll]] for (uint turn = 0u; turn < turns; turn++) {     /* else 222 registers instead of 182 */
        const uint j = turn / 4u * TEAMS + TEAM, next = (turn + 1u) / 4u * TEAMS + TEAM, first = j * PAGE + turn % 4u * KEYS;
        const bool there = j < pages && s_page[min(j, pages - 1u)] >= 0;   /* else: read exactly, by the last part */
        const uint n = there && begin + first < end ? end - begin - first : 0u;
        team_wait();
        put(from, lane, w);
        fetch(s_page[min(next, pages - 1u)], (turn + 1u) % 4u, head, lane, w);
        team_wait();
        vec2 y = scores(from, g, t, copy, q) * by;
        y = vec2(g < n ? y.x : NEG_INF, g + 8u < n ? y.y : NEG_INF);
        const uint p = weights(y, m, l, acc);
        const MAT_B pm = weight_block(p);
        weigh(from + QUADS * 4u, n, g, t, copy, pm, acc);
    }
    store(o, ti, kv_tile, part, g, t, m, l, acc);
}
