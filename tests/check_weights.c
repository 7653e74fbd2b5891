/* check_weights.c: the weight types against decoders written a second time, in another shape, from the format text.
 *
 * The second decoders work value by value ("what is x_i?") where the library works block by block, so that an
 * index slip in one cannot be repeated in the other.  Bits must agree, NaN with any NaN: a decoder's operations
 * are all exact but one. Every byte pattern of a scale is tried on one type, those that say something on all.
 * Encoders: rules where the format fixes them, error bounds where it does not. */
#include <ctype.h>
#include "base/half.h"
#include "base/rng.h"
#include "cards/grids.h"
#include "kvant/wtype.h"
#include "support/check.h"

/* ---- second implementation ------------------------------------------------------------ */

static float pow2(int e)
{
    return (float)ldexp(1.0, e);
}

/* IEEE half by arithmetic instead of by bits. */
static float other_half(const uint8_t *p)
{
    const unsigned h = p[0] | (unsigned)p[1] << 8, e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e == 0 ? ldexp(m, -24) : ldexp(1024 + m, (int)e - 25);

    return (float)(h & 0x8000 ? -v : v);
}

/* Code 8 is +0: the format's integer tables have no negative zero, and SIMD decoders look codes up as integers. */
static float e2m1(unsigned c)
{
    static const float mag[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    return c <= 8 ? mag[c % 8] : -mag[c - 8];
}

static float other_f32(const uint8_t *b, int i)
{
    float f;
    memcpy(&f, b + 4 * i, 4);
    return f;
}

static float other_f16(const uint8_t *b, int i)
{
    return other_half(b + 2 * i);
}

static float other_bf16(const uint8_t *b, int i)
{
    const uint8_t wide[4] = { 0, 0, b[2 * i], b[2 * i + 1] };
    return other_f32(wide, 0);
}

static float other_q8_0(const uint8_t *b, int i)
{
    const int q = b[2 + i] < 128 ? b[2 + i] : b[2 + i] - 256;
    return other_half(b) * (float)q;
}

static float other_q4_0(const uint8_t *b, int i)
{
    const int n = i < 16 ? b[2 + i] % 16 : b[2 + i - 16] / 16;
    return other_half(b) * (float)(n - 8);
}

static float other_q4_k(const uint8_t *b, int i)
{
    const uint8_t *sc = b + 4, *qs = b + 16;
    const int k = i / 32, p = i / 64;
    int s, m;

    if (k < 4) {
        s = sc[k] & 63;
        m = sc[k + 4] & 63;
    } else {
        s = (sc[k + 4] & 15) | ((sc[k - 4] >> 6) << 4);
        m = (sc[k + 4] >> 4) | ((sc[k] >> 6) << 4);
    }
    const uint8_t byte = qs[32 * p + i % 32];
    const int n = k % 2 == 0 ? byte & 15 : byte >> 4;
    return other_half(b) * (float)s * (float)n - other_half(b + 2) * (float)m;
}

static float other_q6_k(const uint8_t *b, int i)
{
    const int H = i / 128, j = i % 128, l = j % 32;
    const uint8_t *ql = b + 64 * H, *qh = b + 128 + 32 * H, *sc = b + 192 + 8 * H;
    int q, s;

    if (j < 32) {
        q = ((ql[l] & 15) | (qh[l] & 3) << 4) - 32;
        s = l / 16 + 0;
    } else if (j < 64) {
        q = ((ql[l + 32] & 15) | ((qh[l] >> 2) & 3) << 4) - 32;
        s = l / 16 + 2;
    } else if (j < 96) {
        q = ((ql[l] >> 4) | ((qh[l] >> 4) & 3) << 4) - 32;
        s = l / 16 + 4;
    } else {
        q = ((ql[l + 32] >> 4) | (qh[l] >> 6) << 4) - 32;
        s = l / 16 + 6;
    }
    const int scale = sc[s] < 128 ? sc[s] : sc[s] - 256;
    return other_half(b + 208) * (float)scale * (float)q;
}

static float other_mxfp4(const uint8_t *b, int i)
{
    const unsigned c = i < 16 ? b[1 + i] & 15u : b[1 + i - 16] >> 4;
    return (float)(ldexp(1.0, b[0] - 127) * e2m1(c));
}

static float other_ue4m3(unsigned b)
{
    const int e4 = b >> 3 & 15, m = b & 7;

    if (b == 0 || b == 0x7F)
        return 0;
    return e4 == 0 ? (float)m * pow2(-9) : (1.0f + (float)m / 8.0f) * pow2(e4 - 7);
}

static float other_nvfp4(const uint8_t *b, int i)
{
    const int s = i / 16, j = i % 16;
    const uint8_t *qs = b + 4 + 8 * s;
    const unsigned c = j < 8 ? qs[j] & 15u : qs[j - 8] >> 4;

    return other_ue4m3(b[s]) * e2m1(c);
}

/* Bits of the record counted from 0, lowest of a byte first: the value of n of them. */
static int bits_at(const uint8_t *b, int at, int n)
{
    int v = 0;

    for (int i = n - 1; i >= 0; i--)
        v = 2 * v + (b[(at + i) / 8] >> (at + i) % 8) % 2;
    return v;
}

static float other_q4_1(const uint8_t *b, int i)
{
    return other_half(b) * (float)bits_at(b + 4, 8 * (i % 16) + 4 * (i / 16), 4) + other_half(b + 2);
}

static float other_q5_0(const uint8_t *b, int i)
{
    const int n = bits_at(b + 6, 8 * (i % 16) + 4 * (i / 16), 4) + 16 * bits_at(b + 2, i, 1);
    return other_half(b) * (float)(n - 16);
}

static float other_q5_1(const uint8_t *b, int i)
{
    const int n = bits_at(b + 8, 8 * (i % 16) + 4 * (i / 16), 4) + 16 * bits_at(b + 4, i, 1);
    return other_half(b) * (float)n + other_half(b + 2);
}

static float other_q5_k(const uint8_t *b, int i)
{
    const int k = i / 32;
    const int s = k < 4 ? bits_at(b + 4, 8 * k, 6)
                        : bits_at(b + 4, 8 * (k + 4), 4) + 16 * bits_at(b + 4, 8 * (k - 4) + 6, 2);
    const int m = k < 4 ? bits_at(b + 8, 8 * k, 6)
                        : bits_at(b + 4, 8 * (k + 4) + 4, 4) + 16 * bits_at(b + 4, 8 * k + 6, 2);
    const int n = bits_at(b + 48, 8 * (32 * (i / 64) + i % 32) + 4 * (k % 2), 4);

    return other_half(b) * (float)s * (float)(n + 16 * bits_at(b + 16, 8 * (i % 32) + k, 1)) -
           other_half(b + 2) * (float)m;
}

static float other_q2_k(const uint8_t *b, int i)
{
    const int n = bits_at(b + 16, 8 * (32 * (i / 128) + i % 32) + 2 * (i / 32 % 4), 2);
    return other_half(b + 80) * (float)(b[i / 16] % 16) * (float)n - other_half(b + 82) * (float)(b[i / 16] / 16);
}

static float other_q3_k(const uint8_t *b, int i)
{
    const int k = i / 16, third = bits_at(b, 8 * (i % 32) + i / 32, 1);
    const int n = bits_at(b + 32, 8 * (32 * (i / 128) + i % 32) + 2 * (i / 32 % 4), 2) - (third ? 0 : 4);
    const int low = k < 8 ? b[96 + k] % 16 : b[96 + k - 8] / 16;
    return other_half(b + 108) * (float)(low + 16 * bits_at(b + 104, 8 * (k % 4) + 2 * (k / 4), 2) - 32) * (float)n;
}

/* The levels' distances from one to the next, from -127 on. */
static int iq4_level(int n)
{
    static const int steps[15] = { 23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24 };
    int v = -127;

    for (int i = 0; i < n; i++)
        v += steps[i];
    return v;
}

static float other_iq4_nl(const uint8_t *b, int i)
{
    return other_half(b) * (float)iq4_level(bits_at(b + 2, 8 * (i % 16) + 4 * (i / 16), 4));
}

static float other_iq4_xs(const uint8_t *b, int i)
{
    const int k = i / 32, s = bits_at(b + 4, 4 * k, 4) + 16 * bits_at(b + 2, 2 * k, 2) - 32;
    return other_half(b) * (float)s * (float)iq4_level(bits_at(b + 8 + 16 * k, 8 * (i % 16) + 4 * (i / 16 % 2), 4));
}

/* A byte is a fraction of five ternary digits, rounded up to 256ths; written from docs/formats/weights.md. */
static float other_tq1_0(const uint8_t *b, int i)
{
    const int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
    int q = b[i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4];

    for (int n = 0; n < digit; n++)
        q = 3 * q % 256;
    return other_half(b + 52) * (float)(q < 86 ? -1 : q < 171 ? 0 : 1);
}

static float other_tq2_0(const uint8_t *b, int i)
{
    return other_half(b + 64) * (float)(bits_at(b, 8 * (32 * (i / 128) + i % 32) + 2 * (i / 32 % 4), 2) - 1);
}

/* Entries of the IQ grids and their levels; check_grids compares them with sums of what the `gguf` package has. */
#define GRID(name)                                                                                                     \
    static const uint16_t grid_##name[] = { GRID_##name };                                                             \
    static const int level_##name[] = { GRID_LEVELS_##name };
GRID(iq3_xxs)
GRID(iq3_s)
GRID(iq2_xxs)
GRID(iq2_xs)
GRID(iq2_s)
GRID(iq1)
#undef GRID

/* Seven stored signs; the eighth makes the number of minuses even. */
static int minus(const uint8_t *b, int at, int i)
{
    int n = 0;

    for (int j = 0; j < 7; j++)
        n += bits_at(b, at + j, 1);
    return i < 7 ? bits_at(b, at + i, 1) : n % 2;
}

static float other_iq3_xxs(const uint8_t *b, int i)
{
    const int entry = grid_iq3_xxs[b[2 + i / 4]], level = level_iq3_xxs[entry / (1 << 4 * (i % 4)) % 16];
    const int gas = 8 * 66 + 32 * (i / 32);
    const float s = (float)bits_at(b, gas + 28, 4) + 0.5f;
    return other_half(b) * s * 0.5f * (float)(minus(b, gas + 7 * (i / 8 % 4), i % 8) ? -level : level);
}

static float other_iq3_s(const uint8_t *b, int i)
{
    const int entry = grid_iq3_s[b[2 + i / 4] + 256 * bits_at(b + 66, i / 4, 1)];
    const int level = level_iq3_s[entry / (1 << 4 * (i % 4)) % 16];
    return other_half(b) * (float)(1 + 2 * bits_at(b + 106, 4 * (i / 32), 4)) *
           (float)(bits_at(b + 74, i, 1) ? -level : level);
}

static float other_iq2_xxs(const uint8_t *b, int i)
{
    const uint8_t *sub = b + 2 + 8 * (i / 32);
    const int level = level_iq2_xxs[bits_at((const uint8_t *)&grid_iq2_xxs[sub[i / 8 % 4]], 2 * (i % 8), 2)];
    const float s = (float)bits_at(sub, 60, 4) + 0.5f;
    return other_half(b) * s * 0.25f * (float)(minus(sub, 32 + 7 * (i / 8 % 4), i % 8) ? -level : level);
}

static float other_iq2_xs(const uint8_t *b, int i)
{
    const int q = 16 * (i / 8), entry = grid_iq2_xs[bits_at(b + 2, q, 9)];
    const int level = level_iq2_xs[entry / (1 << 2 * (i % 8)) % 4];
    const float s = (float)bits_at(b + 66, 4 * (i / 16), 4) + 0.5f;
    return other_half(b) * s * 0.25f * (float)(minus(b + 2, q + 9, i % 8) ? -level : level);
}

static float other_iq2_s(const uint8_t *b, int i)
{
    const int entry = grid_iq2_s[b[2 + i / 8] + 256 * bits_at(b + 66, 2 * (i / 8), 2)];
    const int level = level_iq2_s[entry / (1 << 2 * (i % 8)) % 4];
    const float s = (float)bits_at(b + 74, 4 * (i / 16), 4) + 0.5f;
    return other_half(b) * s * 0.25f * (float)(bits_at(b + 34, i, 1) ? -level : level);
}

/* An entry's level, in eighths, with the shift. */
static float iq1_level(int entry, int i, int down)
{
    return (float)level_iq1[grid_iq1[entry] / (1 << 2 * (i % 8)) % 4] * 0.125f + (down ? -0.125f : 0.125f);
}

static float other_iq1_s(const uint8_t *b, int i)
{
    const int qh = 8 * 34 + 16 * (i / 32), entry = b[2 + i / 8] + 256 * bits_at(b, qh + 3 * (i / 8 % 4), 3);
    return other_half(b) * (float)(1 + 2 * bits_at(b, qh + 12, 3)) * iq1_level(entry, i, bits_at(b, qh + 15, 1));
}

static float other_iq1_m(const uint8_t *b, int i)
{
    const int entry = b[i / 8] + 256 * bits_at(b + 32, 4 * (i / 8), 3);
    const int s = bits_at(b + 48, 16 * (i / 64) + 3 * (i / 16 % 4), 3);
    uint8_t d[2] = { 0, 0 };
    for (int k = 0; k < 4; k++)
        d[k / 2] = (uint8_t)(d[k / 2] + bits_at(b + 48, 16 * k + 12, 4) * (k % 2 ? 16 : 1));
    return other_half(d) * (float)(1 + 2 * s) * iq1_level(entry, i, bits_at(b + 32, 4 * (i / 8) + 3, 1));
}

typedef struct other {
    const char *name;
    float (*value)(const uint8_t *block, int i);
    int scale_at, scale_bytes, scales; /* where the scales lie, for the sweep */
} other;

static const other others[] = {
    { "F32", other_f32, 0, 2, 1 },     { "F16", other_f16, 0, 2, 1 },     { "BF16", other_bf16, 0, 2, 1 },
    { "Q8_0", other_q8_0, 0, 2, 1 },   { "Q4_0", other_q4_0, 0, 2, 1 },   { "Q4_K", other_q4_k, 0, 2, 2 },
    { "Q6_K", other_q6_k, 208, 2, 1 }, { "MXFP4", other_mxfp4, 0, 1, 1 }, { "NVFP4", other_nvfp4, 0, 1, 4 },
    { "Q4_1", other_q4_1, 0, 2, 2 },   { "Q5_0", other_q5_0, 0, 2, 1 },   { "Q5_1", other_q5_1, 0, 2, 2 },
    { "Q5_K", other_q5_k, 0, 2, 2 },   { "Q2_K", other_q2_k, 80, 2, 2 },  { "Q3_K", other_q3_k, 108, 2, 1 },
    { "IQ4_NL", other_iq4_nl, 0, 2, 1 }, { "IQ4_XS", other_iq4_xs, 0, 2, 1 },
    { "IQ1_S", other_iq1_s, 0, 2, 1 },  { "IQ1_M", other_iq1_m, 48, 2, 4 },
    { "TQ1_0", other_tq1_0, 52, 2, 1 }, { "TQ2_0", other_tq2_0, 64, 2, 1 }, { "IQ3_XXS", other_iq3_xxs, 0, 2, 1 },
    { "IQ3_S", other_iq3_s, 0, 2, 1 },  { "IQ2_XXS", other_iq2_xxs, 0, 2, 1 },
    { "IQ2_XS", other_iq2_xs, 0, 2, 1 }, { "IQ2_S", other_iq2_s, 0, 2, 1 },
};
enum { N_OTHERS = sizeof others / sizeof others[0] };

/* ---- decoders ------------------------------------------------------------ */

static int same_bits(float a, float b)
{
    return (isnan(a) && isnan(b)) || f32_bits(a) == f32_bits(b);
}

/* Decodes one block through the library, out of and into guarded memory, and compares every value. */
static int block_agrees(const kvant_wtype *t, const other *o, const uint8_t *bytes, uint8_t *src, float *dst, char *why)
{
    memcpy(src, bytes, (size_t)t->bytes);
    memset(dst, 0xFF, (size_t)t->block * sizeof *dst);
    t->dequant(src, dst, t->block);
    for (int i = 0; i < t->block; i++) {
        const float want = o->value(bytes, i);
        if (!same_bits(dst[i], want)) {
            snprintf(why, 160, "value %d: %.9g (0x%08x), wanted %.9g (0x%08x)", i, dst[i], f32_bits(dst[i]), want,
                     f32_bits(want));
            return 0;
        }
    }
    return 1;
}

static void random_block(const kvant_wtype *t, rng *r, uint8_t *b)
{
    for (int i = 0; i < t->bytes; i++)
        b[i] = (uint8_t)rng_u64(r);
}

static void check_random(const kvant_wtype *t, const other *o)
{
    uint8_t bytes[256], *src = check_guarded((size_t)t->bytes, 1);
    float *dst = check_guarded((size_t)t->block * sizeof *dst, 4);
    char why[160] = "";
    rng r = { 20261121 };

    for (int n = 0; n < 2000; n++) {
        random_block(t, &r, bytes);
        CHECK(block_agrees(t, o, bytes, src, dst, why), "%s, random block %d: %s", t->name, n, why);
    }
    CHECK(check_guard_ok(src) && check_guard_ok(dst), "%s: wrote outside of the block", t->name);
    check_guard_free(src);
    check_guard_free(dst);
}

/* Halves that differ in kind: of every sign and exponent the mantissas 0, each bit alone, all bits, and some others. */
static int says_something(unsigned half)
{
    const unsigned m = half & 1023;

    return (m & (m - 1)) == 0 || m == 1023 || m % 341 == 7;
}

/* Byte patterns of every scale of the block, over random codes: all of them (Q8_0 and scales of a byte), or the halves
 * that say something, as the conversion is the same code. */
static void check_scales(const kvant_wtype *t, const other *o)
{
    uint8_t bytes[256], *src = check_guarded((size_t)t->bytes, 1);
    float *dst = check_guarded((size_t)t->block * sizeof *dst, 4);
    char why[160] = "";
    rng r = { 7 };
    const int every = strcmp(t->name, "Q8_0") == 0;
    int bad = 0;

    for (int s = 0; s < o->scales; s++) {
        random_block(t, &r, bytes);
        for (unsigned v = 0; v < (o->scale_bytes == 2 ? 65536u : 256u); v++) {
            if (o->scale_bytes == 2 && !every && !says_something(v))
                continue;
            bytes[o->scale_at + s * o->scale_bytes] = (uint8_t)v;
            if (o->scale_bytes == 2)
                bytes[o->scale_at + s * 2 + 1] = (uint8_t)(v >> 8);
            if (!block_agrees(t, o, bytes, src, dst, why) && bad++ == 0)
                printf("%s, scale %d pattern 0x%04x: %s\n", t->name, s, v, why);
        }
    }
    CHECK(bad == 0, "%s: %d of the scale patterns differ", t->name, bad);
    check_guard_free(src);
    check_guard_free(dst);
}

/* All 2^16 patterns of the packed 6-bit scales of Q4_K that can interact, and all 256 of each of Q6_K's i8 scales. */
static void check_inner_scales(const char *name, int at, int count)
{
    const kvant_wtype *t = kvant_wtype_find(name);
    const other *o = others;
    uint8_t bytes[256], src[256];
    float dst[256];
    char why[160] = "";
    rng r = { 11 };
    int bad = 0;

    while (strcmp(o->name, name) != 0)
        o++;
    random_block(t, &r, bytes);
    for (int i = 0; i < count; i++)
        for (int v = 0; v < 256; v++) {
            bytes[at + i] = (uint8_t)v;
            if (!block_agrees(t, o, bytes, src, dst, why) && bad++ == 0)
                printf("%s, byte %d = %d: %s\n", name, at + i, v, why);
        }
    CHECK(bad == 0, "%s: %d inner scale patterns differ", name, bad);
}

/* n = 0 does nothing; several blocks equal block by block. */
static void check_counts(const kvant_wtype *t)
{
    enum { BLOCKS = 5 };
    const size_t n = (size_t)t->block * BLOCKS, bytes = (size_t)t->bytes * BLOCKS;
    uint8_t *src = check_guarded(bytes, 1), *back = check_guarded(bytes, 3);
    float *all = check_guarded(n * sizeof *all, 4), *one = check_guarded(n * sizeof *one, 8);
    rng r = { 3 };

    t->dequant(src, all, 0);
    if (t->quant)
        t->quant(all, src, 0);
    CHECK(f32_bits(all[0]) == 0xFFFFFFFFu && src[0] == 0xFF, "%s: n = 0 wrote something", t->name);
    check_fill_normal(all, n, 5);
    if (t->quant)
        t->quant(all, src, (int64_t)n);
    for (int b = 0; b < BLOCKS && t->quant; b++)
        t->quant(all + b * t->block, back + b * t->bytes, t->block);
    CHECK(memcmp(src, back, bytes) == 0, "%s: encoding depends on the number of blocks", t->name);
    for (size_t i = 0; i < bytes; i++)
        src[i] = (uint8_t)rng_u64(&r);
    t->dequant(src, all, (int64_t)n);
    for (int b = 0; b < BLOCKS; b++)
        t->dequant(src + b * t->bytes, one + b * t->block, t->block);
    CHECK(memcmp(all, one, n * sizeof *all) == 0, "%s: decoding depends on the number of blocks", t->name);
    CHECK(check_guard_ok(src) && check_guard_ok(back) && check_guard_ok(all) && check_guard_ok(one),
          "%s: wrote outside of a buffer", t->name);
    check_guard_free(src);
    check_guard_free(back);
    check_guard_free(all);
    check_guard_free(one);
}

/* ---- encoders ------------------------------------------------------------ */

/* Largest relative mean-square error of a round trip on standard normal values.  Bounds: uniform quantisation with step
 * s has error s^2/12; for a block of 32 normal values amax is about 2.07 sigma (mean), so Q8_0 has (2.07/127)^2/12 =
 * 2.2e-5 (with the spread of amax 2.6e-5), Q4_0 about (2.07/8)^2/12 = 5.6e-3 (with clipping 8e-3).  The others were
 * measured with this program on this data and given a quarter of slack; a broken search is far outside. */
static const struct {
    const char *name;
    double nmse;
} bounds[] = {
    { "F32", 0 },       { "F16", 1e-7 },    { "BF16", 3e-6 },    { "Q8_0", 4e-5 },    { "Q4_0", 1.0e-2 },
    { "Q4_K", 6.2e-3 }, { "Q6_K", 4.2e-4 }, { "MXFP4", 1.7e-2 }, { "NVFP4", 1.2e-2 },  { "Q4_1", 7.7e-3 },
    { "Q5_0", 2.3e-3 }, { "Q5_1", 1.8e-3 }, { "Q5_K", 1.6e-3 },  { "Q2_K", 9.0e-2 },   { "Q3_K", 3.0e-2 },
    { "IQ4_NL", 7.4e-3 }, { "IQ4_XS", 7.5e-3 }, { "TQ1_0", 8.3e-1 }, { "TQ2_0", 8.3e-1 },
};

static double round_trip(const kvant_wtype *t, const float *x, int n)
{
    uint8_t *bytes = malloc((size_t)n / (size_t)t->block * (size_t)t->bytes);
    float *y = malloc((size_t)n * sizeof *y);

    t->quant(x, bytes, n);
    t->dequant(bytes, y, n);
    const double e = check_nmse(y, x, (size_t)n);
    free(bytes);
    free(y);
    return e;
}

static void check_quality(void)
{
    enum { N = 256 * 256 };
    static float x[N];

    check_fill_normal(x, N, 2026);
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        const kvant_wtype *t = kvant_wtype_find(bounds[i].name);
        const double e = round_trip(t, x, N);
        printf("  %-6s round trip NMSE %.3g\n", t->name, e);
        CHECK(e <= bounds[i].nmse, "%s: round-trip NMSE %.4g, at most %.4g wanted", t->name, e, bounds[i].nmse);
    }
    for (int i = 0; i < N; i++) /* the same at the scale of real weights: must not depend on it much */
        x[i] *= 0.02f;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        const kvant_wtype *t = kvant_wtype_find(bounds[i].name);
        const double e = round_trip(t, x, N),
                     limit = strcmp(t->name, "NVFP4") ? 1.1 * bounds[i].nmse : 6 * bounds[i].nmse;
        CHECK(e <= limit + 2e-8, "%s at scale .02: round-trip NMSE %.4g, at most %.4g wanted", t->name, e, limit);
    }
}

/* What a decoder gives must be encoded back without loss where the format fixes the encoder. */
static void check_fixed_rules(void)
{
    float x[64] = { 0 }, y[64];
    uint8_t b[64];

    /* Q8_0: halves away from zero, with the d that is not rounded: d = 1 here. */
    x[0] = 127.0f;
    x[1] = 0.5f;
    x[2] = -0.5f;
    x[3] = 2.5f;
    x[4] = -126.5f;
    x[5] = 0.49999997f;
    kvant_wtype_find("Q8_0")->quant(x, b, 32);
    CHECK(b[0] == 0 && b[1] == 0x3c, "Q8_0 d is 0x%02x%02x", b[1], b[0]);
    CHECK(b[2] == 127 && b[3] == 1 && (int8_t)b[4] == -1 && b[5] == 3 && (int8_t)b[6] == -127 && b[7] == 0,
          "Q8_0 codes %d %d %d %d %d %d", b[2], b[3], (int8_t)b[4], b[5], (int8_t)b[6], b[7]);
    /* Q4_0: d = -8/-8 = 1: nibble = trunc(x + 8.5). */
    memset(x, 0, sizeof x);
    x[0] = -8.0f;
    x[1] = 7.9f;
    x[17] = -0.5f;
    x[18] = 0.49f;
    kvant_wtype_find("q4_0")->quant(x, b, 32);
    CHECK(b[0] == 0 && b[1] == 0x3c && b[2] == 0x80 && b[3] == 0x8f && b[4] == 0x88, "Q4_0 %02x%02x %02x %02x %02x",
          b[1], b[0], b[2], b[3], b[4]);
    /* MXFP4: amax 6 -> e = 127; every code value comes back, ties go to the lower code. */
    memset(x, 0, sizeof x);
    for (unsigned c = 0; c < 16; c++)
        x[c] = e2m1(c);
    x[16] = 5.0f;
    x[17] = 0.25f;
    x[18] = -2.5f;
    kvant_wtype_find("MXFP4")->quant(x, b, 32);
    kvant_wtype_find("MXFP4")->dequant(b, y, 32);
    CHECK(b[0] == 127, "MXFP4 e = %d", b[0]);
    for (int i = 0; i < 16; i++)
        CHECK(y[i] == x[i], "MXFP4 value %d: %g, %g wanted", i, y[i], x[i]);
    CHECK(y[16] == 4.0f && y[17] == 0.0f && y[18] == -2.0f, "MXFP4 ties %g %g %g", y[16], y[17], y[18]);
    x[0] = 7.99f;
    kvant_wtype_find("MXFP4")->quant(x, b, 32);
    CHECK(b[0] == 127, "MXFP4 e of 7.99 = %d", b[0]);
    x[0] = 8.0f;
    kvant_wtype_find("MXFP4")->quant(x, b, 32);
    CHECK(b[0] == 128, "MXFP4 e of 8 = %d", b[0]);
    memset(x, 0, sizeof x);
    kvant_wtype_find("MXFP4")->quant(x, b, 32);
    CHECK(b[0] == 0 && b[1] == 0 && b[16] == 0, "MXFP4 of zeroes: e %d", b[0]);
}

/* NVFP4's scale: every UE4M3 value is met exactly, halves go up, 448 is the top, tiny ones vanish. */
static void check_nvfp4_scale(void)
{
    const kvant_wtype *t = kvant_wtype_find("NVFP4");
    float x[64] = { 0 };
    uint8_t b[36];

    for (unsigned c = 1; c < 0x7f; c++) {
        x[0] = 6.0f * other_ue4m3(c);
        t->quant(x, b, 64);
        CHECK(b[0] == c, "NVFP4 scale %g encoded as 0x%02x, 0x%02x wanted", other_ue4m3(c), b[0], c);
    }
    for (unsigned c = 1; c < 0x7e; c++) {
        x[0] = 3.0f * (other_ue4m3(c) + other_ue4m3(c + 1));
        t->quant(x, b, 64);
        CHECK(b[0] == c + 1, "NVFP4 tie above 0x%02x encoded as 0x%02x", c, b[0]);
    }
    x[0] = 1e9f;
    t->quant(x, b, 64);
    CHECK(b[0] == 0x7e, "NVFP4 scale of 1e9 is 0x%02x", b[0]);
    x[0] = 6.0f * 0x1p-11f;
    t->quant(x, b, 64);
    CHECK(b[0] == 0 && b[4] == 0, "NVFP4 scale of a tiny block is 0x%02x, code %d", b[0], b[4]);
}

/* NaN, infinities, huge, tiny and constant blocks: any bytes, but no trap, no undefined behaviour, no write outside. */
static void check_hostile_values(const kvant_wtype *t)
{
    static const float odd[] = {
        NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f, -1e-45f, 1e-38f, 0.0f, -0.0f, 1.0f
    };
    enum { N_ODD = sizeof odd / sizeof odd[0] };
    float *x = check_guarded(256 * sizeof *x, 4), *y = check_guarded(256 * sizeof *y, 4);
    const int blocks = 256 / t->block;
    uint8_t *b = check_guarded((size_t)(blocks * t->bytes), 1);
    rng r = { 99 };

    for (int n = 0; n < 300; n++) {
        for (int i = 0; i < 256; i++)
            x[i] = n < N_ODD ? odd[n] : rng_below(&r, 4) ? rng_normal(&r) : odd[rng_below(&r, N_ODD)];
        t->quant(x, b, 256);
        t->dequant(b, y, 256);
    }
    for (int i = 0; i < 256; i++)
        x[i] = 0.0f;
    t->quant(x, b, 256);
    t->dequant(b, y, 256);
    for (int i = 0; i < 256; i++)
        CHECK(y[i] == 0.0f, "%s: zero comes back as %g", t->name, y[i]);
    CHECK(check_guard_ok(x) && check_guard_ok(y) && check_guard_ok(b), "%s: wrote outside of a buffer", t->name);
    check_guard_free(x);
    check_guard_free(y);
    check_guard_free(b);
}

/* K-quants on values that they can represent exactly: the search need not find the original scales, but must come
 * closer than on normal values.  Measured: Q6_K 1.5e-4, Q4_K below 1e-3. */
static void check_k_exact(const char *name)
{
    const kvant_wtype *t = kvant_wtype_find(name);
    double worst = 0;

    for (unsigned long long seed = 1; seed <= 20; seed++) {
        float x[256];
        uint8_t b[256];
        rng r = { seed };
        for (int i = 0; i < t->bytes; i++)
            b[i] = (uint8_t)rng_u64(&r);
        memcpy(b + (strcmp(name, "Q6_K") ? 0 : 208), "\x00\x20", 2); /* d = 2^-7 */
        if (strcmp(name, "Q4_K") == 0)
            memcpy(b + 2, "\x00\x1c", 2); /* dmin = 2^-8 */
        t->dequant(b, x, 256);
        const double e = round_trip(t, x, 256);
        worst = e > worst ? e : worst;
    }
    CHECK(worst <= (strcmp(name, "Q6_K") ? 2e-3 : 2.5e-4), "%s: its own values come back with NMSE %.3g", name, worst);
}

/* ---- grids ---- */

static uint32_t grid_sum(const uint16_t *words, int count, int per, const int *levels)
{
    uint32_t sum = 2166136261u;

    for (int i = 0; i < count * per; i++) {
        const int level = levels[words[i / per] >> 16 / per * (i % per) & ((1 << 16 / per) - 1)];
        sum = (sum ^ (uint8_t)level) * 16777619u;
    }
    return sum;
}

/* FNV-1a sums of the levels of all entries, computed with the `gguf` package's tables. */
static void check_grids(void)
{
    static const struct {
        const char *name;
        const uint16_t *words;
        int count, per;
        const int *levels;
        uint32_t sum;
    } grids[] = {
        { "IQ3_XXS", grid_iq3_xxs, 256, 4, level_iq3_xxs, 0x49a45035 },
        { "IQ3_S", grid_iq3_s, 512, 4, level_iq3_s, 0x71cc6c89 },
        { "IQ2_XXS", grid_iq2_xxs, 256, 8, level_iq2_xxs, 0x3db4a16e },
        { "IQ2_XS", grid_iq2_xs, 512, 8, level_iq2_xs, 0xebeb17dd },
        { "IQ2_S", grid_iq2_s, 1024, 8, level_iq2_s, 0x82981110 },
        { "IQ1", grid_iq1, 2048, 8, level_iq1, 0x31aea17d },
    };

    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        const uint32_t sum = grid_sum(grids[i].words, grids[i].count, grids[i].per, grids[i].levels);
        CHECK(sum == grids[i].sum, "%s: grid 0x%08x, 0x%08x wanted", grids[i].name, sum, grids[i].sum);
    }
}

/* ---- registry ------------------------------------------------------------ */

static void check_registry(void)
{
    CHECK(kvant_wtype_count() == N_OTHERS, "%d types, %d tested", kvant_wtype_count(), (int)N_OTHERS);
    for (int i = 0; i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        const char *name = NULL;
        int block = 0, bytes = 0;
        char lower[16] = "";
        for (size_t j = 0; t->name[j]; j++)
            lower[j] = (char)tolower((unsigned char)t->name[j]);
        CHECK(kvant_wtype_by_id(t->ggml_id) == t, "%s by number", t->name);
        CHECK(kvant_wtype_find(lower) == t, "%s by lower-case name", t->name);
        CHECK(kvant_ggml_type_info(t->ggml_id, &name, &block, &bytes) == 1, "%s in the ggml table", t->name);
        CHECK(name && strcmp(name, t->name) == 0 && block == t->block && bytes == t->bytes, "%s: table differs",
              t->name);
    }
    CHECK(!kvant_wtype_at(-1) && !kvant_wtype_at(kvant_wtype_count()), "out of range index");
    CHECK(!kvant_wtype_find(NULL) && !kvant_wtype_find("") && !kvant_wtype_find("Q4_") && !kvant_wtype_find("Q4_KS"),
          "unknown names are found");
    CHECK(!kvant_wtype_by_id(15) && kvant_ggml_type_info(15, NULL, NULL, NULL) == 1, "Q8_K: known, not multiplied");
    static const int unknown[] = { -1, 4, 5, 31, 32, 33, 36, 37, 38, 42, 45, 46, 255, 2147483647, -2147483647 };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        CHECK(kvant_ggml_type_info(unknown[i], NULL, NULL, NULL) == 0, "type %d is known", unknown[i]);
}

int main(void)
{
    check_registry();
    check_grids();
    for (int i = 0; i < N_OTHERS; i++) {
        const kvant_wtype *t = kvant_wtype_find(others[i].name);
        check_random(t, &others[i]);
        check_scales(t, &others[i]);
        check_counts(t);
        if (t->quant)
            check_hostile_values(t);
    }
    check_inner_scales("Q4_K", 4, 12);
    check_inner_scales("Q6_K", 192, 16);
    check_inner_scales("Q5_K", 4, 12);
    check_inner_scales("Q2_K", 0, 16);
    check_inner_scales("Q3_K", 96, 12);
    check_inner_scales("IQ4_XS", 2, 6);
    check_k_exact("Q4_K");
    check_k_exact("Q6_K");
    check_fixed_rules();
    check_nvfp4_scale();
    check_quality();
    return check_end("check_weights");
}
