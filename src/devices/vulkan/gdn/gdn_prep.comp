#version 450
/* gdn_chunk, first pass: what does not depend on the state, a workgroup per slot (chunk) and value head, all at once:
 *     A[t][i] = beta_t e^(g_(i+1) + .. + g_t) <k_t, k_i>, i < t     T = (I + A)^-1
 *     P[t][i] = e^(g_(i+1) + .. + g_t) <q_t, k_i> scale, i <= t
 * to the slot: T diag(beta), P; e^(g_0 + .. + g_t), the same times scale, e^(g_(t+1) + .. + g_last).
 * Logarithms of gates are summed from i on: no difference of large sums. */
#define SLOTS 8
#define ARGS ARGPTR q; ARGPTR k; ARGPTR g; ARGPTR beta; ARGPTR slots; ARGPTR q0; ARGPTR pos0; ARGPTR prompt; \
    uint n_seqs; uint n_slots; uint hk; uint hv; uint interleaved; uint ldq; uint ldk; float scale;
#include "devices/vulkan/core/kv.glsl"
layout(constant_id = 0) const uint DK = 128u;
layout(constant_id = 1) const uint THREADS = 128u;
layout(constant_id = 2) const uint VEC = 0u;               /* q and k in steps of 16 bytes */
layout(constant_id = 3) const uint ROWS = 2u;              /* of products, with four columns each, that a thread makes at a time */
layout(local_size_x_id = 1) in;
#include "devices/vulkan/gdn/gdn_chunk.glsl"
const uint PITCH = CHUNK + 1u, TILES = CHUNK / ROWS * CHUNK / 4u;
shared float s_a[CHUNK * PITCH], s_p[CHUNK * PITCH], s_t[CHUNK * PITCH], s_g[CHUNK], s_beta[CHUNK];

/* The chunk of a slot; false: none. */
bool find(uint slot, out chunk c)
{
    for (uint s = 0u; s < args.n_seqs; s++) {
        const uint first = first_slot(P(5, q0), s);
        if (slot < first || slot >= first + chunks_of(P(5, q0), P(6, pos0), P(7, prompt), s))
            continue;
        c = chunk_of(P(5, q0), P(6, pos0), s, slot - first);
        return true;
    }
    return false;
}

/* Products of rows with rows. */
void products(chunk c, uint kh, uint tile)
{
    const uint r0 = tile / (CHUNK / 4u) * ROWS, i0 = tile % (CHUNK / 4u) * 4u;
    uint k_at[4], x_at[ROWS], q_at[ROWS];
    float a[ROWS * 4u], p[ROWS * 4u];
    if (i0 > r0 + ROWS - 1u)
        return;
    [[unroll]] for (uint i = 0u; i < 4u; i++)
        k_at[i] = token(c, i0 + i) * args.ldk + kh * DK;
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        x_at[r] = token(c, r0 + r) * args.ldk + kh * DK;
        q_at[r] = token(c, r0 + r) * args.ldq + kh * DK;
    }
    [[unroll]] for (uint i = 0u; i < ROWS * 4u; i++)
        a[i] = p[i] = 0.0;
    for (uint e = 0u; e < DK; e += 4u) {
        vec4 k[4], x[ROWS], y[ROWS];
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            k[i] = quad(P(1, k), k_at[i] + e);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            x[r] = quad(P(1, k), x_at[r] + e);
            y[r] = quad(P(0, q), q_at[r] + e);
        }
        [[unroll]] for (uint i = 0u; i < ROWS * 4u; i++) {
            a[i] += dot(x[i / 4u], k[i & 3u]);
            p[i] += dot(y[i / 4u], k[i & 3u]);
        }
    }
    [[unroll]] for (uint i = 0u; i < ROWS * 4u; i++) {
        s_a[(r0 + i / 4u) * PITCH + i0 + (i & 3u)] = a[i];
        s_p[(r0 + i / 4u) * PITCH + i0 + (i & 3u)] = p[i];
    }
}

/* Column i of A and of P: the gates between its token and the rows'. */
void fade(uint i)
{
    float sum = 0.0;
    s_p[i * PITCH + i] *= args.scale;
    for (uint t = i + 1u; t < CHUNK; t++) {
        sum += s_g[t];
        const float by = exp(sum);
        s_a[t * PITCH + i] *= by * s_beta[t];
        s_p[t * PITCH + i] *= by * args.scale;
    }
}

/* Column j of T, from above: its own rows only. */
void solve(uint j)
{
    for (uint t = 0u; t < CHUNK; t++) {
        float x = t == j ? 1.0 : 0.0;
        for (uint i = j; i < t; i++)
            x -= s_a[t * PITCH + i] * s_t[i * PITCH + j];
        s_t[t * PITCH + j] = x;
    }
}

void gates(PTR slot, uint t)
{
    float from = 0.0, left = 0.0;
    for (uint i = 0u; i < CHUNK; i++) {
        from += i <= t ? s_g[i] : 0.0;
        left += i > t ? s_g[i] : 0.0;
    }
    stf(slot, AT_FROM + t, exp(from));
    stf(slot, AT_SCALED + t, exp(from) * args.scale);
    stf(slot, AT_LEFT + t, exp(left));
}

void main()
{
    const uint t = gl_LocalInvocationIndex, unit = group_at(), head = unit % args.hv, number = unit / args.hv,
               kh = args.interleaved != 0u ? head / (args.hv / args.hk) : head % args.hk;
    chunk c;
    if (number >= args.n_slots || !find(number, c))
        return;
    PTR slot = at_mul(P(4, slots), unit, SLOT_WORDS);
    for (uint r = t; r < CHUNK; r += THREADS) {
        const uint row = token(c, r) * args.hv + head;
        s_g[r] = is_token(c, r) ? ldf(P(2, g), row) : 0.0;
        s_beta[r] = is_token(c, r) ? ldf(P(3, beta), row) : 0.0;
    }
    for (uint tile = t; tile < TILES; tile += THREADS)
        products(c, kh, tile);
    barrier();
    for (uint i = t; i < CHUNK; i += THREADS) {
        fade(i);
        gates(slot, i);
    }
    barrier();
    for (uint j = t; j < CHUNK; j += THREADS)
        solve(j);
    barrier();
    for (uint i = t; i < SQUARE; i += THREADS) {
        const uint row = i / CHUNK, col = i % CHUNK;
        stf(slot, i, col <= row ? s_t[row * PITCH + col] * s_beta[col] : 0.0);
        stf(slot, AT_P + i, col <= row ? s_p[row * PITCH + col] : 0.0);
    }
}
