#version 450
/* pages_pack: the corrected mean and the bytes of a unit (pages.glsl); a workgroup per unit, a column per thread. */
#define SLOTS 5
#define ARGS ARGPTR pages; ARGPTR work; ARGPTR states; ARGPTR books; ARGPTR dst; uint n; uint first; uint h; uint groups; \
    uint page_words; uint head_bytes; uint row_bytes;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint K = 3u;                 /* bits of a symbol */
layout(constant_id = 1) const uint BOOK = 0u;
const uint FMT_LUT = 512u;
#include "devices/vulkan/core/reduce.glsl"
#include "devices/vulkan/core/fmt.glsl"
#include "pages.glsl"
shared uint s_mean[GROUP_VALUES];

/* Symbols 32 part .. of a row: K words. */
void pack_codes(PTR page, PTR states, uint row, uint part)
{
    uint w[5] = uint[5](0u, 0u, 0u, 0u, 0u);
    [[unroll]] for (uint i = 0u; i < 32u; i++) {
        const uint symbol = ld(states, row * GROUP_VALUES + 32u * part + i) >> 9u - K, bit = K * i & 31u;
        w[K * i >> 5] |= symbol << bit;
        w[(K * i >> 5) + 1u] |= symbol >> 1u >> 31u - bit;
    }
    [[unroll]] for (uint i = 0u; i < K; i++)
        st(page, (4u * row + part) * K + i, w[i]);
}

uint scale_of(PTR work, uint row)
{
    return ld(work, FINITE_AT + row) != 0u ? to_half(ldf(work, SCALE_AT + row)) : 0x7e00u;
}

void pack_tables(PTR page, PTR work, PTR states, uint step)
{
    const uint t = gl_LocalInvocationIndex, scales = 256u * K;
    uint w = 0u;
    if (t < 32u) {
        st(page, scales + t, scale_of(work, 2u * t) | scale_of(work, 2u * t + 1u) << 16);
        st(page, scales + 32u + t, s_mean[4u * t] | s_mean[4u * t + 1u] << 8 | s_mean[4u * t + 2u] << 16 | s_mean[4u * t + 3u] << 24);
    }
    for (uint r = 4u * t; r < min(4u * t + 4u, PAGE); r++) {
        const uint start = ld(states, r * GROUP_VALUES) & (512u >> K) - 1u, bit = r < 16u ? step >> r & 1u : 0u;
        w |= (start | bit << 7) << 8u * (r & 3u);
    }
    if (4u * t < PAGE)
        st(page, scales + 64u + t, w);
}

void main()
{
    const uint t = gl_LocalInvocationIndex;
    if (group_at() >= args.n)
        return;
    const page_unit u = unit_of(args.first + group_at());
    PTR work = at_mul(P(1, work), group_at(), WORK), states = at_mul(P(2, states), group_at(), STATES);
    PTR page = at(at_mul(P(0, pages), ld(P(4, dst), u.i), args.page_words),
                  (u.head * args.head_bytes + u.value / GROUP_VALUES * PAGE * (16u * K + 5u)) / 4u);
    vec2 sum = vec2(0.0);
    uint n = 0u;
    fmt_fill(P(3, books), BOOK, FMT_LUT, 0u);
    barrier();
    [[dont_unroll]] for (uint r = 0u; r < PAGE; r++)
        if (ld(work, FINITE_AT + r) != 0u) {
            precise float given = fmt_lut[ld(states, r * GROUP_VALUES + t)] * ldf(work, SCALE_AT + r),
                          rest = ldf(work, r * GROUP_VALUES + t) - given;
            sum = dd_add(sum, vec2(rest, 0.0));
            n++;
        }
    precise float m = ldf(work, MEAN_AT + t) + (n > 0u ? dd_div(sum, vec2(float(n), 0.0)).x : 0.0);
    const float step = mean_step(m);
    s_mean[t] = uint(int(mean_steps(m, step))) & 255u;
    barrier();
    for (uint c = t; c < 4u * PAGE; c += GROUP)
        pack_codes(page, states, c / 4u, c % 4u);
    pack_tables(page, work, states, to_half(step));
}
