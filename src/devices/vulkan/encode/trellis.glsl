/* trellis.glsl: the encoder of codes that are windows of a stream, nine bits at every third bit: the best path through 512
 * states, by a workgroup (walk.glsl).  Values are in sp[128]. */
#define WALK_K 3u
#include "walk.glsl"
shared float tcq_norm;

vec2 tcq_error(uint which, uint scale)
{
    const float s = half_of(scale);
    vec2 err = vec2(0.0);
    for (uint t = 0u; t < 128u; t++) {
        const vec2 e = dd_add(dd_product(sp[t], tcq_norm), -dd_product(fmt_lut[tcq_state[128u * which + t]], s));
        err = dd_add(err, dd_mul(e, e));
    }
    return err;
}

uint tcq_refit(uint which)
{
    vec2 yv = vec2(0.0), vv = vec2(0.0);
    for (uint t = 0u; t < 128u; t++) {
        const float c = fmt_lut[tcq_state[128u * which + t]];
        yv = dd_add(yv, dd_product(sp[t], c));
        vv = dd_add(vv, dd_product(c, c));
    }
    return search_storable(dd_div(dd_mul(vec2(tcq_norm, 0.0), yv), vv).x);
}

uint tcq_unbiased(uint which, uint scale)
{
    vec2 yy = vec2(0.0), yv = vec2(0.0);
    for (uint t = 0u; t < 128u; t++) {
        yy = dd_add(yy, dd_product(sp[t], sp[t]));
        yv = dd_add(yv, dd_product(sp[t], fmt_lut[tcq_state[128u * which + t]]));
    }
    return search_unbiased_scale(dd_div(dd_mul(vec2(tcq_norm, 0.0), yy), yv), scale);
}

/* By one thread, after both paths are known. */
void tcq_choose(bool best)
{
    precise float r = 0.0;
    for (uint t = 0u; t < 128u; t++)
        r += fmt_lut[tcq_state[t]] * fmt_lut[tcq_state[t]];
    const float rn = sqrt_exact(r);
    uint scale = to_half(rn > 1e-10 ? div_exact(tcq_norm, rn) : tcq_norm), which = 0u;
    if (best) {
        vec2 err = tcq_error(0u, scale);
        const uint h = tcq_refit(0u), w = tcq_refit(1u);
        const vec2 refit = tcq_error(0u, h);
        if (dd_less(refit, err) || (!is_finite(err.x) && is_finite(refit.x))) {
            scale = h;
            err = refit;
        }
        if (dd_less(tcq_error(1u, w), err)) {
            which = 1u;
            scale = w;
        }
        scale = tcq_unbiased(which, scale);
    }
    put_bits(0u, scale & 255u);
    put_bits(8u, scale >> 8);
    put_bits(16u, tcq_start[which] >> 3);
    for (uint t = 0u; t < 128u; t++)
        put_bits(22u + 3u * t, tcq_state[128u * which + t] >> 6);
}

void encode_trellis(PTR books, bool best)
{
    const uint t = gl_LocalInvocationIndex;
    barrier();
    if (t == 0u) {
        precise float s = 0.0;
        for (uint i = 0u; i < 128u; i++)
            s += sp[i] * sp[i];
        tcq_norm = sqrt_exact(s);
    }
    barrier();
    const float inv = tcq_norm > 1e-10 ? div_exact(1.0, tcq_norm) : 0.0;
    for (uint i = t; i < 128u; i += GROUP) {
        precise float v = sp[i] * inv;
        sp[i] = v;
    }
    space_rotate(books, VK_SPACE_R128, false, 128u);
    tcq_viterbi(0u, 1.0);
    if (best)
        tcq_viterbi(1u, 1.0 / 0.94);
    if (t == 0u)
        tcq_choose(best);
}
