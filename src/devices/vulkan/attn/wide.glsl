/* wide.glsl: attn of prompts on matrix units: a workgroup has a tile of query rows (tiles.glsl), 16 rows to a team,
 * and goes through the keys that they see, KEYS at a time.  Keys and values are rows of halves in real space:
 * attn_expand made them of pages, or they lie in the exact tail.  Both pass through shared memory, the next ones being
 * on their way.
 *
 * A team's scores go to its rows of s_sum, where two threads have a row: its weights go back as halves, beside the
 * factor by which the row's sums must shrink.  Weights refer to a whole power of two at or above the largest
 * one, so that this factor is exact as a half too: times a matrix of ones it is a matrix that shrinks sums element by
 * element, wherever a device holds them.  Sums of weights are one more product with ones.
 * Queries are halves times a row's own power of two.  If some of the tile's rows do not see all of the keys, values
 * are looked at: what is no number becomes 0 (no weight of 0 would hide it), and the results of those who see it are
 * no numbers.
 * Parts of the context follow each other where scratch memory does not hold all of it: sums wait in `state`.
 * Without FAST the products are made one by one, so that any driver can check the indices. */
#define BIG_ARGS
#define SLOTS 11
#define ARGS ARGPTR q; ARGPTR out_rows; ARGPTR state; ARGPTR k; ARGPTR v; ARGPTR ktail; ARGPTR vtail; ARGPTR q0; \
    ARGPTR pos0; ARGPTR tails; ARGPTR sinks; uint n_seqs; uint stride; uint ldq; uint gq; uint ldo; uint h; \
    uint h_kv; uint heads; uint head_tiles; uint tokens; uint tail_pages; uint n_tiles; uint from; uint keys; \
    uint n_part; uint width; uint has_ktail; uint has_vtail; uint has_sinks; uint window; float scale; float softcap;
#ifdef FAST
layout(constant_id = 3) const uint THREADS = 128u;
layout(local_size_x_id = 3) in;
#define GROUP_SIZE THREADS
#endif
#include "devices/vulkan/core/kv.glsl"
#ifndef FAST
layout(local_size_x = 128) in;
#endif
layout(constant_id = 0) const uint D = 128u;
layout(constant_id = 1) const uint KEYS = 32u;             /* of a turn: 16 or 32 */
layout(constant_id = 2) const uint AREAS = 2u;             /* one is read while the other is filled; or 1 */
#include "tiles.glsl"
#include "window.glsl"

const uint ROWS = GROUP / 2u, QUADS = D / 8u, PITCH = QUADS + 1u;      /* QUADS: of a row, eight halves each */
const uint AREA = 2u * KEYS * PITCH, LOADS = KEYS * QUADS / GROUP;     /* keys, then values; of a thread, each */
const uint SUM_PITCH = KEYS / 4u + 1u, TEAM_SUMS = 16u * SUM_PITCH;    /* the last quad: the two threads' maxima */
const uint PARTS = D / 16u, ALL_SUMS = PARTS + 1u;         /* of values; and, the last, of weights */
const uint SHRINK = KEYS / 8u;             /* where the factors are, behind the weights */
const float LOG2E = 1.44269504;
shared uvec4 s_tile[AREAS * AREA], s_sum[GROUP / 32u * TEAM_SUMS];
shared uint s_none[D * ROWS / 32u];        /* of a column, a bit for each row whose result is no number */
shared uint s_to[ROWS];                    /* where a row's result begins; all ones: no row */
shared float s_by[ROWS];                   /* one over its sum of weights */
#include "units.glsl"

/* This thread's row, with the one next to it. */
struct mine { uint at, lo, hi, head; float scale, cap, top; };  /* sees keys lo .. hi-1; top: what weights refer to */

uint two_halves(float a, float b)
{
#ifdef FAST
    return packFloat2x16(f16vec2(a, b));
#else
    return to_half(a) | to_half(b) << 16;
#endif
}

/* The larger of x and the other thread's. */
float of_both(uint at, float x)
{
    const uint half_row = LANE & 1u;
    s_sum[at + KEYS / 4u][half_row] = floatBitsToUint(x);
    team_wait();
    const float other = uintBitsToFloat(s_sum[at + KEYS / 4u][half_row ^ 1u]);
    return other > x ? other : x;
}

mine row_begin(tile o, uint kv_tile)
{
    const uint r = TEAM * 16u + LANE / 2u;
    const row_id id = row_of(o, kv_tile, r);
    mine a = mine(TEAM * TEAM_SUMS + LANE / 2u * SUM_PITCH, 0u, 0u, id.head, 0.0, args.softcap, NEG_INF);
    if (id.token >= 0) {
        a.lo = args.window > 0u && id.pos >= args.window ? id.pos - args.window + 1u : 0u;
        a.hi = id.pos + 1u;
    }
    s_to[r] = id.token >= 0 ? uint(id.token) * args.ldo + id.head * D : 0xffffffffu;
    return a;
}

/* A row's power of two brings its largest value to 1 .. 2. */
void load_queries(tile o, uint kv_tile, inout mine a, out LEFT queries[PARTS])
{
    const uint half_row = LANE & 1u, round = KEYS / 8u;
    const row_id id = row_of(o, kv_tile, TEAM * 16u + LANE / 2u);
    const uint from = (uint(max(id.token, 0)) * args.ldq + id.head * args.gq) / 4u + half_row * 2u;
    float x[D / 2u], top = 0.0;
    [[unroll]] for (uint i = 0u; i < D / 2u; i += 4u) {
        const vec4 four = uintBitsToFloat(id.token >= 0 ? ld4(P(0, q), from + i / 8u * 4u + i / 4u % 2u) : uvec4(0u));
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            x[i + e] = four[e];
            top = abs(four[e]) > top ? abs(four[e]) : top;
        }
    }
    const uint e = clamp(floatBitsToUint(of_both(a.at, top)) >> 23, 1u, 253u);
    const float by = uintBitsToFloat(254u - e << 23);
    a.scale = uintBitsToFloat(e << 23) * args.scale * (a.cap > 0.0 ? 1.0 : LOG2E);
    UNROLL for (uint k = 0u; k < PARTS; k += round) {
        [[unroll]] for (uint i = 0u; i < round; i++) {
            uvec4 w;
            [[unroll]] for (uint j = 0u; j < 4u; j++)
                w[j] = two_halves(x[8u * (k + i) + 2u * j] * by, x[8u * (k + i) + 2u * j + 1u] * by);
            s_sum[a.at + 2u * i + half_row] = w;
        }
        team_wait();
        [[unroll]] for (uint i = 0u; i < round; i++)
            left_load(queries[k + i], TEAM * TEAM_SUMS + 2u * i);
        team_wait();
    }
}

/* ---- keys and values to shared memory ---- */

/* All turns of a tile need these, read from memory once.  k, v: this thread's first eight values, of the part's first
 * key; all rows see the keys all_from .. all_to-1. */
struct plan { PTR k, v; uint from, tail_pages, all_from, all_to; };

plan plan_of(tile o, uint head)
{
    const uint unit = o.seq * args.h_kv + head, last = o.pos + o.count - 1u, mine_at = gl_LocalInvocationIndex * 4u;
    plan w;
    w.k = at(at_mul(P(3, k), unit, args.keys * D / 2u), mine_at);
    w.v = at(at_mul(P(4, v), unit, args.keys * D / 2u), mine_at);
    w.from = args.from;
    w.tail_pages = args.tail_pages;
    w.all_from = args.window > 0u && last >= args.window ? last - args.window + 1u : 0u;
    w.all_to = o.pos + 1u;
    return w;
}

/* Moves k and v to the exact rows, if the page has some. */
void exact_rows(tile o, uint head, uint base, inout PTR k, inout PTR v)
{
    const int page = ldi(P(9, tails), o.seq * args.stride + base / PAGE);
    const uint row = base % PAGE * D / 2u + gl_LocalInvocationIndex * 4u;
    if (page >= 0 && args.has_ktail != 0u)
        k = at(at_mul(P(5, ktail), uint(page) * args.h_kv + head, PAGE * D / 2u), row);
    if (page >= 0 && args.has_vtail != 0u)
        v = at(at_mul(P(6, vtail), uint(page) * args.h_kv + head, PAGE * D / 2u), row);
}

void fetch(tile o, plan w, uint head, uint base, out uvec4 k[LOADS], out uvec4 v[LOADS])
{
    PTR kfrom = at(w.k, (base - w.from) * D / 2u), vfrom = at(w.v, (base - w.from) * D / 2u);
    if (o.pos / PAGE - base / PAGE < w.tail_pages)
        exact_rows(o, head, base, kfrom, vfrom);
    [[unroll]] for (uint i = 0u; i < LOADS; i++)
        k[i] = ld4(kfrom, i * GROUP);
    [[unroll]] for (uint i = 0u; i < LOADS; i++)
        v[i] = ld4(vfrom, i * GROUP);
}

bool in_sight(uint key, uint pos)
{
    return key <= pos && (args.window == 0u || key + args.window > pos);
}

/* Some row does not see some of the keys from `base` on. */
bool is_partial(plan w, uint base)
{
    return base < w.all_from || base + KEYS > w.all_to;
}

void mark_none(tile o, uint key, uint column)
{
    for (uint r = 0u; r < ROWS && r / args.heads < o.count; r++)
        if (in_sight(key, o.pos + r / args.heads))
            atomicOr(s_none[column * (ROWS / 32u) + r / 32u], 1u << r % 32u);
}

/* Returns true if a half of these has all bits of an exponent. */
bool some_none(uvec4 v)
{
    const uvec4 w = (v & 0x7c007c00u) + 0x04000400u;
    return ((w.x | w.y | w.z | w.w) & 0x80008000u) != 0u;
}

/* Eight values of a key that some rows do not see, or none. */
uvec4 only_numbers(tile o, uint key, uint c, uvec4 v)
{
    if (key < window_begin(o) || key >= o.pos + o.count)
        return uvec4(0u);
    if (!some_none(v))
        return v;
    for (uint i = 0u; i < 8u; i++) {
        const uint bits = 0x7c00u << 16u * (i & 1u);
        if ((v[i / 2u] & bits) == bits) {
            mark_none(o, key, 8u * c + i);
            v[i / 2u] &= 0xffffu << 16u * (i & 1u ^ 1u);
        }
    }
    return v;
}

void put(tile o, plan w, uint area, uint base, uvec4 k[LOADS], uvec4 v[LOADS])
{
    const bool partial = is_partial(w, base);
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        const uint u = gl_LocalInvocationIndex + i * GROUP, r = u / QUADS, c = u % QUADS;
        s_tile[area + r * PITCH + c] = k[i];
        s_tile[area + (KEYS + r) * PITCH + c] = partial ? only_numbers(o, base + r, c, v[i]) : v[i];
    }
}

/* ---- a team's turn ---- */

void scores(uint area, LEFT queries[PARTS])
{
    SUMS s[KEYS / 16u];
    UNROLL for (uint n = 0u; n < KEYS / 16u; n++)
        s[n] = SUMS_ZERO;
    UNROLL for (uint k = 0u; k < PARTS; k++)
        UNROLL for (uint n = 0u; n < KEYS / 16u; n++) {
            RIGHT b;
            right_load(b, area + 16u * n * PITCH + 2u * k, true);
            s[n] = mat_product(queries[k], b, s[n]);
        }
    UNROLL for (uint n = 0u; n < KEYS / 16u; n++)
        sums_store(s[n], TEAM * TEAM_SUMS + 4u * n);
    team_wait();
}

float capped(float x, float cap)
{
    const float y = cap * LOG2E * tanh(clamp(x / cap, -15.0, 15.0));    /* tanh(15) is 1 */
    return is_nan(x) ? x : y;
}

float power(float x)
{
#ifdef FAST
    return exp2(x);
#else
    return is_nan(x) ? x : x == NEG_INF ? 0.0 : exp2(x);
#endif
}

/* Scores to weights; true: the row's sums must shrink. */
bool weigh(inout mine a, uint base, bool partial)
{
    const uint half_row = LANE & 1u;
    float x[KEYS / 2u], top = NEG_INF;
    [[unroll]] for (uint i = 0u; i < KEYS / 2u; i += 4u) {
        const uint key = base + i / 8u * 16u + half_row * 8u + i % 8u;
        const vec4 four = uintBitsToFloat(s_sum[a.at + (key - base) / 4u]) * a.scale;
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            x[i + e] = a.cap > 0.0 ? capped(four[e], a.cap) : four[e];
            if (partial)
                x[i + e] = key + e >= a.lo && key + e < a.hi ? x[i + e] : NEG_INF;
            top = x[i + e] > top ? x[i + e] : top;
        }
    }
    top = max(a.top, ceil(of_both(a.at, top)));
    const float by = top == a.top ? 1.0 : a.top == NEG_INF ? 0.0 : power(a.top - top),
                zero = top == NEG_INF ? 0.0 : top;
    a.top = top;
    [[unroll]] for (uint i = 0u; i < KEYS / 16u; i++) {
        uvec4 w;
        [[unroll]] for (uint j = 0u; j < 4u; j++)
            w[j] = two_halves(power(x[8u * i + 2u * j] - zero), power(x[8u * i + 2u * j + 1u] - zero));
        s_sum[a.at + 2u * i + half_row] = w;
    }
    s_sum[a.at + SHRINK + half_row] = uvec4(half_row == 0u ? two_halves(by, 0.0) : 0u, 0u, 0u, 0u);
    team_wait();
    return by != 1.0;
}

void shrink(inout SUMS sums[ALL_SUMS])
{
    LEFT a;
    left_load(a, TEAM * TEAM_SUMS + SHRINK);
    SUMS by = mat_product(a, RIGHT_ONES, SUMS_ZERO);       /* not const: that would be made again for each element */
    [[unroll]] for (uint j = 0u; j < ALL_SUMS; j++)
        [[unroll]] for (uint i = 0u; i < 8u; i++)      /* elements of a thread of 32 */
            sums[j][i] *= by[i];
}

void add_values(uint area, inout SUMS sums[ALL_SUMS])
{
    UNROLL for (uint k = 0u; k < KEYS / 16u; k++) {
        LEFT p;
        left_load(p, TEAM * TEAM_SUMS + 2u * k);
        UNROLL for (uint j = 0u; j < PARTS; j++) {
            RIGHT b;
            right_load(b, area + (KEYS + 16u * k) * PITCH + 2u * j, false);
            sums[j] = mat_product(p, b, sums[j]);
        }
        sums[PARTS] = mat_product(p, RIGHT_ONES, sums[PARTS]);
    }
}

/* ---- sums in memory ---- */

/* Row r of this tile in `state`: D sums, that of weights, what they refer to. */
uint state_at(uint u, uint r)
{
    return (u * ROWS + r) * args.width;
}

void sums_begin(uint u, bool carried, inout mine a, out SUMS sums[ALL_SUMS])
{
    const uint mine_at = TEAM * TEAM_SUMS;
    if (carried)
        a.top = ldf(P(2, state), state_at(u, TEAM * 16u + LANE / 2u) + D + 1u);
    UNROLL for (uint j = 0u; j < ALL_SUMS; j++) {
        sums[j] = SUMS_ZERO;
        if (!carried)
            continue;
        for (uint i = LANE; i < 256u; i += LANES)
            s_sum[mine_at + i / 16u * SUM_PITCH + i % 16u / 4u][i & 3u] =
                ld(P(2, state), state_at(u, TEAM * 16u + i / 16u) + min(16u * j + i % 16u, D));
        team_wait();
        sums_load(sums[j], mine_at);
        team_wait();
    }
}

/* A team's 16 columns from 16 j on: to the result, or to wait for the next part. */
void write_out(uint u, uint j, bool done)
{
    for (uint i = LANE; i < 256u; i += LANES) {
        const uint r = TEAM * 16u + i / 16u, column = 16u * j + i % 16u;
        float x = uintBitsToFloat(s_sum[TEAM * TEAM_SUMS + i / 16u * SUM_PITCH + i % 16u / 4u][i & 3u]);
        x = (s_none[column * (ROWS / 32u) + r / 32u] >> r % 32u & 1u) != 0u ? NOT_A_NUMBER : x;
        if (!done)
            stf(P(2, state), state_at(u, r) + column, x);
        else if (s_to[r] != 0xffffffffu)
            stf(P(1, out_rows), s_to[r] + column, x * s_by[r]);
    }
}

void finish(uint u, bool done, mine a, SUMS sums[ALL_SUMS])
{
    const uint r = TEAM * 16u + LANE / 2u;
    sums_store(sums[PARTS], TEAM * TEAM_SUMS);
    team_wait();
    float total = uintBitsToFloat(s_sum[a.at].x);
    if (!done && (LANE & 1u) == 0u) {
        stf(P(2, state), state_at(u, r) + D, total);
        stf(P(2, state), state_at(u, r) + D + 1u, a.top);
    }
    if (args.has_sinks != 0u)
        total += power(ldf(P(10, sinks), a.head) * LOG2E - a.top);
    s_by[r] = 1.0 / total;
    team_wait();
    UNROLL for (uint j = 0u; j < PARTS; j++) {
        sums_store(sums[j], TEAM * TEAM_SUMS);
        team_wait();
        write_out(u, j, done);
        team_wait();
    }
}

void main()
{
    const uint per = args.h_kv * args.head_tiles, group = group_at(), kv_tile = group % per,
               head = kv_tile / args.head_tiles;
    if (group >= args.n_tiles * per)
        return;
    for (uint i = gl_LocalInvocationIndex; i < D * ROWS / 32u; i += GROUP)
        s_none[i] = 0u;
    tile o;
    /* the last tiles of a sequence see most keys: they start first */
    if (!tile_at(P(7, q0), P(8, pos0), args.n_tiles - 1u - group / per, o))
        return;
    const uint last = o.pos + o.count, begin = max(args.from, window_begin(o) / KEYS * KEYS),
               end = min(args.from + args.keys, last);
    if (begin >= end)
        return;
    uvec4 k[LOADS], v[LOADS];
    const plan w = plan_of(o, head);
    fetch(o, w, head, begin, k, v);
    mine a = row_begin(o, kv_tile);
    LEFT queries[PARTS];
    SUMS sums[ALL_SUMS];
    load_queries(o, kv_tile, a, queries);
    sums_begin(group, window_begin(o) < args.from, a, sums);
    put(o, w, 0u, begin, k, v);
    uint area = 0u;
    [[dont_unroll]] for (uint base = begin; base < end; base += KEYS) {
        barrier();                 /* the area is filled, the other one and the team's weights are used up */
        const uint next = base + KEYS < end ? base + KEYS : base;
        fetch(o, w, head, next, k, v);
        scores(area, queries);
        const bool grown = weigh(a, base, is_partial(w, base));
        if (any_of(grown))
            shrink(sums);
        add_values(area, sums);
        if (AREAS == 1u)
            barrier();
        area = AREAS == 1u ? 0u : AREA - area;
        put(o, w, area, next, k, v);
    }
    barrier();
    finish(group, last == end, a, sums);
}
