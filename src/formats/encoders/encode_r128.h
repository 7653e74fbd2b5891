/* encode_r128.h: table codes of 128 values in R: of x/|x|; the stored norm is |x| over the length of the levels that
 * the codes stand for. */

/* sum of x[c]^2 in ascending order over 128 values */
static inline float r128_squares(const float *x)
{
    float t[128];
    for (int c = 0; c < 128; c += 8)
        vf_store(t + c, vf_mul(vf_load(x + c), vf_load(x + c)));
    return sum_ascending(t, 128, 0.0f);
}

/* y = R(x/|x|); returns |x| */
static inline float r128_unit(const float *x, float *y)
{
    float norm = sqrtf(r128_squares(x)), inv = norm > 1e-10f ? 1.0f / norm : 0.0f;
    for (int c = 0; c < 128; c += 8)
        vf_store(y + c, vf_mul(vf_load(x + c), vf_set1(inv)));
    r128_rotate(y, y, r128_signs1, r128_signs2);
    return norm;
}

static inline void r128_encode(const float *x, uint8_t *row, int b, int encoder)
{
    float y[128], values[128];
    vi code[16];
    const float norm = r128_unit(x, y);
    for (int c = 0; c < 16; c++) {
        code[c] = card_code(vf_load(y + 8 * c));
        vf_store(values + 8 * c, card_level(code[c]));
    }
    uint16_t h = format_norm(turbo_corrected(norm, r128_squares(values)), encoder);
    if (encoder == KVANT_ENCODER_BEST) {
        for (int c = 0; c < 16; c++)
            vf_store(values + 8 * c, vf_mul(vf_load(y + 8 * c), vf_set1(norm)));
        refine(&card_book, values, 16, norm, 1, code, &h);
    }
    for (int c = 0; c < 4; c++)
        card_put(row, b + c, h, code + 4 * c);
}

static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += 128)
        r128_encode(x + g, row, g / 32, encoder);
}
