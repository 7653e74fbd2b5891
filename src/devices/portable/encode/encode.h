/* encode.h: the encoders of formats whose groups one thread encodes: the references (src/formats), term by term, from
 * y[] to packed[].  Differences between formats come from their cards (cards/portable.h). */
#ifndef KVANT_PORTABLE_ENCODE_H
#define KVANT_PORTABLE_ENCODE_H

FN uint32_t encode_e4m3(float v)
{
    const uint32_t u = port_word(v), s = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return s | 0x7fu;
    if (a >= 0x43e00000u)
        return s | 0x7eu;
    if (a < 0x3c800000u)                   /* adds at 2^-9: rounds to nearest even */
        return s | (port_word(port_bits(a) + 16384.0f) - 0x46800000u);
    return s | (((a + 0x7ffffu + (a >> 20 & 1u)) >> 20) - 960u);
}

#include "devices/portable/encode/encode_search.h"

#if JOIN(encoder_, FMT) == ENCODER_FLOAT
/* count values of `bytes` each. */
FN void encode_floats(OWN struct group *g, int count, int bytes, float factor)
{
    (void)factor;
    for (int i = 0; i < count; i++)
        g->packed[bytes * i >> 2] |= (uint32_t)JOIN(float_code_, FMT)(g->y[i], factor) << 8 * (bytes * i & 3);
}
#endif

#if JOIN(encoder_, FMT) == ENCODER_GROUP
/* The rotation of the format, in place.  A Hadamard transform alone keeps its length: the scale is of what it gives. */
FN void encode_rotate(OWN float *y)
{
#if JOIN(space_, FMT) == SPACE_P32
    for (int i = 0; i < GROUP_VALUES; i++)
        y[i] *= fmt_c_tbq_signs32[i];
#elif JOIN(space_, FMT) == SPACE_R128
    for (int i = 0; i < GROUP_VALUES; i++)
        y[i] *= fmt_c_wht_signs1[i];
#endif
    for (int h = 1; h < (JOIN(space_, FMT) == SPACE_REAL ? 1 : GROUP_VALUES); h *= 2)
        for (int p = 0; p < GROUP_VALUES / 2; p++) {
            const int i = p / h * 2 * h + p % h;
            const float a = y[i], b = y[i + h];
            y[i] = a + b;
            y[i + h] = a - b;
        }
#if JOIN(space_, FMT) == SPACE_P32
    for (int i = 0; i < GROUP_VALUES; i++)
        y[i] *= port_bits(0x3e3504f3u);
#elif JOIN(space_, FMT) == SPACE_R128
    for (int i = 0; i < GROUP_VALUES; i++)
        y[i] = y[i] * port_bits(0x3db504f3u) * fmt_c_wht_signs2[i];
#endif
}

#if N_LEVELS > 0
/* The code of v: by boundaries, where NaN is above all, or nearest level, a tie to the lower code. */
FN int encode_code(float v)
{
    int k = 0;
#if JOIN(has_edges_, FMT)
    while (k < N_LEVELS - 1 && !(v < EDGE(k)))
        k++;
    return k;
#else
    if (v <= LEVEL(0))
        return 0;
    if (!(v < LEVEL(N_LEVELS - 1)))
        return N_LEVELS - 1;
    while (!(v < LEVEL(k + 1)))
        k++;
    return v - LEVEL(k) <= LEVEL(k + 1) - v ? k : k + 1;
#endif
}
#endif

#if JOIN(norm_, FMT) == NORM_LARGEST
FN float encode_round(float v)
{
    const float t = v < 0.0f ? -floor(-v) : floor(v), rest = v - t;
    return CENTRE != 0 ? t : fabs(rest) >= 0.5f ? t + (v < 0.0f ? -1.0f : 1.0f) : t;
}

/* Integers: the largest value gets the largest code.  Returns the scale. */
FN float encode_upstream(OWN struct group *g, OWN float *stored, OWN int *bit)
{
    float amax = 0.0f, top = 0.0f;
    for (int j = 0; j < GROUP_VALUES; j++)
        if (fabs(g->y[j]) > amax) {
            amax = fabs(g->y[j]);
            top = g->y[j];
        }
    const float d = CENTRE == 0 ? encode_div(amax, (float)HIGH) : encode_div(top, (float)LOW);
    const float id = d != 0.0f ? encode_div(1.0f, d) : 0.0f;
    for (int j = 0; j < GROUP_VALUES; j++) {
        const float v = g->y[j] * id, over = (float)CENTRE + 0.5f;
        const float r = CENTRE == 0 ? encode_round(v) : encode_round(v + over) - (float)CENTRE;
        g->code[j] = is_nan(r) ? 0 : !(r >= (float)LOW) ? LOW : r > (float)HIGH ? HIGH : (int)r;
    }
    *stored = d;
    *bit = 0;
    return d;
}
#elif JOIN(norm_, FMT) == NORM_RMS
/* Levels times the root of the mean square. */
FN float encode_upstream(OWN struct group *g, OWN float *stored, OWN int *bit)
{
    float s = 0.0f;
    encode_rotate(g->y);
    for (int j = 0; j < GROUP_VALUES; j++)
        s += g->y[j] * g->y[j];
    const float d = encode_sqrt(s / (float)GROUP_VALUES), id = encode_div(1.0f, d);
    for (int j = 0; j < GROUP_VALUES; j++)
        g->code[j] = d == 0.0f ? 0 : encode_code(g->y[j] * id);
    *stored = d;
    *bit = 0;
    return d;
}
#else
FN float encode_norm(OWN const struct group *g)
{
    struct dd square = dd_of(0.0f, 0.0f);
    float s = 0.0f;
    for (int j = 0; j < GROUP_VALUES; j++) {
        s += g->y[j] * g->y[j];
        square = dd_add(square, dd_product(g->y[j], g->y[j]));
    }
    return JOIN(norm_, FMT) == NORM_CORRECTED ? encode_sqrt(s) : dd_sqrt(square);
}

/* Levels times the length of the group, which y is divided by.  stored: the scale, corrected by the length of what is
 * decoded; bit: the residual's. */
FN float encode_upstream(OWN struct group *g, OWN float *stored, OWN int *bit)
{
    const float norm = encode_norm(g), inv = norm > 1e-10f ? encode_div(1.0f, norm) : 0.0f;
    float r = 0.0f;
    for (int j = 0; j < GROUP_VALUES; j++)
        g->y[j] *= inv;
    encode_rotate(g->y);
    for (int j = 0; j < GROUP_VALUES; j++) {
        g->code[j] = encode_code(g->y[j]);
        const float c = LEVEL(g->code[j]);
        r += HAS_RESIDUAL ? (g->y[j] - c) * SIGN(HAS_RESIDUAL * j) : c * c;
    }
    *bit = HAS_RESIDUAL && r > 0.0f;
    const float rn = encode_sqrt(r);
    *stored = JOIN(norm_, FMT) == NORM_CORRECTED && rn > 1e-10f ? encode_div(norm, rn) : norm;
    return norm;
}
#endif

#if HAS_RESIDUAL
FN void encode_swap(OWN struct group *g)
{
    for (int j = 0; j < GROUP_VALUES; j++) {
        const int c = g->code[j];
        g->code[j] = g->first[j];
        g->first[j] = c;
    }
}

/* Tries both signs of the residual; *bit: the upstream rule's, then the better one. */
FN uint32_t encode_search(OWN struct group *g, float guess, uint32_t scale, OWN int *bit)
{
    const float offset = *bit ? RESIDUAL : -RESIDUAL;
    for (int j = 0; j < GROUP_VALUES; j++)
        g->first[j] = g->code[j];
    const uint32_t one = search_scale(g, offset, guess, scale);
    const struct dd err = search_error(g, g->code, offset, one);
    encode_swap(g);
    const uint32_t other = search_scale(g, -offset, guess, scale);
    if (dd_less(search_error(g, g->code, -offset, other), err)) {
        *bit = !*bit;
        return search_unbiased(g, -offset, other);
    }
    encode_swap(g);
    return search_unbiased(g, offset, one);
}
#else
/* Integers about a centre try both signs of the scale. */
FN uint32_t encode_search(OWN struct group *g, float guess, uint32_t scale, OWN int *bit)
{
    (void)bit;
    scale = search_scale(g, 0.0f, guess, scale);
#if N_LEVELS == 0 && CENTRE != 0
    scale = search_scale(g, 0.0f, -guess, scale);
#endif
    return search_unbiased(g, 0.0f, scale);
}
#endif

FN void encode_group(OWN struct group *g, int best)
{
    float stored;
    int bit;
    const float guess = encode_upstream(g, &stored, &bit);
    uint32_t scale = port_to_half(stored);
    if (best) {
        for (int j = 0; j < (JOIN(norm_, FMT) >= NORM_LENGTH ? GROUP_VALUES : 0); j++)
            g->y[j] *= guess;
        scale = encode_search(g, guess, scale, &bit);
    }
    JOIN(pack_, FMT)(g->packed, g->code, scale, bit);
}
#endif

#endif
