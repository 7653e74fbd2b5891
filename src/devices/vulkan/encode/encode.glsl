/* encode.glsl: the encoders of the cache formats: the references (src/formats), term by term.  One thread encodes one
 * group of up to 128 values from y[] into packed[]; formats that take a workgroup per group are in trellis.glsl and
 * sketch.glsl.  Formats differ in their rules, generated from their cards (cards/encode.glsl).  Needs
 * fmt.glsl with the format's whole table at fmt_lut[0]. */
#include "exact.glsl"
#include "search.glsl"

uint packed[32];                   /* bytes of the group, little-endian */

/* norm: VK_NORM_*, how the scale is found; space: the rotation that comes first; levels: of the table, 0: codes are
 * integers lo .. hi, stored with centre added; edges: where the table's boundaries begin, 0: codes are of the nearest
 * levels; residual: added or taken away along the signs behind the levels, 0: none. */
struct encode_rule { uint norm, space, group, levels, edges; int lo, hi, centre; float residual; };

void put_bits(uint bit, uint v)
{
    packed[bit >> 5] |= v << (bit & 31u);
    if ((bit & 31u) > 24u && v >> (32u - (bit & 31u)) != 0u)
        packed[(bit >> 5) + 1u] |= v >> (32u - (bit & 31u));
}

/* How many of the n midpoints at fmt_lut[from ..] are <= v; NaN: all. */
int count_below(uint from, int n, float v)
{
    int k = 0;
    while (k < n && !(v < fmt_lut[from + uint(k)]))
        k++;
    return k;
}

/* Nearest centroid, a tie to the lower code; NaN: the last. */
int nearest_below(int n, float v)
{
    int lo = 0;
    if (v <= fmt_lut[0])
        return 0;
    if (!(v < fmt_lut[n - 1]))
        return n - 1;
    while (!(v < fmt_lut[lo + 1]))
        lo++;
    precise float below = v - fmt_lut[lo], above = fmt_lut[lo + 1] - v;
    return below <= above ? lo : lo + 1;
}

float round_away(float v)
{
    precise float t = trunc(v), rest = v - t;
    return abs(rest) >= 0.5 ? t + (v < 0.0 ? -1.0 : 1.0) : t;
}

/* The rotation of the rule, in place on y.  A hadamard alone keeps its length: the scale is of what it gives. */
void rotate_y(PTR books, encode_rule e)
{
    const bool p32 = e.space == VK_SPACE_P32, r128 = e.space == VK_SPACE_R128;
    const float k = p32 ? uintBitsToFloat(0x3e3504f3u) : uintBitsToFloat(0x3db504f3u);
    for (uint i = 0u; i < e.group && (p32 || r128); i++)
        y[i] *= ldf(books, (p32 ? VK_BOOK_tbq_signs32 : VK_BOOK_wht_signs1) + i);
    [[dont_unroll]] for (uint h = 1u; h < e.group && e.space != VK_SPACE_REAL; h *= 2u)
        [[dont_unroll]] for (uint p = 0u; p < e.group / 2u; p++) {
            const uint i = p / h * 2u * h + p % h;
            const float a = y[i], b = y[i + h];
            y[i] = a + b;
            y[i + h] = a - b;
        }
    for (uint i = 0u; i < e.group && (p32 || r128); i++) {
        precise float v = y[i] * k;
        y[i] = p32 ? v : v * ldf(books, VK_BOOK_wht_signs2 + i);
    }
}

/* Codes of y[] by the format's upstream rule; returns the scale.  Integers: the largest value gets the largest code. */
float encode_integers(encode_rule e)
{
    const bool same = e.centre == 0;       /* as many below zero as above */
    float amax = 0.0, top = 0.0;
    for (uint j = 0u; j < e.group; j++)
        if (abs(y[j]) > amax) {
            amax = abs(y[j]);
            top = y[j];
        }
    const float d = same ? div_exact(amax, float(e.hi)) : div_exact(top, float(e.lo)), id = d != 0.0 ? div_exact(1.0, d) : 0.0;
    for (uint j = 0u; j < e.group; j++) {
        precise float v = y[j] * id;
        precise float r = same ? round_away(v) : v + (float(e.centre) + 0.5);
        r = same ? r : trunc(r) - float(e.centre);
        code[j] = is_nan(r) ? 0 : !(r >= float(e.lo)) ? e.lo : r > float(e.hi) ? e.hi : int(r);
    }
    return d;
}

int code_of(encode_rule e, float v)
{
    return e.edges != 0u ? count_below(e.edges, int(e.levels) - 1, v) : nearest_below(int(e.levels), v);
}

/* Levels times the root of the mean square. */
float encode_rms(PTR books, encode_rule e)
{
    precise float s = 0.0;
    rotate_y(books, e);
    for (uint j = 0u; j < e.group; j++)
        s += y[j] * y[j];
    const float d = sqrt_exact(s / float(e.group)), id = div_exact(1.0, d);
    for (uint j = 0u; j < e.group; j++) {
        precise float v = y[j] * id;
        code[j] = d == 0.0 ? 0 : code_of(e, v);
    }
    return d;
}

/* Levels times the length of the group, which y is divided by; stored: the scale of the upstream rule; bit: the
 * residual's. */
float encode_length(PTR books, encode_rule e, out float stored, out bool bit)
{
    const bool fit = e.norm == VK_NORM_CORRECTED, residual = e.residual != 0.0;
    vec2 square = vec2(0.0);
    precise float s = 0.0, r = 0.0;
    for (uint j = 0u; j < e.group; j++)
        if (fit)
            s += y[j] * y[j];
        else
            square = dd_add(square, dd_product(y[j], y[j]));
    const float norm = dd_sqrt(fit ? vec2(s, 0.0) : square), inv = norm > 1e-10 ? div_exact(1.0, norm) : 0.0;
    for (uint j = 0u; j < e.group; j++) {
        precise float v = y[j] * inv;
        y[j] = v;
    }
    rotate_y(books, e);
    for (uint j = 0u; j < e.group; j++) {
        code[j] = code_of(e, y[j]);
        const float c = fmt_lut[code[j]];
        r += residual ? (y[j] - c) * fmt_lut[e.levels + j] : c * c;
    }
    bit = residual && r > 0.0;
    const float rn = sqrt_exact(r);
    stored = fit && rn > 1e-10 ? div_exact(norm, rn) : norm;
    return norm;
}

/* The searches of the best encoder: integers about a centre try both signs of the scale, a residual both of its own. */
uint encode_best(encode_rule e, float guess, uint scale, inout bool bit)
{
    const bool residual = e.residual != 0.0, both = e.levels == 0u && e.centre != 0;
    const uint first_scale = scale;
    book b = book(e.levels, float(e.lo), float(e.hi), 0.0);
    int first[128];
    vec2 err = vec2(0.0);
    edges_find(b);
    for (uint j = 0u; j < e.group && residual; j++)
        first[j] = code[j];
    [[dont_unroll]] for (uint round = 0u; round < (both || residual ? 2u : 1u); round++) {
        b.offset = residual ? (bit != (round == 1u) ? e.residual : -e.residual) : 0.0;
        const uint before = residual ? first_scale : scale;
        for (uint j = 0u; j < e.group && residual && round == 1u; j++) {
            const int c = code[j];
            code[j] = first[j];
            first[j] = c;
        }
        const uint h = search_scale(b, e.group, round == 1u && !residual ? -guess : guess, before);
        if (!residual) {
            scale = h;
            continue;
        }
        const vec2 worse = search_error(b, e.group, false, h);
        if (round == 0u || dd_less(worse, err)) {
            scale = h;
            bit = bit != (round == 1u);
        } else {
            for (uint j = 0u; j < e.group; j++)
                code[j] = first[j];
        }
        err = worse;
    }
    b.offset = residual ? (bit ? e.residual : -e.residual) : 0.0;
    return search_unbiased(b, e.group, scale);
}

uint to_e4m3(float v)
{
    const uint u = floatBitsToUint(v), s = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return s | 0x7fu;
    if (a >= 0x43e00000u)
        return s | 0x7eu;
    if (a < 0x3c800000u) {
        precise float t = uintBitsToFloat(a) + 16384.0;    /* adds at 2^-9: rounds to nearest even */
        return s | (floatBitsToUint(t) - 0x46800000u);
    }
    return s | (a + 0x7ffffu + (a >> 20 & 1u) >> 20) - 960u;
}

#include "cards/encode.glsl"

/* count values of y[] in a format without groups, `bytes` each. */
void encode_floats(uint F, uint count, uint bytes, float factor)
{
    for (uint i = 0u; i < count; i++)
        packed[bytes * i >> 2] |= float_code(F, y[i], factor) << 8u * (bytes * i & 3u);
}

void encode_group(PTR books, uint F, bool best)
{
    const encode_rule e = rule_of(F);
    const bool lengths = e.norm == VK_NORM_CORRECTED || e.norm == VK_NORM_LENGTH;
    float guess, stored;
    bool bit = false;
    if (lengths)
        guess = encode_length(books, e, stored, bit);
    else
        stored = guess = e.levels == 0u ? encode_integers(e) : encode_rms(books, e);
    uint scale = to_half(stored);
    if (best) {
        for (uint j = 0u; j < e.group && lengths; j++) {
            precise float v = y[j] * guess;
            y[j] = v;
        }
        scale = encode_best(e, guess, scale, bit);
    }
    pack(F, scale, bit);
}
