/* encode_h128.h: table codes of H(x/|x|) of 128 values, with or without a residual sign.  The norm is summed in
 * double by eight chains: the f32 that it becomes is, but for one row in many millions, the reference's.  `best`
 * with a residual is the reference's. */

/* y = H(x/|x|); returns |x| */
static inline float h128_unit(const float *x, float *y)
{
    double s[8] = { 0 };
    for (int j = 0; j < 128; j += 8)
        for (int k = 0; k < 8; k++)
            s[k] += (double)x[j + k] * x[j + k];
    double sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    float norm = (float)sqrt(sum), inv = norm > 1e-10f ? 1.0f / norm : 0.0f;
    for (int c = 0; c < 128; c += 8)
        vf_store(y + c, vf_mul(vf_load(x + c), vf_set1(inv)));
    butterfly128(y);
    return norm;
}

#ifdef CARD_RESIDUAL_AT
/* sum (y - level)*S > 0, in the reference's order */
static inline int h128_residual(const float *y, const vi *code)
{
    float t[128], sum = 0.0f;
    for (int c = 0; c < 16; c++)
        vf_store(t + 8 * c, card_level(code[c]));
    for (int j = 0; j < 128; j++)
        sum += (y[j] - t[j]) * card_residual[j];
    return sum > 0.0f;
}
#endif

static inline void h128_encode(const float *x, uint8_t *record, int encoder)
{
    float y[128];
    vi code[16];
    const float norm = h128_unit(x, y);
    uint16_t h = format_norm(norm, encoder);
    for (int c = 0; c < 16; c++)
        code[c] = card_code(vf_load(y + 8 * c));
    memset(record + CARD_CODES_END, 0, CARD_BYTES_OF_RECORD - CARD_CODES_END);
#ifdef CARD_RESIDUAL_AT
    record[CARD_RESIDUAL_AT] = (uint8_t)h128_residual(y, code);
#endif
    if (encoder == KVANT_ENCODER_BEST) {
        for (int c = 0; c < 16; c++)
            vf_store(y + 8 * c, vf_mul(vf_load(y + 8 * c), vf_set1(norm)));
        refine(&card_book, y, 16, norm, 1, code, &h);
    }
    for (int c = 0; c < 4; c++)
        card_put(record, c, h, code + 4 * c);
}

static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
#ifdef CARD_RESIDUAL_AT
    if (encoder == KVANT_ENCODER_BEST) {
        CARD_REFERENCE(CARD_NAME).ref.encode(param, x, row, d, encoder);
        return;
    }
#endif
    (void)param;
    for (int g = 0; g < d; g += 128, row += CARD_BYTES_OF_RECORD)
        h128_encode(x + g, row, encoder);
}
