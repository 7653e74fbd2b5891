#version 450
/* attn, second pass, one query per sequence, a page of 64 keys a turn: the partial sums of attn_tile over one split of
 * SPLIT keys.  Keys: a thread takes 32 values (a record) of a row, for all heads.  Values: a thread owns eight columns
 * and takes every KG-th row.  Two barriers a page: while some weigh values, others score the next keys.
 *
 * Formats of 4-bit records (a half, 16 bytes of nibbles: q4_0, tbq4_0, turbo4): the rows lie in shared memory as in the
 * page, 18 words per 128 values, the page after the next being on its way to registers.  A byte is two values, j and
 * j + 16 of its record: one look-up gives both as halves, from one of COPIES tables, so that the threads of a subgroup
 * meet different banks; 16 keys of two records two apart are 32 different banks.  Products of keys are 16-bit: queries
 * are divided by their largest value, so no sum of a record's can overflow; those of values are 16-bit within a page.
 * It earns its place beside attn_decode: on an H200 524 us instead of 918 (tbq4_0, 32 sequences of 16384 tokens), on any
 * device with 16-bit arithmetic.
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
#ifdef FAST
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define HALF2 f16vec2
#define halves_of(w) unpackFloat2x16(w)
#define halves_to(a, b) packFloat2x16(f16vec2(a, b))
#else
#define HALF2 vec2
#define halves_of(w) unpackHalf2x16(w)
#define halves_to(a, b) packHalf2x16(vec2(a, b))
#endif
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint KF = 5u;
layout(constant_id = 1) const uint VF = 5u;
layout(constant_id = 2) const uint ROWS = 1u;
layout(constant_id = 3) const uint DK = 64u;
layout(constant_id = 4) const uint DV = 64u;
layout(constant_id = 5) const uint KBOOK = 0u;
layout(constant_id = 6) const uint VBOOK = 0u;
layout(constant_id = 7) const uint COPIES = 8u;            /* of each table: 8, 16 or 32 */
layout(constant_id = 9) const uint VEC = 0u;               /* pages begin at multiples of 16 bytes */
layout(constant_id = 8) const uint LANES = 0u;             /* threads of a subgroup, where the device states it */
layout(constant_id = 10) const uint SPLIT = 1024u;         /* keys of a part, at most 128 pages */
layout(constant_id = 11) const uint DIRECT = 0u;
layout(constant_id = 12) const uint KCENTRE = 0u;          /* of integers; 0: levels of the book */
layout(constant_id = 13) const uint VCENTRE = 0u;
#include "cards/vulkan.h"
#include "tiles.glsl"

const uint RQ = (ROWS + 3u) / 4u;
const uint KROW = DK * 18u / 128u, VROW = DV * 18u / 128u;             /* words of a row of records */
const uint KQUADS = PAGE * KROW / 4u, VQUADS = PAGE * VROW / 4u;    /* of a page's head */
const uint KLOADS = (KQUADS + GROUP - 1u) / GROUP, VLOADS = (VQUADS + GROUP - 1u) / GROUP;
const uint RECORDS = DK / 32u, BLOCKS = 8u / RECORDS, PASSES = 4u / BLOCKS, PAIR = PASSES < 2u ? 1u : 2u;    /* 16 keys times BLOCKS times PASSES */
const uint COLS = 8u, CG = DV / COLS, KG = GROUP / CG, VKEYS = 64u / KG;   /* VKEYS: rows of a thread */
const uint TPH = ROWS > 1u ? GROUP / ROWS : 64u, PER = 64u / TPH;     /* softmax: threads of a head, keys of each */
const uint TABLE = 256u * COPIES, VTABLE = KF == VF ? 0u : TABLE; /* words; where V's begins */
const uint H4 = ROWS < 4u ? ROWS : 4u;                     /* heads of a quad */
const uint PART = ROWS * 64u, SUMS = ROWS * COLS, PAIR_SUMS = PAIR * ROWS, HALF_SUMS = 4u * ROWS;
shared uint s_table[TABLE + VTABLE];         /* at the end: sums of one head */
shared uint s_k[KQUADS * 4u], s_v[VQUADS * 8u];      /* values: of two pages */
shared uvec4 s_q[RECORDS * 17u * RQ];
shared float s_part[RECORDS * PART + RECORDS * 8u];
shared vec4 s_p[64u * RQ];
shared float s_by[ROWS], s_qmax[ROWS];
shared uint s_big[ROWS];
shared int s_page[SPLIT / PAGE];

float value_of(uint centre, uint book, uint i)
{
    return centre != 0u ? float(int(i) - int(centre)) : ldf(P(9, books), book + i);
}

void table_fill(uint centre, uint book, uint base)
{
    for (uint u = gl_LocalInvocationIndex; u < 256u; u += GROUP) {
        const uint both = halves_to(value_of(centre, book, u & 15u), value_of(centre, book, u >> 4));
        [[unroll]] for (uint i = 0u; i < COPIES; i++)
            s_table[base + u * COPIES + i] = both;
    }
}

/* The two values of byte i of a word. */
HALF2 pair_of(uint base, uint w, uint i, uint lane)
{
    const uint shifted = 8u * i >= findLSB(COPIES) ? w >> (8u * i - findLSB(COPIES)) : w << (findLSB(COPIES) - 8u * i);
    return halves_of(s_table[base + (shifted & 255u * COPIES | lane)]);
}

int page_of(tile o, uint j)
{
    int exact = -1;
    if (o.pos / PAGE - j < args.tail_pages && args.n_part > args.n_split)
        exact = ldi(P(13, tails), o.seq * args.stride + j);
    return exact >= 0 ? -1 : ldi(P(12, table), o.seq * args.stride + j);
}

uvec4 quad(PTR p, uint u)
{
    if (VEC != 0u)
        return ld4(p, u);
    return uvec4(ld(p, 4u * u), ld(p, 4u * u + 1u), ld(p, 4u * u + 2u), ld(p, 4u * u + 3u));
}

/* The rows of records of a page; of a page that is not there, of page 0. */
void fetch(int page, uint head, out uvec4 k[KLOADS], out uvec4 v[VLOADS])
{
    const PTR kfrom = at(at_mul(P(3, kpages), uint(max(page, 0)), args.k_page_words), head * args.k_head_bytes / 4u),
              vfrom = at(at_mul(P(5, vpages), uint(max(page, 0)), args.v_page_words), head * args.v_head_bytes / 4u);
    [[unroll]] for (uint i = 0u; i < KLOADS; i++)
        k[i] = quad(kfrom, min(gl_LocalInvocationIndex + GROUP * i, KQUADS - 1u));
    [[unroll]] for (uint i = 0u; i < VLOADS; i++)
        v[i] = quad(vfrom, min(gl_LocalInvocationIndex + GROUP * i, VQUADS - 1u));
}

void put(uvec4 k[KLOADS], uvec4 v[VLOADS], uint which)
{
    const uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0u; i < KLOADS; i++)
        if (t + GROUP * i < KQUADS)
            [[unroll]] for (uint e = 0u; e < 4u; e++)
                s_k[(t + GROUP * i) * 4u + e] = k[i][e];
    [[unroll]] for (uint i = 0u; i < VLOADS; i++)
        if (t + GROUP * i < VQUADS)
            [[unroll]] for (uint e = 0u; e < 4u; e++)
                s_v[(which * VQUADS + t + GROUP * i) * 4u + e] = v[i][e];
}

/* Queries as halves, two of a byte's columns together (wide: as f32, two neighbours), for four heads a quad. */
void load_queries(tile o, uint kv_tile)
{
    const uint t = gl_LocalInvocationIndex;
    if (t < ROWS)
        s_big[t] = 0u;
    barrier();
    for (uint u = t; u < DK * ROWS; u += GROUP) {
        const row_id id = row_of(o, kv_tile, u / DK);
        const float x = id.token >= 0 ? ldf(P(1, qp), uint(id.token) * args.ldp + id.head * args.gp + u % DK) : 0.0;
        s_part[u] = x;
        atomicMax(s_big[u / DK], floatBitsToUint(abs(x)));
    }
    barrier();
    if (t < ROWS)
        s_qmax[t] = s_big[t] == 0u ? 1.0 : uintBitsToFloat(s_big[t]);
    barrier();
    for (uint u = t; u < DK / 2u * RQ; u += GROUP) {
        const uint pair = u / RQ, record = pair / 16u, j = pair % 16u, to = (record * 17u + j) * RQ + u % RQ,
                   column = 32u * record + j, other = column + 16u;
        uvec4 both = uvec4(0u);
        [[unroll]] for (uint i = 0u; i < H4; i++) {
            const uint r = u % RQ * 4u + i;
            const float a = s_part[r * DK + column], b = s_part[r * DK + other];
            both[i] = halves_to(a / s_qmax[r], b / s_qmax[r]);
        }
        s_q[to] = both;
    }
}

/* The half in the lower or upper part of a word. */
float scale_of(uint w, uint upper)
{
    return half_of(w >> 16u * upper & 0xffffu);
}

/* Sums of one record for each key that this thread has. */
void score()
{
    const uint t = gl_LocalInvocationIndex, a = t >> 4, half_n = RECORDS / 2u, parity = a / half_n % 2u,
               record = a % half_n * 2u + parity, lane = t & COPIES - 1u;
    for (uint pass = 0u; pass < PASSES / PAIR; pass++) {
        HALF2 sum[PAIR_SUMS];
        uint from[2];
        [[unroll]] for (uint k = 0u; k < PAIR; k++) {
            const uint key = ((pass * PAIR + k) * BLOCKS + a / RECORDS) * 16u + (t & 15u);
            from[k] = key * KROW + record / 2u * 9u + 4u * parity;
            [[unroll]] for (uint r = 0u; r < ROWS; r++)
                sum[k * ROWS + r] = HALF2(0.0);
        }
        [[unroll]] for (uint word = 0u; word < 4u; word++) {
            uint code[2];
            [[unroll]] for (uint k = 0u; k < PAIR; k++) {
                const uint lo = s_k[from[k] + word], hi = s_k[from[k] + word + 1u];
                code[k] = parity != 0u ? hi : lo >> 16 | hi << 16;
            }
            [[unroll]] for (uint j = 0u; j < 4u; j++) {
                HALF2 v[2];
                [[unroll]] for (uint k = 0u; k < PAIR; k++)
                    v[k] = pair_of(0u, code[k], j, lane);
                [[unroll]] for (uint g = 0u; g < RQ; g++) {
                    const uvec4 w = s_q[(record * 17u + 4u * word + j) * RQ + g];
                    [[unroll]] for (uint i = 0u; i < H4; i++)
                        [[unroll]] for (uint k = 0u; k < PAIR; k++)
                            sum[k * ROWS + 4u * g + i] = fma(halves_of(w[i]), v[k], sum[k * ROWS + 4u * g + i]);
                }
            }
        }
        [[unroll]] for (uint k = 0u; k < PAIR; k++) {
            const uint key = ((pass * PAIR + k) * BLOCKS + a / RECORDS) * 16u + (t & 15u);
            const float d = scale_of(s_k[from[k]], parity);
            [[unroll]] for (uint r = 0u; r < ROWS; r++)
                s_part[record * PART + record / 2u * 16u + r * 64u + key] =
                    (float(sum[k * ROWS + r].x) + float(sum[k * ROWS + r].y)) * d;
        }
    }
}

/* Largest x of the threads of a head.  tile_count is free since tile_at. */
float top_of(float x)
{
#ifdef FAST
    if (LANES == TPH)
        return subgroupMax(x);
#endif
    const uint t = gl_LocalInvocationIndex;
    tile_count[t] = floatBitsToUint(x);
    barrier();
    float top = NEG_INF;
    for (uint i = t / TPH * TPH; i < t / TPH * TPH + TPH; i++)
        top = max(top, uintBitsToFloat(tile_count[i]));
    return top;
}

/* Weights of n keys, m and l of this thread's head. */
void weights(uint n, inout float m, inout float l)
{
    const uint t = gl_LocalInvocationIndex, r = t / TPH;
    float s[PER], top = NEG_INF;
    bool bad = false;
    [[unroll]] for (uint i = 0u; i < PER; i++) {
        const uint key = t % TPH + TPH * i;
        s[i] = NEG_INF;
        if (r < ROWS && key < n) {
            float sum = 0.0;
            [[unroll]] for (uint g = 0u; g < RECORDS; g++)
                sum += s_part[g * PART + g / 2u * 16u + r * 64u + key];
            s[i] = sum * (args.scale * s_qmax[r]);
            bad = bad || is_nan(s[i]);
            s[i] = is_nan(s[i]) ? NEG_INF : s[i];
        }
        top = max(top, s[i]);
    }
    top = max(m, top_of(top));
    const float by = top == NEG_INF ? 1.0 : exp(m - top);
    [[unroll]] for (uint i = 0u; i < PER; i++) {
        const uint key = t % TPH + TPH * i;
        float p = s[i] == NEG_INF ? 0.0 : exp(s[i] - top);
        p = bad ? NOT_A_NUMBER : p;
        const uint twice = halves_to(p, p);
        p = bad ? p : float(halves_of(twice).x);           /* as weigh will read it */
        if (r < ROWS)
            s_p[key * RQ + r / 4u][r & 3u] = uintBitsToFloat(twice);
        l = (i == 0u ? l * by : l) + p;
    }
    m = top;
    if (r < ROWS && t % TPH == 0u)
        s_by[r] = by;
}

/* acc *= what the growth of the maxima asks for. */
void rescale(inout float acc[SUMS])
{
    bool grown = false;
    [[unroll]] for (uint r = 0u; r < ROWS; r++)
        grown = grown || s_by[r] != 1.0;
    if (grown)
        [[unroll]] for (uint r = 0u; r < ROWS; r++)
            [[unroll]] for (uint e = 0u; e < COLS; e++)
                acc[r * COLS + e] *= s_by[r];
}

/* A half twice, times v. */
HALF2 scaled(HALF2 v, uint w, uint upper)
{
    if (HALVES == 0u)
        return HALF2(vec2(v) * scale_of(w, upper));
    const uint h = upper != 0u ? w >> 16 : w & 0xffffu;
    return v * halves_of(h | h << 16);
}

/* Weighs records: four bytes of a row, columns 4 quarter .. + 3 of the low and of the high nibbles.  The sums of one
 * page are 16-bit: weights are at most 1, values at most those that a page of f16 would hold. */
void weigh(uint n, uint which, inout float acc[SUMS])
{
    const uint t = gl_LocalInvocationIndex, record = t % CG / 4u, quarter = t % 4u, parity = record & 1u,
               lane = t & COPIES - 1u, first = which * VQUADS * 4u + record / 2u * 9u + 4u * parity;
    HALF2 sum[HALF_SUMS];
    [[unroll]] for (uint i = 0u; i < HALF_SUMS; i++)
        sum[i] = HALF2(0.0);
    [[unroll]] for (uint i = 0u; i < VKEYS; i++) {
        const uint k = t / CG + KG * i, from = first + k * VROW, lo = s_v[from + quarter], hi = s_v[from + quarter + 1u],
                   code = parity != 0u ? hi : lo >> 16 | hi << 16;
        const uint d = k < n ? s_v[from] : 0u;             /* rows past the last hold anything */
        uint w[4u * RQ];
        [[unroll]] for (uint g = 0u; g < RQ; g++)
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                w[4u * g + c] = floatBitsToUint(s_p[k * RQ + g][c]);
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            const HALF2 v = scaled(pair_of(VTABLE, code, e, lane), d, parity);
            [[unroll]] for (uint r = 0u; r < ROWS; r++)
                sum[r * 4u + e] = fma(halves_of(w[r]), v, sum[r * 4u + e]);
        }
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++)
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            acc[r * COLS + e] += float(sum[r * 4u + e].x);
            acc[r * COLS + 4u + e] += float(sum[r * 4u + e].y);
        }
}

/* The thread groups' sums of every head, in order, then m and l. */
void store(tile o, uint ti, uint kv_tile, uint part, float acc[SUMS], float m, float l)
{
    const uint t = gl_LocalInvocationIndex;
    barrier();
    tile_count[t] = floatBitsToUint(l);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const row_id id = row_of(o, kv_tile, r);
        const uint to = DIRECT != 0u ? uint(max(id.token, 0)) * args.width + id.head * DV
                                     : part_at(ti, kv_tile, part, r) + 2u;
        float total = 0.0;
        barrier();
        [[unroll]] for (uint e = 0u; e < COLS; e++)
            s_table[e * GROUP + t] = floatBitsToUint(acc[r * COLS + e]);
        barrier();
        if (t == r * TPH || DIRECT != 0u)
            for (uint i = 0u; i < TPH; i++)
                total += uintBitsToFloat(tile_count[r * TPH + i]);
        for (uint c = t; c < DV; c += GROUP) {
            /* column c of records: record c/32, low or high nibbles, byte c%16 of the record */
            const uint cg = c / 32u * 4u + (c % 16u) / 4u, e = (c & 16u) / 4u + (c & 3u);
            float sum = 0.0;
            for (uint g = 0u; g < KG; g++)
                sum += uintBitsToFloat(s_table[e * GROUP + g * CG + cg]);
            if (id.token >= 0)
                stf(P(2, part), to + c, DIRECT != 0u ? sum / total : sum);
        }
        if (DIRECT == 0u && t == r * TPH && id.token >= 0) {
            stf(P(2, part), to - 2u, m);
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
    float acc[SUMS], m = NEG_INF, l = 0.0;
    uvec4 k[KLOADS], v[VLOADS];
    if (!tile_at(P(10, q0), P(11, pos0), args.tile0 + ti, o))
        return;
    const uint begin = part * SPLIT, end = min(o.pos + 1u, begin + SPLIT);
    if (begin >= end)
        return;
    const uint pages = (end - begin + PAGE - 1u) / PAGE;
    if (t < pages)
        s_page[t] = page_of(o, begin / PAGE + t);
    table_fill(KCENTRE, KBOOK, 0u);
    if (KF != VF)
        table_fill(VCENTRE, VBOOK, VTABLE);
    load_queries(o, kv_tile);
    [[unroll]] for (uint i = 0u; i < SUMS; i++)
        acc[i] = 0.0;
    fetch(s_page[0], head, k, v);
    barrier();                     /* s_part has been read; queries and tables are there */
    put(k, v, 0u);
    fetch(s_page[min(1u, pages - 1u)], head, k, v);
    barrier();
    for (uint j = 0u; j < pages; j++) {
        const int page = s_page[j];
        const uint n = page < 0 ? 0u : min(PAGE, end - begin - j * PAGE);  /* page < 0: read exactly, by the last part */
        score();
        barrier();
        weights(n, m, l);
        put(k, v, j + 1u & 1u);
        fetch(s_page[min(j + 2u, pages - 1u)], head, k, v);
        barrier();
        rescale(acc);
        weigh(n, j & 1u, acc);
    }
    store(o, ti, kv_tile, part, acc, m, l);
}
