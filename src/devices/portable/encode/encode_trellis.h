/* encode_trellis.h: the encoder of codes that are windows of a stream, nine bits at every third bit: the best path
 * through 512 states, by a group (walk.h). */
#ifndef KVANT_PORTABLE_TRELLIS_H
#define KVANT_PORTABLE_TRELLIS_H

#include "devices/portable/encode/walk.h"

/* Sums over a path's values v and the wanted ones y. */
struct sums { struct dd yy, yv, vv; };

FN struct sums trellis_sums(OWN const float *y, OWN const int *path)
{
    struct sums s;
    s.yy = s.yv = s.vv = dd_of(0.0f, 0.0f);
    for (int i = 0; i < 128; i++) {
        s.yy = dd_add(s.yy, dd_product(y[i], y[i]));
        s.yv = dd_add(s.yv, dd_product(y[i], LEVEL(path[i])));
        s.vv = dd_add(s.vv, dd_product(LEVEL(path[i]), LEVEL(path[i])));
    }
    return s;
}

/* The sum of (norm y - scale v)^2. */
FN struct dd trellis_error(struct sums s, float norm, uint32_t scale)
{
    const float k = port_half_of((uint16_t)scale);
    const struct dd wanted = dd_mul(dd_product(norm, norm), s.yy), given = dd_mul(dd_product(k, k), s.vv);
    return dd_add(dd_add(wanted, given), dd_mul(dd_product(norm, -2.0f * k), s.yv));
}

FN uint32_t trellis_refit(struct sums s, float norm)
{
    return search_storable(dd_div(dd_mul(dd_of(norm, 0.0f), s.yv), s.vv).hi);
}

FN uint32_t trellis_unbiased(struct sums s, float norm, uint32_t scale)
{
    return search_unbiased_scale(dd_div(dd_mul(dd_of(norm, 0.0f), s.yy), s.yv), scale);
}

FN uint32_t trellis_upstream(LOCAL const int32_t *path, float norm)
{
    float r = 0.0f;
    for (int i = 0; i < 128; i++)
        r += LEVEL(path[i]) * LEVEL(path[i]);
    const float rn = encode_sqrt(r);
    return port_to_half(rn > 1e-10f ? encode_div(norm, rn) : norm);
}

/* Chooses the path of least error: the upstream one at its scale or refitted, or the wider one; *scale: its. */
FN int trellis_better(OWN const struct group *g, float norm, OWN uint32_t *scale)
{
    const struct sums one = trellis_sums(g->y, g->code), two = trellis_sums(g->y, g->found);
    const uint32_t h = trellis_refit(one, norm), w = trellis_refit(two, norm);
    const struct dd refit = trellis_error(one, norm, h);
    struct dd err = trellis_error(one, norm, *scale);
    if (dd_less(refit, err) || (!is_finite(err.hi) && is_finite(refit.hi))) {
        *scale = h;
        err = refit;
    }
    if (dd_less(trellis_error(two, norm, w), err)) {
        *scale = trellis_unbiased(two, norm, w);
        return 1;
    }
    *scale = trellis_unbiased(one, norm, *scale);
    return 0;
}

FN void trellis_pack(OWN uint32_t *packed, LOCAL const int32_t *path, uint32_t scale)
{
    put_bits(packed, 0u, scale);
    put_bits(packed, 16u, (uint32_t)path[128] >> 3);
    for (int i = 0; i < 128; i++)
        put_bits(packed, 22u + 3u * (uint32_t)i, (uint32_t)path[i] >> 6);
}

/* y[128] -> packed[] of thread 0.  path: of two paths. */
FN void encode_trellis(LOCAL float *y, LOCAL float *cost, LOCAL uint32_t *back, LOCAL int32_t *path, int t, int best,
                       OWN struct group *g)
{
    float square = 0.0f;
    int which = 0;
    BARRIER();
    for (int i = 0; i < 128; i++)
        square += y[i] * y[i];
    const float norm = encode_sqrt(square), inv = norm > 1e-10f ? encode_div(1.0f, norm) : 0.0f;
    BARRIER();
    for (int i = t; i < 128; i += THREADS)
        y[i] *= inv;
    space_rotate(y, SPACE_R128, 0, 128, t);
    trellis_paths(y, cost, back, path, t, best);
    if (t != 0)
        return;
    for (int i = 0; i < 128; i++) {
        g->y[i] = y[i];
        g->code[i] = path[i];
        g->found[i] = path[PATH * best + i];
    }
    uint32_t scale = trellis_upstream(path, norm);
    if (best)
        which = trellis_better(g, norm, &scale);
    trellis_pack(g->packed, path + PATH * which, scale);
}

#endif
