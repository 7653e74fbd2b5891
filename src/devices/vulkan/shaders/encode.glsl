/* encode.glsl: the encoders of the cache formats: the references (src/formats), term by term.  One thread encodes one
 * group of up to 128 values from y[] into packed[]; two formats take a workgroup per group and are in encode_group.glsl.
 * ENC_BEST: the encoder.  Needs fmt.glsl with the format's whole table at fmt_lut[0]. */
#include "exact.glsl"
#include "search.glsl"

uint packed[32];                   /* bytes of the group, little-endian */

void put_bits(uint bit, uint v)
{
    packed[bit >> 5] |= v << (bit & 31u);
    if ((bit & 31u) > 24u && v >> (32u - (bit & 31u)) != 0u)
        packed[(bit >> 5) + 1u] |= v >> (32u - (bit & 31u));
}

/* The rotation of F, in place on y. */
void rotate_y(PTR books, uint F)
{
    const bool p32 = F == VK_FMT_tbq4_0 || F == VK_FMT_tbq3_0 || F == VK_FMT_turbo4,
               polar = F == VK_FMT_q4_polar || F == VK_FMT_q4_polar_r;
    const uint n = p32 ? 32u : 128u;
    const float k = p32 ? uintBitsToFloat(0x3e3504f3u) : uintBitsToFloat(0x3db504f3u);
    for (uint i = 0u; i < n && !polar; i++)
        y[i] *= ldf(books, (p32 ? VK_BOOK_tbq_signs32 : VK_BOOK_wht_signs1) + i);
    [[dont_unroll]] for (uint h = 1u; h < n; h *= 2u)
        [[dont_unroll]] for (uint p = 0u; p < n / 2u; p++) {
            const uint i = p / h * 2u * h + p % h;
            const float a = y[i], b = y[i + h];
            y[i] = a + b;
            y[i + h] = a - b;
        }
    for (uint i = 0u; i < n && !polar; i++) {
        precise float v = y[i] * k;
        y[i] = p32 ? v : v * ldf(books, VK_BOOK_wht_signs2 + i);
    }
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

/* What a format's upstream rule finds in y[]: codes, and the scale before it is stored; y becomes what codes and scale
 * stand for.  bit: q4_polar_r's residual. */
float encode_integers(uint F)
{
    float amax = 0.0, top = 0.0;
    for (uint j = 0u; j < 32u; j++)
        if (abs(y[j]) > amax) {
            amax = abs(y[j]);
            top = y[j];
        }
    const float d = F == VK_FMT_q8_0 ? div_exact(amax, 127.0) : top / -8.0, id = d != 0.0 ? div_exact(1.0, d) : 0.0;
    for (uint j = 0u; j < 32u; j++) {
        precise float v = y[j] * id;
        if (F == VK_FMT_q8_0) {
            const float r = round_away(v);
            code[j] = is_nan(r) ? 0 : !(r >= -127.0) ? -127 : r > 127.0 ? 127 : int(r);
        } else {
            precise float r = v + 8.5;
            code[j] = (is_nan(r) ? 8 : !(r >= 0.0) ? 0 : r >= 15.0 ? 15 : int(r)) - 8;
        }
    }
    return d;
}

float encode_p32(PTR books, uint F)
{
    precise float s = 0.0;
    rotate_y(books, F);
    for (uint j = 0u; j < 32u; j++)
        s += y[j] * y[j];
    const float d = sqrt_exact(s / 32.0), id = div_exact(1.0, d);
    for (uint j = 0u; j < 32u; j++) {
        precise float v = y[j] * id;
        code[j] = d == 0.0             ? 0
                  : F == VK_FMT_turbo4 ? count_below(16u, 15, v)
                                       : nearest_below(F == VK_FMT_tbq3_0 ? 8 : 16, v);
    }
    return d;
}

/* turbo3, turbo4_66, q4_polar, q4_polar_r; stored: the scale of the upstream rule. */
float encode_g128(PTR books, uint F, out float stored, out bool bit)
{
    const bool polar = F == VK_FMT_q4_polar || F == VK_FMT_q4_polar_r;
    const int n = F == VK_FMT_turbo3 ? 8 : 16;
    vec2 square = vec2(0.0);
    precise float s = 0.0, r = 0.0;
    for (uint j = 0u; j < 128u; j++)
        if (polar)
            square = dd_add(square, dd_product(y[j], y[j]));
        else
            s += y[j] * y[j];
    const float norm = dd_sqrt(polar ? square : vec2(s, 0.0)), inv = norm > 1e-10 ? div_exact(1.0, norm) : 0.0;
    for (uint j = 0u; j < 128u; j++) {
        precise float v = y[j] * inv;
        y[j] = v;
    }
    rotate_y(books, F);
    for (uint j = 0u; j < 128u; j++) {
        code[j] = count_below(polar ? 144u : uint(n), n - 1, y[j]);
        const float c = fmt_lut[code[j]];
        r += polar ? (y[j] - c) * fmt_lut[16u + j] : c * c;
    }
    bit = F == VK_FMT_q4_polar_r && r > 0.0;
    const float rn = sqrt_exact(r);
    stored = polar ? norm : rn > 1e-10 ? div_exact(norm, rn) : norm;
    return norm;
}

/* The searches of the best encoder: q4_0 tries both signs of the scale, q4_polar_r both residuals. */
uint encode_best(uint F, uint count, float guess, uint scale, inout bool bit)
{
    const float one = uintBitsToFloat(0x3d3504f3u);
    const bool residual = F == VK_FMT_q4_polar_r;
    const uint first_scale = scale;
    book b = book(F == VK_FMT_tbq3_0 || F == VK_FMT_turbo3 ? 8u : 16u, 0u, 0.0, 0.0, 0.0);
    int first[128];
    vec2 err = vec2(0.0);
    if (F == VK_FMT_q8_0 || F == VK_FMT_q4_0)
        b = F == VK_FMT_q8_0 ? book(0u, 0u, -127.0, 127.0, 0.0) : book(0u, 0u, -8.0, 7.0, 0.0);
    for (uint j = 0u; j < count && residual; j++)
        first[j] = code[j];
    [[dont_unroll]] for (uint round = 0u; round < (F == VK_FMT_q4_0 || residual ? 2u : 1u); round++) {
        b.offset = residual ? (bit != (round == 1u) ? one : -one) : 0.0;
        const uint before = residual ? first_scale : scale;
        for (uint j = 0u; j < count && residual && round == 1u; j++) {
            const int c = code[j];
            code[j] = first[j];
            first[j] = c;
        }
        const uint h = search_scale(b, count, round == 1u && !residual ? -guess : guess, before);
        if (!residual) {
            scale = h;
            continue;
        }
        const vec2 e = search_error(b, count, false, h);
        if (round == 0u || dd_less(e, err)) {
            scale = h;
            bit = bit != (round == 1u);
        } else {
            for (uint j = 0u; j < count; j++)
                code[j] = first[j];
        }
        err = e;
    }
    b.offset = residual ? (bit ? one : -one) : 0.0;
    return search_unbiased(b, count, scale);
}

void pack(uint F, uint scale, bool bit)
{
    const uint n = F == VK_FMT_turbo3 ? 4u : 1u;
    for (uint i = 0u; i < n; i++) {
        put_bits(112u * i, scale & 255u);
        put_bits(112u * i + 8u, scale >> 8);
    }
    if (F == VK_FMT_q8_0 || F == VK_FMT_tbq3_0) {
        for (uint j = 0u; j < 32u; j++)
            put_bits(16u + (F == VK_FMT_q8_0 ? 8u : 3u) * j, uint(code[j]) & 255u);
    } else if (F == VK_FMT_turbo3) {
        for (uint e = 0u; e < 128u; e++) {
            put_bits(e / 32u * 112u + 16u + 2u * (e % 32u), uint(code[e]) & 3u);
            put_bits(e / 32u * 112u + 80u + e % 32u, uint(code[e]) >> 2);
        }
    } else if (F == VK_FMT_turbo4_66 || F == VK_FMT_q4_polar || F == VK_FMT_q4_polar_r) {
        for (uint e = 0u; e < 128u; e++)
            put_bits(16u + 4u * e, uint(code[e]));
        if (bit)
            put_bits(528u, 1u);
    } else {
        const int add = F == VK_FMT_q4_0 ? 8 : 0;          /* low nibbles first */
        for (uint j = 0u; j < 16u; j++)
            put_bits(16u + 8u * j, uint(code[j] + add) | uint(code[j + 16u] + add) << 4);
    }
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

/* count values of y[] in a format without groups: bytes each at most 4. */
void encode_wide(uint F, uint count, float factor)
{
    for (uint i = 0u; i < count; i++) {
        if (F == VK_FMT_f32)
            packed[i] = floatBitsToUint(y[i]);
        else if (F == VK_FMT_f8_e4m3)
            packed[i >> 2] |= to_e4m3(div_exact(y[i], factor)) << 8u * (i & 3u);
        else
            packed[i >> 1] |= (F == VK_FMT_f16 ? to_half(y[i]) : to_bf16(y[i])) << 16u * (i & 1u);
    }
}

void encode(PTR books, uint F, bool best)
{
    const bool integers = F == VK_FMT_q8_0 || F == VK_FMT_q4_0,
               p32 = F == VK_FMT_tbq4_0 || F == VK_FMT_tbq3_0 || F == VK_FMT_turbo4;
    float guess, stored;
    bool bit = false;
    if (integers || p32)
        stored = guess = integers ? encode_integers(F) : encode_p32(books, F);
    else
        guess = encode_g128(books, F, stored, bit);
    uint scale = to_half(stored);
    if (best) {
        for (uint j = 0u; j < 128u && !integers && !p32; j++) {
            precise float v = y[j] * guess;
            y[j] = v;
        }
        scale = encode_best(F, integers || p32 ? 32u : 128u, guess, scale, bit);
    }
    pack(F, scale, bit);
}
