#version 450
/* matmul for few rows of activations times weights of 4 to 8 bits (DOT: VK_DOT_*, tools/cards/glsl_dot.py), where the
 * caller leaves the arithmetic to the device: activations become 8-bit codes, one scale for 16 of them, once per
 * workgroup.
 *
 * FAST: a subgroup makes one output of ROWS activation rows at a time (else: the workgroup): its lanes share the weight
 * row, 16 or 32 codes a load, DEEP loads ahead; then it takes the output one grid further, so a workgroup reads the
 * activations once for many outputs.  w begins at weight row row_from, and has n of them.
 * PARTS = 2: rows o and n/2 + o are gate and up of one output; y gets silu(gate) * up in gate's place, and up.
 * ADD: y is added to sum too, rows of ldy.  NORM: the activations are norm_rms(x) * norm, which `normed` gets.
 * IDS: matmul_id, ROWS = 1: row r of y is of expert ids[r], n rows of w each, and of row r / x_div of x. */
#define SLOTS 8
#define ARGS ARGPTR w; ARGPTR scale; ARGPTR x; ARGPTR y; ARGPTR sum; ARGPTR norm; ARGPTR normed; ARGPTR ids; uint n; \
    uint row_from; uint row_bytes; uint ldx; uint ldy; uint rows; uint x_div; uint n_scale; float eps;
#define GROUP_SIZE WIDE_GROUP
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/reduce.glsl"
#include "cards/vulkan.h"
#ifdef FAST
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_packed(int a, int b, spirv_literal int packed_4x8);
#define dot4(a, b) dot_packed(int(a), int(b), 0)
#else
int dot4(uint a, uint b)
{
    int sum = 0;
    [[unroll]] for (int i = 0; i < 32; i += 8)
        sum += bitfieldExtract(int(a), i, 8) * bitfieldExtract(int(b), i, 8);
    return sum;
}
#endif
layout(local_size_x = GROUP_SIZE) in;
layout(constant_id = 0) const uint ROWS = 1u;
layout(constant_id = 1) const uint CHUNKS = 16u;           /* of 16 values: n_in / 16 */
layout(constant_id = 2) const uint X_VEC = 0u;             /* rows of x begin at multiples of 16 bytes */
layout(constant_id = 3) const uint DEEP = 2u;
layout(constant_id = 4) const uint PARTS = 1u;
layout(constant_id = 5) const uint ADD = 0u;
layout(constant_id = 6) const uint NORM = 0u;              /* CHUNKS is at most GROUP then */
layout(constant_id = 7) const uint DOT = VK_DOT_BYTES;     /* the form of T's loads */
layout(constant_id = 8) const uint T = 0u;
layout(constant_id = 9) const uint IDS = 0u;
const uint LOADS = DOT == VK_DOT_BYTES ? CHUNKS : CHUNKS / 2u;      /* of 16 bytes of codes */
const uint BLOCKS = CHUNKS / 16u;                                   /* of 256 values */
uint expert = 0u;                          /* this workgroup's */
/* Chunks whose numbers differ in this bit meet the two halves of one load of halves. */
const uint HALF_BIT = DOT == VK_DOT_PAIRS ? 1u : DOT == VK_DOT_SIX ? 2u : 0u;
shared uvec4 s_code[ROWS * CHUNKS];                                 /* of a row, chunk u at place_of(u) */
shared float s_step[ROWS * CHUNKS];
shared float s_sum[DOT == VK_DOT_BYTES ? 1u : ROWS * CHUNKS];       /* of a chunk's codes, times its step */

shared uint s_levels[DOT == VK_DOT_LEVELS ? 256u : 1u];             /* of two codes */

/* Properties of a type beside its form: whether there are high bits apart from the codes, the code that stands for
 * zero; NIBBLES and LEVELS: their numbers, VK_NUMBERS_*; LEVELS: the levels, four to a word. */
struct dot_rule {
    bool high;
    uint centre, numbers;
    uvec4 levels;
};
#include "cards/dot.glsl"

int dot16(uvec4 a, uvec4 b)
{
    return dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w);
}

/* 16 values from `from` on; whole: 16 bytes at a time. */
void chunk_load(PTR p, uint from, bool whole, out vec4 v[4])
{
    [[unroll]] for (uint i = 0u; i < 4u; i++)
        if (whole)
            v[i] = uintBitsToFloat(ld4(p, from / 4u + i));
        else
            v[i] = vec4(ldf(p, from + 4u * i), ldf(p, from + 4u * i + 1u), ldf(p, from + 4u * i + 2u),
                        ldf(p, from + 4u * i + 3u));
}

/* Activations of load c of halves lie at c and LOADS + c: lanes next to each other read places next to each other. */
uint place_of(uint u)
{
    const uint below = (1u << HALF_BIT) - 1u;
    return DOT == VK_DOT_BYTES ? u : (u >> HALF_BIT & 1u) * LOADS + ((u >> 1 & ~below) | (u & below));
}

/* Chunk u of row m of the workgroup's as codes and the step between them. */
void quantise(uint m, uint u, vec4 v[4])
{
    const uint to = m * CHUNKS + place_of(u);
    float top = 0.0;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const vec4 a = abs(v[i]);
        top = max(top, max(max(a.x, a.y), max(a.z, a.w)));
    }
    const float inv = top > 0.0 ? 127.0 / top : 0.0;
    uvec4 code;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        const ivec4 c = ivec4(round(v[i] * inv));
        code[i] = uint(c.x & 255) | uint(c.y & 255) << 8 | uint(c.z & 255) << 16 | uint(c.w) << 24;
    }
    s_code[to] = code;
    s_step[to] = top / 127.0;
    if (DOT != VK_DOT_BYTES)
        s_sum[to] = top / 127.0 * float(dot16(uvec4(0x01010101u), code));
}

/* Entry 16 j + i of s_levels: levels i and j. */
void make_levels()
{
    const uvec4 four = dot_rule_of(T).levels;
    for (uint u = gl_LocalInvocationIndex; u < 256u; u += GROUP)
        s_levels[u] = (four[u >> 2 & 3u] >> 8u * (u & 3u) & 255u) | (four[u >> 6] >> 8u * (u >> 4 & 3u) & 255u) << 8;
}

/* Row m of the workgroup's, normalised; by all threads, a chunk each. */
void norm_row(uint m, uint row)
{
    const uint u = gl_LocalInvocationIndex, from = row * args.ldx + u * 16u;
    vec4 v[4], f[4];
    float s = 0.0;
    if (u < CHUNKS) {
        chunk_load(P(2, x), from, X_VEC != 0u, v);
        chunk_load(P(5, norm), u * 16u, X_VEC != 0u, f);
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            s += dot(v[i], v[i]);
    }
    const float by = 1.0 / sqrt(group_sum(s) / float(CHUNKS * 16u) + args.eps);
    if (u < CHUNKS) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            v[i] = v[i] * by * f[i];
            if (gl_WorkGroupID.x == 0u)
                [[unroll]] for (uint e = 0u; e < 4u; e++)
                    stf(P(6, normed), from + 4u * i + e, v[i][e]);
        }
        quantise(m, u, v);
    }
}

/* A load: codes q, high bits h, numbers n: SIX: two factors and a scale in x; else the block's, or their words. */
struct part {
    uvec4 q, h, n;
};

/* The numbers of load c, which begin at word `from` of the row. */
uvec4 numbers_at(PTR row, uint from, uint c)
{
    const uint kind = dot_rule_of(T).numbers;
    if (kind == VK_NUMBERS_FIELDS)
        return uvec4(ld(row, from + c / 8u * 2u), ld(row, from + c / 8u * 2u + 1u), 0u, 0u);
    if (kind == VK_NUMBERS_F16_ADD)
        return uvec4(ld(row, from + c), 0u, 0u, 0u);
    if (kind == VK_NUMBERS_E8M0)
        return uvec4(ld(row, from + c / 4u) >> 8u * (c & 3u) & 255u, 0u, 0u, 0u);
    return uvec4(ld(row, from + c / 2u) >> 16u * (c & 1u) & 0xffffu, 0u, 0u, 0u);
}

part part_at(PTR row, uint c)
{
    const bool high = dot_rule_of(T).high;
    part p;
    p.h = p.n = uvec4(0u);
    if (DOT == VK_DOT_BYTES) {
        p.q = ld4(row, c);
        p.n.x = ld(row, (16u * CHUNKS + c / 2u * 2u) / 4u) >> (c / 2u & 1u) * 16u & 0xffffu;
    } else if (DOT == VK_DOT_PAIRS) {
        const uint at = (high ? 11u : 9u) * (c / 8u), codes = at + (high ? 3u : 1u);
        p.q = ld4(row, codes + c % 8u);
        p.n = ld4(row, at);
        if (high)
            p.h = ld4(row, at + 1u + c % 2u);
    } else if (DOT == VK_DOT_NIBBLES || DOT == VK_DOT_LEVELS) {
        p.q = ld4(row, c);
        p.n = numbers_at(row, high ? 5u * LOADS : 4u * LOADS, c);
        if (high)
            p.h.x = ld(row, 4u * LOADS + c);
    } else {
        const uint block = c / 8u, k = c % 8u, factors = 48u * BLOCKS + 4u * block + 2u * (k / 4u), at = 8u * (k % 4u);
        p.q = ld4(row, c);
        p.h = ld4(row, 8u * BLOCKS + 4u * block + 2u * (k / 4u) + k % 2u);
        p.n.x = (ld(row, factors) >> at & 255u) | (ld(row, factors + 1u) >> at & 255u) << 8 |
                ld(row, 52u * BLOCKS + block / 2u) >> 16u * (block % 2u) << 16;
    }
    return p;
}

/* Load c times the codes of the row that begins at x0. */
float bytes_part(part p, uint c, uint x0)
{
    return float(dot16(p.q, s_code[x0 + c])) * (s_step[x0 + c] * half_of(p.n.x));
}

/* Lower halves: values of group 2 j of the block, upper ones of the group behind it; fifth bits: bits 2 j, 2 j + 1. */
float pairs_part(part p, uint c, uint x0)
{
    const uint j = c % 8u / 2u, at = x0 + c, by = 16u * (j & 1u);
    const uint a = p.n.y >> by & 0xffffu, b = p.n.z >> by & 0xffffu, w = p.n.w >> by & 0xffffu;
    const uint f = j < 2u ? a & 0x3f3fu : (w & 0x0f0fu) | (a >> 2 & 0x3030u);
    const uint l = j < 2u ? b & 0x3f3fu : (w >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u);
    const uvec4 h = p.h >> 2u * j;
    const uvec4 q = (p.q & 0x0f0f0f0fu) | (h << 4 & 0x10101010u);
    const uvec4 r = (p.q >> 4 & 0x0f0f0f0fu) | (h << 3 & 0x10101010u);
    const float low = float(dot16(q, s_code[at])) * s_step[at],
                high = float(dot16(r, s_code[at + LOADS])) * s_step[at + LOADS];
    return half_of(p.n.x & 0xffffu) * (float(f & 63u) * low + float(f >> 8) * high) -
           half_of(p.n.x >> 16) * (float(l & 63u) * s_sum[at] + float(l >> 8) * s_sum[at + LOADS]);
}

float six_part(part p, uint c, uint x0)
{
    const uint at = x0 + c;
    const float centre = float(dot_rule_of(T).centre);
    const uvec4 h = p.h >> 2u * (c % 4u / 2u);
    const uvec4 low = (p.q & 0x0f0f0f0fu) | (h << 4 & 0x30303030u), high = (p.q >> 4 & 0x0f0f0f0fu) | (h & 0x30303030u);
    const float a = float(dot16(low, s_code[at])) * s_step[at] - centre * s_sum[at],
                b = float(dot16(high, s_code[at + LOADS])) * s_step[at + LOADS] - centre * s_sum[at + LOADS];
    const float fa = float(bitfieldExtract(int(p.n.x), 0, 8)), fb = float(bitfieldExtract(int(p.n.x), 8, 8));
    return half_of(p.n.x >> 16) * (fa * a + fb * b);
}

/* Bit 4 i + e of bits as bit 4 of byte e of word i. */
uvec4 fifth_bits(uint bits)
{
    return (uvec4(bits, bits >> 4, bits >> 8, bits >> 12) & 15u) * 0x02040810u & 0x10101010u;
}

/* The levels of four codes, a byte each. */
uint levels_of(uint codes)
{
    const uint two = codes | codes >> 4;
    return s_levels[two & 255u] | s_levels[two >> 16 & 255u] << 16;
}

uvec4 nibbles_of(uvec4 codes, uint high)
{
    codes &= 0x0f0f0f0fu;
    if (DOT == VK_DOT_LEVELS)
        return uvec4(levels_of(codes.x), levels_of(codes.y), levels_of(codes.z), levels_of(codes.w));
    return dot_rule_of(T).high ? codes | fifth_bits(high) : codes;
}

float nibbles_part(part p, uint c, uint x0)
{
    const dot_rule rule = dot_rule_of(T);
    const uint at = x0 + c;
    const float a = float(dot16(nibbles_of(p.q, p.h.x), s_code[at])) * s_step[at],
                b = float(dot16(nibbles_of(p.q >> 4, p.h.x >> 16), s_code[at + LOADS])) * s_step[at + LOADS];
    const float sum = s_sum[at] + s_sum[at + LOADS],
                scaled = rule.centre != 0u ? a + b - float(rule.centre) * sum : a + b;
    if (rule.numbers == VK_NUMBERS_E8M0)
        return e8m0_half(p.n.x) * scaled;
    if (rule.numbers == VK_NUMBERS_F16_ADD)
        return half_of(p.n.x & 0xffffu) * scaled + half_of(p.n.x >> 16) * sum;
    return half_of(p.n.x & 0xffffu) * dot_factor(T, p.n.xy, c % 8u) * scaled;
}

float any_part(part p, uint c, uint x0)
{
    return DOT == VK_DOT_BYTES   ? bytes_part(p, c, x0)
           : DOT == VK_DOT_PAIRS ? pairs_part(p, c, x0)
           : DOT == VK_DOT_SIX   ? six_part(p, c, x0)
                                 : nibbles_part(p, c, x0);
}

/* DEEP loads of this lane from weight row o on. */
void fetch(uint o, uint base, uint lanes, out part p[DEEP])
{
    const PTR row = at_mul(P(0, w), expert * args.n + min(o, args.n - 1u), args.row_bytes / 4u);
    [[unroll]] for (uint i = 0u; i < DEEP; i++)
        p[i] = part_at(row, min(base + lanes * i, LOADS - 1u));
}

/* Sums over weight row o for rows r0 .. of the activations; p: the first loads of it, then of row `next`. */
void row_sums(uint o, uint next, uint lane, uint lanes, inout part p[DEEP], out float acc[ROWS])
{
    [[unroll]] for (uint m = 0u; m < ROWS; m++)
        acc[m] = 0.0;
    for (uint base = lane; base - lane < LOADS; base += lanes * DEEP) {
        part now[DEEP];
        [[unroll]] for (uint i = 0u; i < DEEP; i++)
            now[i] = p[i];
        const bool last = base - lane + lanes * DEEP >= LOADS;
        fetch(last ? next : o, last ? lane : base + lanes * DEEP, lanes, p);
        [[unroll]] for (uint i = 0u; i < DEEP; i++)
            if (base + lanes * i < LOADS)
                [[unroll]] for (uint m = 0u; m < ROWS; m++)
                    acc[m] += any_part(now[i], base + lanes * i, m * CHUNKS);
    }
    [[unroll]] for (uint m = 0u; m < ROWS; m++)
#ifdef FAST
        acc[m] = subgroupAdd(acc[m]);
#else
        acc[m] = group_sum(acc[m]);
#endif
}

void store(uint o, uint row, float a, float b, float before)
{
    const float scale = args.n_scale == 0u ? 1.0 : ldf(P(1, scale), args.n_scale > 1u ? expert : 0u);
    const uint to = row * args.ldy + args.row_from + o;
    a *= scale;
    b *= scale;
    if (PARTS == 2u) {
        stf(P(3, y), to + args.n / 2u, b);
        a = a / (1.0 + exp(-a)) * b;
    }
    stf(P(3, y), to, a);
    if (ADD != 0u)
        stf(P(4, sum), to, before + a);
}

void main()
{
    const uint r0 = gl_WorkGroupID.y * ROWS;
#ifdef FAST
    const uint lane = gl_SubgroupInvocationID, lanes = gl_SubgroupSize, teams = gl_NumSubgroups, team = gl_SubgroupID;
#else
    const uint lane = gl_LocalInvocationIndex, lanes = GROUP, teams = 1u, team = 0u;
#endif
    part p[DEEP];
    if (IDS != 0u)
        expert = ld(P(7, ids), r0);
    fetch(gl_WorkGroupID.x * teams + team, lane, lanes, p);     /* on its way while the activations become codes */
    if (DOT == VK_DOT_LEVELS)
        make_levels();
    if (NORM != 0u)
        [[unroll]] for (uint m = 0u; m < ROWS; m++)
            norm_row(m, min(r0 + m, args.rows - 1u));
    else
        for (uint u = gl_LocalInvocationIndex; u < ROWS * CHUNKS; u += GROUP) {
            vec4 v[4];
            const uint row = min(r0 + u / CHUNKS, args.rows - 1u) / args.x_div;
            chunk_load(P(2, x), row * args.ldx + u % CHUNKS * 16u, X_VEC != 0u, v);
            quantise(u / CHUNKS, u % CHUNKS, v);
        }
    barrier();
    const uint outs = args.n / PARTS, stride = gl_NumWorkGroups.x * teams;
    for (uint o = gl_WorkGroupID.x * teams + team; o < outs; o += stride) {
        float a[ROWS], b[ROWS], before[ROWS];
        [[unroll]] for (uint m = 0u; m < ROWS; m++)        /* on its way meanwhile */
            before[m] = ADD != 0u && lane == 0u && r0 + m < args.rows
                            ? ldf(P(4, sum), (r0 + m) * args.ldy + args.row_from + o) : 0.0;
        row_sums(o, PARTS == 2u ? outs + o : o + stride, lane, lanes, p, a);
        if (PARTS == 2u)
            row_sums(outs + o, o + stride, lane, lanes, p, b);
        [[unroll]] for (uint m = 0u; m < ROWS; m++)
            if (lane == 0u && r0 + m < args.rows)
                store(o, r0 + m, a[m], PARTS == 2u ? b[m] : 0.0, before[m]);
    }
}
