#version 450
/* pages_mean: the rotated rows of a unit and their mean (pages.glsl); a workgroup per unit, a column per thread. */
#define SLOTS 4
#define ARGS ARGPTR tail; ARGPTR work; ARGPTR books; ARGPTR src; uint n; uint first; uint h; uint d; uint groups;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
#include "cards/vulkan.h"
#include "devices/vulkan/core/reduce.glsl"
#include "devices/vulkan/core/space.glsl"
#include "pages.glsl"

void main()
{
    const uint t = gl_LocalInvocationIndex;
    if (group_at() >= args.n)
        return;
    const page_unit u = unit_of(args.first + group_at());
    const uint e = u.value + t;
    PTR books = P(2, books), to = at_mul(P(1, work), group_at(), WORK);
    PTR from = at_mul(P(0, tail), ld(P(3, src), u.i) * args.h + u.head, PAGE * args.d / 2u);
    vec2 sum = vec2(0.0);
    uint n = 0u;
    [[dont_unroll]] for (uint r = 0u; r < PAGE; r++) {
        sp[t] = e < args.d ? half_of(ld_u16(from, 2u * (r * args.d + e))) : 0.0;
        space_rotate(books, VK_SPACE_R128, false, GROUP_VALUES);
        const float y = sp[t];
        const bool finite = group_max(is_finite(y) ? 0.0 : 1.0) == 0.0;
        stf(to, r * GROUP_VALUES + t, finite ? y : 0.0);
        if (t == 0u)
            st(to, FINITE_AT + r, finite ? 1u : 0u);
        if (finite) {
            sum = dd_add(sum, vec2(y, 0.0));
            n++;
        }
    }
    const float m = n > 0u ? dd_div(sum, vec2(float(n), 0.0)).x : 0.0, step = mean_step(m);
    precise float mean = mean_steps(m, step) * step;
    stf(to, MEAN_AT + t, mean);
}
