#version 450
/* matmul for many rows in f32: a workgroup makes 64 outputs of 64 rows; weights and activations pass through shared memory
 * 16 values of the inner dimension at a time; a thread makes eight outputs of four rows.  w begins at output out_from. */
#define SLOTS 5
#define WT_GRID P(4, grid)
#define ARGS ARGPTR w; ARGPTR scale; ARGPTR x; ARGPTR y; ARGPTR grid; uint n_in; uint n_out; uint row_bytes; uint ldx; uint ldy; \
    uint rows; uint has_scale; uint out_from;
#include "devices/vulkan/core/kv.glsl"
#include "wt.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint T = 0u;
layout(constant_id = 1) const uint X_VEC = 0u;             /* rows of x begin at multiples of 16 bytes */
const uint TO = 64u, TR = 64u, STEP = 16u, PITCH = 17u;    /* PITCH: vectors of four outputs or rows, and one between */
shared vec4 ws[STEP * PITCH];
shared vec4 xs[STEP * PITCH];

/* Values k .. k+7 of output o (from out_from on), zeros outside. */
void fetch_w(uint o, uint k, out float v[8])
{
    uint b;
    [[unroll]] for (uint e = 0u; e < 8u; e++)
        v[e] = 0.0;
    if (o >= args.n_out)
        return;
    const PTR row = at_bytes(P(0, w), o - args.out_from, args.row_bytes, b);
    if (k + 8u <= args.n_in)
        wt8(T, row, b, k / 8u, v);
    else if (wt_wide(T))
        for (uint e = 0u; e < 8u && k + e < args.n_in; e++)
            v[e] = wt1(T, row, b, k + e);
}

void fetch_x(uint r, uint k, out float v[8])
{
    const uint from = r * args.ldx + k;
    if (X_VEC != 0u && k + 8u <= args.n_in && r < args.rows) {
        const vec4 lo = uintBitsToFloat(ld4(P(2, x), from / 4u)), hi = uintBitsToFloat(ld4(P(2, x), from / 4u + 1u));
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            v[e] = lo[e];
            v[4u + e] = hi[e];
        }
        return;
    }
    [[unroll]] for (uint e = 0u; e < 8u; e++)
        v[e] = r < args.rows && k + e < args.n_in ? ldf(P(2, x), from + e) : 0.0;
}

void main()
{
    const uint t = gl_LocalInvocationIndex, o0 = args.out_from + gl_WorkGroupID.x * TO, r0 = gl_WorkGroupID.y * TR,
               mine = t % 64u, k8 = t / 64u * 8u, to = t % 8u, tr = t / 8u;
    vec4 acc[8];                           /* outputs 4 to .. and 32 + 4 to .. of rows 4 tr .. */
    float w[8], x[8];
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        acc[i] = vec4(0.0);
    fetch_w(o0 + mine, k8, w);
    fetch_x(r0 + mine, k8, x);
    for (uint k0 = 0u; k0 < args.n_in; k0 += STEP) {
        barrier();
        [[unroll]] for (uint e = 0u; e < 8u; e++) {
            ws[(k8 + e) * PITCH + mine / 4u][mine & 3u] = w[e];
            xs[(k8 + e) * PITCH + mine / 4u][mine & 3u] = x[e];
        }
        barrier();
        fetch_w(o0 + mine, k0 + STEP + k8, w);             /* on their way meanwhile */
        fetch_x(r0 + mine, k0 + STEP + k8, x);
        [[unroll]] for (uint k = 0u; k < STEP; k++) {
            const vec4 lo = ws[k * PITCH + to], hi = ws[k * PITCH + 8u + to], v = xs[k * PITCH + tr];
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                acc[i] += lo * v[i];
                acc[4u + i] += hi * v[i];
            }
        }
    }
    const float scale = args.has_scale != 0u ? ldf(P(1, scale), 0u) : 1.0;
    [[unroll]] for (uint i = 0u; i < 32u; i++) {
        const uint o = o0 + i / 16u * 32u + 4u * to + (i & 3u), r = r0 + 4u * tr + i / 4u % 4u;
        if (o < args.n_out && r < args.rows)
            stf(P(3, y), r * args.ldy + o, acc[i / 4u][i & 3u] * scale);
    }
}
