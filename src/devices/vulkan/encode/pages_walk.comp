#version 450
/* pages_walk: a row's better path and its scale (pages.glsl); a workgroup per row. */
#define SLOTS 3
#define ARGS ARGPTR work; ARGPTR states; ARGPTR books; uint rows; uint groups; uint h;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint K = 3u;                 /* bits of a symbol */
layout(constant_id = 1) const uint BOOK = 0u;
const uint FMT_LUT = 512u;
#define WALK_K K
#include "devices/vulkan/core/reduce.glsl"
#include "devices/vulkan/core/fmt.glsl"
#include "pages.glsl"
shared float sp[GROUP_VALUES];
#include "walk.glsl"
shared vec2 s_pair[GROUP];

/* The sum of a workgroup's pairs, the same for every thread. */
vec2 group_pairs(vec2 v)
{
    const uint t = gl_LocalInvocationIndex;
    [[dont_unroll]] for (uint n = GROUP / 2u; n > 0u; n >>= 1) {
        s_pair[t] = v;
        barrier();
        if (t < n)
            v = dd_add(v, s_pair[t + n]);
        barrier();
    }
    s_pair[t] = v;
    barrier();
    v = s_pair[0];
    barrier();
    return v;
}

/* A path's share of the row's energy yy, and the scale that is unbiased in the row's direction; cc, cy: sums over its values. */
vec2 path_share(vec2 cc, vec2 cy, vec2 yy)
{
    return yy.x > 0.0 ? dd_div(dd_mul(cy, cy), dd_mul(cc, yy)) : vec2(0.0);
}

float path_scale(vec2 cy, vec2 yy)
{
    return half_of(to_half(min(yy.x > 0.0 && cy.x > 0.0 ? dd_div(yy, cy).x : 0.0, 65504.0)));
}

void main()
{
    const uint t = gl_LocalInvocationIndex, r = group_at() % PAGE;
    if (group_at() >= args.rows)
        return;
    PTR work = at_mul(P(0, work), group_at() / PAGE, WORK), to = at_mul(P(1, states), group_at() / PAGE, STATES);
    const bool finite = ld(work, FINITE_AT + r) != 0u;
    precise float y = finite ? ldf(work, r * GROUP_VALUES + t) - ldf(work, MEAN_AT + t) : 0.0;
    fmt_fill(P(2, books), BOOK, FMT_LUT, 0u);
    stf(work, r * GROUP_VALUES + t, y);
    const vec2 yy = group_pairs(dd_product(y, y));
    precise float rms = dd_sqrt(yy / float(GROUP_VALUES)) + 1e-9;
    sp[t] = div_exact(y, rms);
    tcq_viterbi(0u, 1.0);
    tcq_viterbi(1u, 1.0 / 0.94);
    vec2 best = vec2(-1.0, 0.0);
    uint pick = 0u;
    [[dont_unroll]] for (uint n = 0u; n < 2u; n++) {
        const float c = fmt_lut[tcq_state[GROUP_VALUES * n + t]];
        const vec2 cc = group_pairs(dd_product(c, c)), cy = group_pairs(dd_product(c, y)), share = path_share(cc, cy, yy);
        if (dd_less(best, share)) {
            best = share;
            pick = n;
            if (t == 0u)
                stf(work, SCALE_AT + r, path_scale(cy, yy));
        }
    }
    st(to, r * GROUP_VALUES + t, tcq_state[GROUP_VALUES * pick + t]);
}
