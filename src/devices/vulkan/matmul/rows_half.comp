#version 450
/* Rows of weights, or of activations (type f32), as halves for matmul_matrix: a workgroup per row, which is multiplied by
 * the power of two that brings its largest value to 2^14 .. 2^15, so that no range of the model's values is lost; `scale`
 * gets the inverse.  Rows of halves have `chunks` times eight values, zeros behind n_in.
 * KEEP chunks of a thread stay in registers between finding the largest value and writing; others are decoded twice.
 * SCALES: that of a row of weights never changes; it is found once, and known from then on. */
#define SLOTS 4
#define WT_GRID P(3, grid)
#define ARGS ARGPTR from; ARGPTR to; ARGPTR scale; ARGPTR grid; uint n_in; uint row_bytes; uint chunks; uint n;
#include "devices/vulkan/core/kv.glsl"
#include "wt.glsl"
#include "devices/vulkan/core/reduce.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint T = 0u;
layout(constant_id = 1) const uint KEEP = 4u;
layout(constant_id = 2) const uint SCALES = 0u;
const uint FIND_ONLY = 1u, KNOWN = 2u;     /* 0: found and used */

void load8(PTR row, uint b, uint c, out float v[8])
{
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        v[i] = 0.0;
    if (8u * c + 8u <= args.n_in)
        wt8(T, row, b, c, v);
    else if (wt_wide(T))
        for (uint i = 0u; i < 8u && 8u * c + i < args.n_in; i++)
            v[i] = wt1(T, row, b, 8u * c + i);
}

float largest(float v[8])
{
    float top = 0.0;
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        top = max(top, abs(v[i]));
    return top;
}

uint two_halves(float a, float b)
{
    return HALVES != 0u ? packHalf2x16(vec2(a, b)) : to_half(a) | to_half(b) << 16;
}

void store8(uint r, uint c, float v[8], float by)
{
    uvec4 w;
    [[unroll]] for (uint i = 0u; i < 4u; i++)
        w[i] = two_halves(v[2u * i] * by, v[2u * i + 1u] * by);
    st4(P(1, to), r * args.chunks + c, w);
}

void main()
{
    const uint r = group_at(), t = gl_LocalInvocationIndex;
    float kept[8u * KEEP], v[8], top = 0.0;
    uint b;
    if (r >= args.n)
        return;
    const PTR row = at_bytes(P(0, from), r, args.row_bytes, b);
    if (SCALES == KNOWN) {
        const float by = uintBitsToFloat(254u - (ld(P(2, scale), r) >> 23) << 23);
        for (uint c = t; c < args.chunks; c += GROUP) {
            load8(row, b, c, v);
            store8(r, c, v, by);
        }
        return;
    }
    [[unroll]] for (uint i = 0u; i < KEEP; i++) {
        load8(row, b, t + i * GROUP, v);
        top = max(top, largest(v));
        [[unroll]] for (uint e = 0u; e < 8u; e++)
            kept[8u * i + e] = v[e];
    }
    for (uint c = t + KEEP * GROUP; c < args.chunks; c += GROUP) {
        load8(row, b, c, v);
        top = max(top, largest(v));
    }
    /* a row of zeros, or of the smallest numbers: factor and inverse stay normal */
    const uint exponent = max(floatBitsToUint(group_max(top)) >> 23, 15u);
    const float by = uintBitsToFloat(268u - exponent << 23);
    if (t == 0u)
        stf(P(2, scale), r, uintBitsToFloat(exponent - 14u << 23));
    if (SCALES == FIND_ONLY)
        return;
    [[unroll]] for (uint i = 0u; i < KEEP; i++) {
        [[unroll]] for (uint e = 0u; e < 8u; e++)
            v[e] = kept[8u * i + e];
        if (t + i * GROUP < args.chunks)
            store8(r, t + i * GROUP, v, by);
    }
    for (uint c = t + KEEP * GROUP; c < args.chunks; c += GROUP) {
        load8(row, b, c, v);
        store8(r, c, v, by);
    }
}
