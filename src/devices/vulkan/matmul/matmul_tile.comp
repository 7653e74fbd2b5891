#version 450
/* matmul for many rows: a workgroup makes 64 outputs of 32 rows; weights and activations pass through shared memory 32
 * values of the inner dimension at a time; a thread makes four outputs of four rows.  w begins at output out_from. */
#define SLOTS 4
#define ARGS ARGPTR w; ARGPTR scale; ARGPTR x; ARGPTR y; uint n_in; uint n_out; uint row_bytes; uint ldx; uint ldy; \
    uint rows; uint has_scale; uint out_from;
#include "devices/vulkan/core/kv.glsl"
#include "wt.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint T = 0u;
const uint TO = 64u, TR = 32u, STEP = 32u;
shared float ws[STEP * (TO + 1u)];
shared float xs[STEP * (TR + 1u)];

void load_weights(uint k0, uint o0)
{
    for (uint u = gl_LocalInvocationIndex; u < TO * STEP / 8u; u += GROUP) {
        const uint o = u / (STEP / 8u), c = u % (STEP / 8u), k = k0 + 8u * c;
        float w[8] = float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        uint b;
        if (o0 + o < args.n_out) {
            PTR row = at_bytes(P(0, w), o0 + o - args.out_from, args.row_bytes, b);
            if (k + 8u <= args.n_in)
                wt8(T, row, b, k / 8u, w);
            else if (wt_wide(T))
                for (uint e = 0u; e < 8u && k + e < args.n_in; e++)
                    w[e] = wt1(T, row, b, k + e);
        }
        for (uint e = 0u; e < 8u; e++)
            ws[(8u * c + e) * (TO + 1u) + o] = w[e];
    }
}

void main()
{
    const uint t = gl_LocalInvocationIndex, o0 = args.out_from + gl_WorkGroupID.x * TO, r0 = gl_WorkGroupID.y * TR,
               to = t % 16u * 4u, tr = t / 16u * 4u;
    PTR x = P(2, x), y = P(3, y);
    float acc[16];
    [[unroll]] for (uint i = 0u; i < 16u; i++)
        acc[i] = 0.0;
    for (uint k0 = 0u; k0 < args.n_in; k0 += STEP) {
        barrier();
        load_weights(k0, o0);
        for (uint u = t; u < TR * STEP; u += GROUP) {
            const uint r = u / STEP, k = u % STEP;
            xs[k * (TR + 1u) + r] =
                r0 + r < args.rows && k0 + k < args.n_in ? ldf(x, (r0 + r) * args.ldx + k0 + k) : 0.0;
        }
        barrier();
        for (uint k = 0u; k < STEP; k++) {
            float w[4], v[4];
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                w[i] = ws[k * (TO + 1u) + to + i];
                v[i] = xs[k * (TR + 1u) + tr + i];
            }
            [[unroll]] for (uint i = 0u; i < 16u; i++)
                acc[i] += w[i & 3u] * v[i >> 2];
        }
    }
    const float scale = args.has_scale != 0u ? ldf(P(1, scale), 0u) : 1.0;
    [[unroll]] for (uint i = 0u; i < 16u; i++)
        if (o0 + to + (i & 3u) < args.n_out && r0 + tr + (i >> 2) < args.rows)
            stf(y, (r0 + tr + (i >> 2)) * args.ldy + o0 + to + (i & 3u), acc[i] * scale);
}
