/* encode_search.h: scale search and least-squares refit of the encoders: src/formats/encoders/search.c, term by term,
 * by one thread. offset: the residual times the signs, 0 where there is none. */
#ifndef KVANT_PORTABLE_SEARCH_H
#define KVANT_PORTABLE_SEARCH_H

/* A scale that can be stored: neither zero nor infinite. */
FN uint32_t search_storable(float s)
{
    const uint32_t h = port_to_half(s);
    if ((h & 0x7fffu) == 0u)
        return h | 1u;
    return (h & 0x7c00u) == 0x7c00u ? (h & 0x8000u) | 0x7bffu : h;
}

FN uint32_t search_unbiased_scale(struct dd s, uint32_t scale)
{
    const uint32_t h = is_finite(s.hi) ? port_to_half(s.hi) : 0u;
    return (h & 0x7fffu) == 0u || (h & 0x7c00u) == 0x7c00u ? scale : h;
}

#if JOIN(encoder_, FMT) == ENCODER_GROUP
FN float search_value(int code, int j, float offset)
{
#if N_LEVELS > 0
    const float v = LEVEL(code);
#else
    const float v = (float)code;
#endif
    return offset == 0.0f ? v : v + offset * SIGN(HAS_RESIDUAL * j);
}

FN int search_nearest(float t)
{
#if N_LEVELS > 0
    int k = 0;
    for (int m = 0; m + 1 < N_LEVELS; m++)
        k += t >= 0.5f * (LEVEL(m) + LEVEL(m + 1)) ? 1 : 0;
    return k;
#else
    float r = t + 12582912.0f;             /* 1.5 * 2^23: rounds to an integer */
    r -= 12582912.0f;
    r = r > (float)LOW ? r : (float)LOW;   /* NaN too */
    return (int)(r > (float)HIGH ? (float)HIGH : r);
#endif
}

/* Codes nearest to y/s into found[]; the sum of y*v for a refit, and that of v*v in *vv. */
FN struct dd search_assign(OWN struct group *g, float offset, float s, OWN struct dd *vv)
{
    const float inv = encode_div(1.0f, s);
    struct dd yv = dd_of(0.0f, 0.0f);
    *vv = yv;
    for (int i = 0; i < GROUP_VALUES; i += 32) {
        float a = 0.0f, b = 0.0f;
        for (int j = i; j < i + 32; j++) {
            float t = g->y[j] * inv;
            if (offset != 0.0f)
                t -= offset * SIGN(HAS_RESIDUAL * j);
            g->found[j] = search_nearest(t);
            const float v = search_value(g->found[j], j, offset);
            a += g->y[j] * v;
            b += v * v;
        }
        yv = dd_add(yv, dd_of(a, 0.0f));
        *vv = dd_add(*vv, dd_of(b, 0.0f));
    }
    return yv;
}

/* Squared error of codes under a stored scale. */
FN struct dd search_error(OWN const struct group *g, OWN const int *codes, float offset, uint32_t scale)
{
    const float s = port_half_of((uint16_t)scale);
    struct dd err = dd_of(0.0f, 0.0f);
    for (int j = 0; j < GROUP_VALUES; j++) {
        const struct dd e = dd_less_product(dd_of(g->y[j], 0.0f), s, search_value(codes[j], j, offset));
        err = dd_add(err, dd_mul(e, e));
    }
    return err;
}

CONST_TABLE float search_factor[7] = { 0.78f, 0.84f, 0.9f, 0.96f, 1.02f, 1.09f, 1.17f };

/* The best of these factors of guess. */
FN float search_factors(OWN struct group *g, float offset, float guess)
{
    struct dd gain = dd_of(0.0f, 0.0f), vv;
    float s = 0.0f;
    for (int i = 0; i < 7; i++) {
        const struct dd yv = search_assign(g, offset, guess * search_factor[i], &vv);
        if (!(vv.hi > 0.0f))
            continue;
        const struct dd q = dd_div(dd_mul(yv, yv), vv);
        if (dd_less(gain, q)) {
            gain = q;
            s = dd_div(yv, vv).hi;
        }
    }
    return s;
}

/* The least error over factors of guess, refitted once: into code[] and the result, where it beats `scale`. */
FN uint32_t search_scale(OWN struct group *g, float offset, float guess, uint32_t scale)
{
    struct dd vv;
    if (!(fabs(guess) > 0.0f && fabs(guess) <= 1e30f))
        return scale;                      /* zero, NaN, infinite: nothing to search */
    float s = search_factors(g, offset, guess);
    const struct dd yv = search_assign(g, offset, port_half_of((uint16_t)search_storable(s)), &vv);
    if (vv.hi > 0.0f)
        s = dd_div(yv, vv).hi;
    const uint32_t h = search_storable(s);
    search_assign(g, offset, port_half_of((uint16_t)h), &vv);
    const struct dd old = search_error(g, g->code, offset, scale), now = search_error(g, g->found, offset, h);
    if (!(dd_less(now, old) || (!is_finite(old.hi) && is_finite(now.hi))))
        return scale;
    for (int j = 0; j < GROUP_VALUES; j++)
        g->code[j] = g->found[j];
    return h;
}

/* The scale of code[] that makes <y, decoded> = <y, y>. */
FN uint32_t search_unbiased(OWN const struct group *g, float offset, uint32_t scale)
{
    struct dd yy = dd_of(0.0f, 0.0f), yv = yy;
    for (int j = 0; j < GROUP_VALUES; j++) {
        yy = dd_add(yy, dd_product(g->y[j], g->y[j]));
        yv = dd_add(yv, dd_product(g->y[j], search_value(g->code[j], j, offset)));
    }
    return search_unbiased_scale(dd_div(yy, yv), scale);
}
#endif

#endif
