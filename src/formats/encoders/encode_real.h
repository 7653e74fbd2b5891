/* encode_real.h: codes that are integers of the values themselves, over simd_encode_<isa>.h.  upstream: the scale
 * takes the value of largest magnitude to the last code, and best searches around it. */
static const search_book card_book = { .lo = CARD_LOW, .hi = CARD_HIGH };

#ifdef CARD_SIGNED
static inline float real_scale(const float *x, const vf *v)
{
    (void)x;
    return largest32(v) / (float)CARD_HIGH;
}

static inline vi real_codes(vf v)
{
    return round_away(v, (float)CARD_HIGH);
}
enum { REAL_SIGNS = 1, REAL_ZERO = 0 };
#else
/* The codes are not symmetric: the largest value, with its sign, becomes the lowest code. */
static inline float real_scale(const float *x, const vf *v)
{
    const float amax = largest32(v);
    return amax > 0.0f ? first_of(x, v, amax) / (float)CARD_LOW : 0.0f / (float)CARD_LOW;
}

static inline vi real_codes(vf v)
{
    return round_centred(v, -CARD_LOW, CARD_HIGH - CARD_LOW);
}
enum { REAL_SIGNS = 2, REAL_ZERO = -CARD_LOW };
#endif

static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int b = 0; 32 * b < d; b++, x += 32) {
        vf v[4];
        vi code[4];
        load32(x, v);
        const float scale = real_scale(x, v), inv = scale != 0.0f ? 1.0f / scale : 0.0f;
        for (int c = 0; c < 4; c++)
            code[c] = real_codes(vf_mul(v[c], vf_set1(inv)));
        uint16_t h = format_norm(scale, encoder);
        if (encoder == KVANT_ENCODER_BEST)
            refine(&card_book, x, 4, scale, REAL_SIGNS, code, &h);
        for (int c = 0; c < 4 && REAL_ZERO != 0; c++)
            code[c] = vi_add(code[c], REAL_ZERO);
        card_put(row, b, h, code);
    }
}
