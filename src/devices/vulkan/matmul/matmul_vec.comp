#version 450
/* matmul and matmul_id for few rows: a workgroup makes OUTS outputs of ROWS activation rows; its threads share the row's
 * values, eight at a time.  With ids (ROWS = 1) output row r uses expert ids[r] and activation row r / x_div.
 * w begins at weight row row_from (of n_out * n_expert); outputs of rows outside row_from .. row_to-1 are another
 * window's. */
#define SLOTS 6
#define WT_GRID P(5, grid)
#define ARGS ARGPTR w; ARGPTR scale; ARGPTR x; ARGPTR y; ARGPTR ids; ARGPTR grid; uint n_in; uint n_out; uint row_bytes; uint ldx; \
    uint ldy; uint rows; uint x_div; uint n_scale; uint row_from; uint row_to; uint out_from;
#include "devices/vulkan/core/kv.glsl"
#include "wt.glsl"
#include "devices/vulkan/core/reduce.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint T = 0u;
layout(constant_id = 1) const uint ROWS = 1u;
layout(constant_id = 2) const uint OUTS = 4u;
layout(constant_id = 3) const uint HAS_IDS = 0u;
layout(constant_id = 4) const uint X_VEC = 0u;             /* rows of x begin at multiples of 16 bytes */
const uint SUMS = OUTS * ROWS;
#ifdef FAST
shared float vec_part[SUMS * 32u];                  /* a workgroup has at most 32 subgroups */
#endif

void load8(PTR x, uint i, out float v[8])
{
    if (X_VEC != 0u) {
        const vec4 a = uintBitsToFloat(ld4(x, i / 4u)), b = uintBitsToFloat(ld4(x, i / 4u + 1u));
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            v[e] = a[e];
            v[4u + e] = b[e];
        }
        return;
    }
    [[unroll]] for (uint e = 0u; e < 8u; e++)
        v[e] = ldf(x, i + e);
}

void store(uint o, uint m, float sum, uint expert, uint r0, uint from)
{
    const uint out_at = from + o;
    const float scale = args.n_scale == 0u ? 1.0 : ldf(P(1, scale), args.n_scale > 1u ? expert : 0u);
    if (out_at < args.n_out && r0 + m < args.rows && expert * args.n_out + out_at >= args.row_from &&
        expert * args.n_out + out_at < args.row_to)
        stf(P(3, y), (r0 + m) * args.ldy + out_at, sum * scale);
}

/* One row times weights of signed bytes, 16 codes a load: rows begin at multiples of 16 bytes. */
void split_row(PTR x, uint x_at, PTR row[OUTS], inout float acc[SUMS])
{
    for (uint c = gl_LocalInvocationIndex; c < args.n_in / 16u; c += GROUP) {
        uvec4 q[OUTS];
        float d[OUTS], lo[8], hi[8];
        [[unroll]] for (uint o = 0u; o < OUTS; o++) {
            q[o] = ld4(row[o], c);
            d[o] = half_of(ld(row[o], (args.n_in + 2u * (c / 2u)) / 4u) >> 8u * (c & 2u) & 0xffffu);
        }
        load8(x, x_at + 16u * c, lo);
        load8(x, x_at + 16u * c + 8u, hi);
        [[unroll]] for (uint o = 0u; o < OUTS; o++) {
            float dot = 0.0;
            [[unroll]] for (uint i = 0u; i < 16u; i++) {
                const float v = float(bitfieldExtract(int(q[o][i / 4u]), int(8u * (i & 3u)), 8));
                dot += v * (i < 8u ? lo[i & 7u] : hi[i & 7u]);
            }
            acc[o] += dot * d[o];
        }
    }
}

void main()
{
    const uint t = gl_LocalInvocationIndex, r0 = gl_WorkGroupID.y * ROWS, from = args.out_from + gl_WorkGroupID.x * OUTS;
    const uint expert = HAS_IDS != 0u ? ld(P(4, ids), r0) : 0u, first = expert * args.n_out + from;
    PTR x = P(2, x);
    float acc[SUMS], v[8], w[8];
    uint b[OUTS];
    PTR row[OUTS];
    [[unroll]] for (uint o = 0u; o < OUTS; o++) {
        /* rows that this workgroup must not store are read as its window's first: nothing outside is touched */
        const uint g = first + o, mine = from + o < args.n_out && g >= args.row_from && g < args.row_to ? g : args.row_from;
        row[o] = at_bytes(P(0, w), mine - args.row_from, args.row_bytes, b[o]);
        [[unroll]] for (uint m = 0u; m < ROWS; m++)
            acc[o * ROWS + m] = 0.0;
    }
    if (wt_bytes(T) && ROWS == 1u)
        split_row(x, r0 / args.x_div * args.ldx, row, acc);
    for (uint c = t; c < args.n_in / 8u && !(wt_bytes(T) && ROWS == 1u); c += GROUP) {
        float xs[ROWS * 8u];
        [[unroll]] for (uint m = 0u; m < ROWS; m++) {
            load8(x, (min(r0 + m, args.rows - 1u) / args.x_div) * args.ldx + 8u * c, v);
            [[unroll]] for (uint e = 0u; e < 8u; e++)
                xs[8u * m + e] = v[e];
        }
        [[unroll]] for (uint o = 0u; o < OUTS; o++) {
            wt8(T, row[o], b[o], c, w);
            [[unroll]] for (uint m = 0u; m < ROWS; m++)
                [[unroll]] for (uint e = 0u; e < 8u; e++)
                    acc[o * ROWS + m] += w[e] * xs[8u * m + e];
        }
    }
    for (uint k = args.n_in / 8u * 8u + t; k < args.n_in && wt_wide(T); k += GROUP)
        [[unroll]] for (uint o = 0u; o < OUTS; o++)
            [[unroll]] for (uint m = 0u; m < ROWS; m++)
                acc[o * ROWS + m] +=
                    wt1(T, row[o], b[o], k) * ldf(x, (min(r0 + m, args.rows - 1u) / args.x_div) * args.ldx + k);
#ifdef FAST
    [[unroll]] for (uint i = 0u; i < OUTS * ROWS; i++) {
        const float s = subgroupAdd(acc[i]);
        if (subgroupElect())
            vec_part[i * 32u + gl_SubgroupID] = s;
    }
    barrier();
    if (t < OUTS * ROWS) {
        float sum = 0.0;
        for (uint i = 0u; i < gl_NumSubgroups; i++)
            sum += vec_part[t * 32u + i];
        store(t / ROWS, t % ROWS, sum, expert, r0, from);
    }
#else
    for (uint i = 0u; i < OUTS * ROWS; i++) {
        const float sum = group_sum(acc[i]);
        if (t == 0u)
            store(i / ROWS, i % ROWS, sum, expert, r0, from);
    }
#endif
}
