#version 450
/* gdn_chunk, second pass: a workgroup per COLS value columns of a head of a sequence, chunk after chunk.  With S the state
 * before a chunk, [dk][COLS] in shared memory, and what gdn_prep made of the chunk:
 *     R = V - e^G (K S)     U = (T diag(beta)) R     o = e^G (Q S) scale + P U     S <- e^G_last S + K^T (e^(G_last - G) U)
 * A thread makes ROWS rows of 4 QUADS columns of R, U and o, and of S eight rows at a time. */
#define SLOTS 12
#define ARGS ARGPTR q; ARGPTR k; ARGPTR v; ARGPTR state; ARGPTR copy; ARGPTR o; ARGPTR slots; ARGPTR q0; ARGPTR pos0; \
    ARGPTR prompt; ARGPTR slot_in; ARGPTR slot_out; uint hk; uint hv; uint dv; uint interleaved; uint ldq; uint ldk; \
    uint ldv; uint slot_stride;
#include "devices/vulkan/core/kv.glsl"
layout(constant_id = 0) const uint DK = 128u;
layout(constant_id = 1) const uint THREADS = 128u;         /* CHUNK / ROWS * COLS / (4 QUADS) */
layout(constant_id = 2) const uint VEC = 0u;               /* q, k and v in steps of 16 bytes */
layout(constant_id = 3) const uint COLS = 32u;
layout(constant_id = 4) const uint ROWS = 2u;
layout(constant_id = 5) const uint QUADS = 1u;
layout(constant_id = 6) const bool BF16 = false;           /* the state's type */
layout(local_size_x_id = 1) in;
#include "devices/vulkan/gdn/gdn_chunk.glsl"
const uint LANES = 1u;
#include "devices/vulkan/gdn/state.glsl"
const uint WIDE = COLS / 4u, SUMS = ROWS * QUADS, ACROSS = WIDE / QUADS, TILES = DK / 8u * ACROSS;
shared vec4 s_state[DK * WIDE], s_r[CHUNK * WIDE], s_u[CHUNK * WIDE];

/* Columns 4 c .. of the workgroup's; those behind dv are never stored. */
uint column(uint c)
{
    return gl_WorkGroupID.x * COLS + 4u * c;
}

/* K S and Q S. */
void through_state(uint k_at[ROWS], uint q_at[ROWS], uint c0, inout vec4 ks[SUMS], inout vec4 qs[SUMS])
{
    for (uint e = 0u; e < DK; e += 4u) {
        vec4 k[ROWS], q[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            k[r] = quad(P(1, k), k_at[r] + e);
            q[r] = quad(P(0, q), q_at[r] + e);
        }
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            [[unroll]] for (uint c = 0u; c < QUADS; c++) {
                const vec4 s = s_state[(e + i) * WIDE + c0 + c];
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    ks[r * QUADS + c] += k[r][i] * s;
                    qs[r * QUADS + c] += q[r][i] * s;
                }
            }
    }
}

/* sum += M x, of M's rows r0 .. the columns up to the diagonal, and zeros behind; M at word `from` of the slot. */
#define TRIANGLE(name, x) \
    void name(PTR slot, uint from, uint r0, uint c0, inout vec4 sum[SUMS]) \
    { \
        for (uint i = 0u; i < r0 + ROWS; i += 4u) { \
            vec4 m[ROWS]; \
            [[unroll]] for (uint r = 0u; r < ROWS; r++) \
                m[r] = uintBitsToFloat(ld4(slot, (from + (r0 + r) * CHUNK + i) / 4u)); \
            [[unroll]] for (uint j = 0u; j < 4u; j++) \
                [[unroll]] for (uint c = 0u; c < QUADS; c++) { \
                    const vec4 y = x[(i + j) * WIDE + c0 + c]; \
                    [[unroll]] for (uint r = 0u; r < ROWS; r++) \
                        sum[r * QUADS + c] += m[r][j] * y; \
                } \
        } \
    }
TRIANGLE(times_r, s_r)
TRIANGLE(times_u, s_u)

/* Eight rows of S; u has been multiplied by e^(G_last - G). */
void state_tile(chunk c, uint kh, uint tile, float last, bool rounded)
{
    const uint d0 = tile / ACROSS * 8u, c0 = tile % ACROSS * QUADS;
    vec4 sum[8u * QUADS];
    [[unroll]] for (uint i = 0u; i < 8u * QUADS; i++)
        sum[i] = last * s_state[(d0 + i / QUADS) * WIDE + c0 + i % QUADS];
    for (uint t = 0u; t < CHUNK; t++) {
        const uint k_at = token(c, t) * args.ldk + kh * DK + d0;
        const vec4 lo = quad(P(1, k), k_at), hi = quad(P(1, k), k_at + 4u);
        [[unroll]] for (uint q = 0u; q < QUADS; q++) {
            const vec4 u = s_r[t * WIDE + c0 + q];
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                sum[i * QUADS + q] += lo[i] * u;
                sum[(4u + i) * QUADS + q] += hi[i] * u;
            }
        }
    }
    [[unroll]] for (uint i = 0u; i < 8u * QUADS; i++) {
        if (rounded)
            [[unroll]] for (uint j = 0u; j < 4u; j++)
                sum[i][j] = bf16_of(to_bf16(sum[i][j]));
        s_state[(d0 + i / QUADS) * WIDE + c0 + i % QUADS] = sum[i];
    }
}

void values(chunk c, uint head, PTR slot, uint r0, uint c0, vec4 ks[SUMS])
{
    [[unroll]] for (uint i = 0u; i < SUMS; i++) {
        const uint r = r0 + i / QUADS, q = c0 + i % QUADS;
        const vec4 v = quad(P(2, v), token(c, r) * args.ldv + head * args.dv + min(column(q), args.dv - 4u));
        s_r[r * WIDE + q] = is_token(c, r) ? v - ldf(slot, AT_FROM + r) * ks[i] : vec4(0.0);
    }
}

void outputs(chunk c, uint head, uint r0, uint c0, vec4 o[SUMS])
{
    [[unroll]] for (uint i = 0u; i < SUMS; i++) {
        const uint r = r0 + i / QUADS, col = column(c0 + i % QUADS);
        if (is_token(c, r) && col < args.dv)
            [[unroll]] for (uint j = 0u; j < 4u; j++)
                stf(P(5, o), (token(c, r) * args.hv + head) * args.dv + col + j, o[i][j]);
    }
}

void one_chunk(chunk c, uint head, uint kh, PTR slot, bool page_ends)
{
    const uint t = gl_LocalInvocationIndex, r0 = t / ACROSS * ROWS, c0 = t % ACROSS * QUADS;
    vec4 ks[SUMS], o[SUMS], u[SUMS];
    uint k_at[ROWS], q_at[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        k_at[r] = token(c, r0 + r) * args.ldk + kh * DK;
        q_at[r] = token(c, r0 + r) * args.ldq + kh * DK;
    }
    [[unroll]] for (uint i = 0u; i < SUMS; i++)
        ks[i] = o[i] = u[i] = vec4(0.0);
    through_state(k_at, q_at, c0, ks, o);
    values(c, head, slot, r0, c0, ks);
    barrier();
    times_r(slot, 0u, r0, c0, u);
    [[unroll]] for (uint i = 0u; i < SUMS; i++)
        s_u[(r0 + i / QUADS) * WIDE + c0 + i % QUADS] = u[i];
    barrier();                                             /* all have read R: its place is free */
    [[unroll]] for (uint i = 0u; i < SUMS; i++) {
        s_r[(r0 + i / QUADS) * WIDE + c0 + i % QUADS] = ldf(slot, AT_LEFT + r0 + i / QUADS) * u[i];
        o[i] *= ldf(slot, AT_SCALED + r0 + i / QUADS);
    }
    times_u(slot, AT_P, r0, c0, o);
    outputs(c, head, r0, c0, o);
    barrier();
    for (uint tile = t; tile < TILES; tile += THREADS)
        state_tile(c, kh, tile, ldf(slot, AT_FROM + CHUNK - 1u), BF16 && page_ends);
    barrier();
}

/* Value i of the workgroup's columns, one after the other: which of its column, where in memory, where in s_state. */
uint state_word(uint i, uint head)
{
    return (head * args.dv + min(gl_WorkGroupID.x * COLS + i / DK, args.dv - 1u)) * DK + i % DK;
}

void load_state(uint s, uint head, int from, int to)
{
    PTR slot = at_mul(P(3, state), uint(to), args.slot_stride),
        copy = at_mul(P(4, copy), s, args.hv * args.dv * DK / (BF16 ? 2u : 1u));
    for (uint i = gl_LocalInvocationIndex; i < COLS * DK; i += THREADS) {
        const uint w = state_word(i, head);
        s_state[i % DK * WIDE + i / DK / 4u][i / DK & 3u] = from == to ? state_at(slot, w) : state_at(copy, w);
    }
}

void store_state(uint head, int to)
{
    PTR slot = at_mul(P(3, state), uint(to), args.slot_stride);
    for (uint i = gl_LocalInvocationIndex * (BF16 ? 2u : 1u); i < COLS * DK; i += THREADS * (BF16 ? 2u : 1u)) {
        const uint c = i / DK, at = i % DK * WIDE + c / 4u;
        if (gl_WorkGroupID.x * COLS + c < args.dv)
            state_put(slot, state_word(i, head), s_state[at][c & 3u], s_state[at + (BF16 ? WIDE : 0u)][c & 3u]);
    }
}

void main()
{
    const uint head = gl_WorkGroupID.y, s = gl_WorkGroupID.z,
               kh = args.interleaved != 0u ? head / (args.hv / args.hk) : head % args.hk;
    PTR q0 = P(7, q0), pos0 = P(8, pos0);
    const uint n = chunks_of(q0, pos0, P(9, prompt), s), first = first_slot(q0, s), pos = ld(pos0, s);
    const int from = ldi(P(10, slot_in), s), to = ldi(P(11, slot_out), s);
    if (n == 0u)
        return;
    load_state(s, head, from, to);
    barrier();
    for (uint i = 0u; i < n; i++) {
        const chunk c = chunk_of(q0, pos0, s, i);
        const bool page_ends = (pos + c.end - ld(q0, s)) % PAGE == 0u;
        one_chunk(c, head, kh, at_mul(P(6, slots), (first + i) * args.hv + head, SLOT_WORDS), page_ends);
    }
    store_state(head, to);
}
