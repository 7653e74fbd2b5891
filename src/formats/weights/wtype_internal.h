/* weights/wtype_internal.h: the functions behind wtypes.def and the few helpers the block types share.
 * Block types own nothing: pure functions over caller's buffers, any alignment, any byte pattern. */
#ifndef KVANT_FORMATS_WTYPE_INTERNAL_H
#define KVANT_FORMATS_WTYPE_INTERNAL_H

#include <math.h>
#include "base/half.h"
#include "kvant/wtype.h"

/* The types that are read only (wtype.c: NULL) have no quant. */
#define KVANT_WTYPE(sym)                                                                                               \
    void wtype_##sym##_dequant(const uint8_t *src, float *dst, int64_t n);                                             \
    void wtype_##sym##_quant(const float *src, uint8_t *dst, int64_t n);
#include "formats/weights/wtypes.def"
#undef KVANT_WTYPE

/* E2M1 codes doubled (0 .5 1 1.5 2 3 4 6), so that they are integers; halve the scale. */
extern const int8_t wtype_e2m1_x2[16];
/* Code of the E2M1 value nearest to x / (2 * half_scale); ties and zero take the lower code. */
unsigned wtype_e2m1_encode(float x, double half_scale);

/* Twelve bytes of eight 6-bit scales and minima (layout: wtype_q4_k.c). */
void wtype_six_bit_unpack(const uint8_t *sc, int k, int *s, int *m);
void wtype_six_bit_pack(uint8_t *sc, const int *s, const int *m);

/* Blocks of 256 values, x = d*s*code - dmin*m with small integers s and m for each sub-block (wtype_affine.c). */
typedef struct wtype_affine {
    int sub, subs;             /* values of a sub-block, and how many there are */
    int top, s_top, m_top;     /* largest code, scale, minimum */
} wtype_affine;
typedef struct wtype_affine_block {
    float d, dmin;             /* as halves give them back */
    int s[16], m[16];
} wtype_affine_block;
/* Scales for 256 values (importance: see wtype_importance, or NULL); the code of x where a = d*s and b = dmin*m. */
void wtype_affine_fit(const wtype_affine *p, const float *x, const float *importance, wtype_affine_block *to);
int wtype_affine_code(const wtype_affine *p, float x, float a, float b);

/* Blocks of x = d*s*level, a signed small integer s for each sub-block (wtype_signed.c).  levels: 16 that the code
 * indexes, ascending, or NULL: the integers lo .. hi. */
typedef struct wtype_signed {
    int values, sub, subs;
    int lo, hi;
    int s_lo, s_hi;            /* of the scales; both 1: there is only d */
    const int8_t *levels;
} wtype_signed;
float wtype_signed_fit(const wtype_signed *p, const float *x, const float *importance, int *s);
/* The level nearest to x / a, as an integer lo .. hi or an index. */
int wtype_signed_code(const wtype_signed *p, float x, float a);

/* Weights of the errors of n values whose columns have this importance (mean square of what they are multiplied with):
 * importance * sqrt(2 mean(x^2) + x^2), so that large values, which carry the product, count a little more. */
void wtype_importance(const float *x, const float *importance, int n, float *w);

/* The types whose search knows an importance: as their quant, with NULL exactly that. */
#define KVANT_WEIGHTED(sym)                                                                                            \
    void wtype_##sym##_weighted(const float *src, const float *importance, uint8_t *dst, int64_t n);
#include "formats/weights/wtypes_weighted.def"
#undef KVANT_WEIGHTED

/* Q4_1, Q5_1: d and m of 32 values to dst[0..3], their codes 0 .. top. */
void wtype_min_max(const float *x, uint8_t *dst, int top, uint8_t *code);
/* Q5_0, Q5_1: value j of the 32 codes of five bits in qh[4] and qs[16], and all of them packed. */
int wtype_five_bits(const uint8_t *qh, const uint8_t *qs, int j);
void wtype_pack_five(const uint8_t *code, uint8_t *qh, uint8_t *qs);

/* Levels of IQ4_NL and IQ4_XS, ascending. */
extern const int8_t wtype_iq4_levels[16];

/* Entries of a grid (grids.toml): levels by number, negative where the bit of `signs` is set. */
static inline void wtype_grid_four(unsigned word, const int8_t *levels, unsigned signs, float a, float *dst)
{
    for (int i = 0; i < 4; i++)
        dst[i] = (signs >> i & 1 ? -a : a) * (float)levels[word >> 4 * i & 15];
}

static inline void wtype_grid_eight(unsigned word, const int8_t *levels, unsigned signs, float a, float *dst)
{
    for (int i = 0; i < 8; i++)
        dst[i] = (signs >> i & 1 ? -a : a) * (float)levels[word >> 2 * i & 3];
}

/* Levels -8, 0 and 8 of IQ1_S and IQ1_M, all shifted by one. */
static inline void wtype_ternary_eight(unsigned word, unsigned down, float a, float *dst)
{
    for (int i = 0; i < 8; i++)
        dst[i] = a * (float)(8 * (int)(word >> 2 * i & 3) - 8 + (down ? -1 : 1));
}

/* A half whose nibbles, lowest first, are the highest ones of four u16 (IQ1_M); the other way round. */
static inline uint16_t wtype_nibbles(const uint8_t *p)
{
    return (uint16_t)(p[1] >> 4 | p[3] >> 4 << 4 | p[5] >> 4 << 8 | p[7] >> 4 << 12);
}

static inline void wtype_set_nibbles(uint8_t *p, uint16_t h)
{
    for (int i = 0; i < 4; i++)
        p[2 * i + 1] = (uint8_t)((p[2 * i + 1] & 15) | (h >> 4 * i & 15) << 4);
}

/* Seven signs, above them the one that makes their count even. */
static inline unsigned wtype_even_signs(unsigned s)
{
    unsigned odd = 0;

    for (unsigned v = s; v; v &= v - 1)
        odd ^= 128;
    return s | odd;
}

static inline float wtype_round_half(float x)
{
    return half_to_f32(f32_to_half(x));
}

/* v rounded to an integer in lo..hi; NaN gives lo (a cast of NaN would be undefined). */
static inline int wtype_clamp_round(float v, int lo, int hi)
{
    if (!(v > (float)lo))
        return lo;
    return v >= (float)hi ? hi : (int)lrintf(v);
}

/* Largest |x| of n values; NaN is skipped. */
static inline float wtype_amax(const float *x, int n)
{
    float m = 0.0f;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > m)
            m = fabsf(x[i]);
    return m;
}

#endif
