/* encode_p32.h: table codes of 32 values in P32: the scale is their root mean square, a code the level nearest to
 * value/scale; zero rows have zero codes. */

/* sqrt(sum y^2 / 32), summed in ascending order */
static inline float p32_rms(const vf *v)
{
    float y[32];
    for (int c = 0; c < 4; c++)
        vf_store(y + 8 * c, vf_mul(v[c], v[c]));
    return sqrtf(sum_ascending(y, 32, 0.0f) / 32.0f);
}

static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int b = 0; 32 * b < d; b++, x += 32) {
        vf y[4];
        vi code[4];
        load32(x, y);
        p32_rotate(y);
        const float rms = p32_rms(y), inv = 1.0f / rms;
        for (int c = 0; c < 4; c++)
            code[c] = card_code(vf_mul(y[c], vf_set1(inv)));
        if (rms == 0.0f)
            code[0] = code[1] = code[2] = code[3] = vi_zero();
        uint16_t h = format_norm(rms, encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            float values[32];
            store32(values, y);
            refine(&card_book, values, 4, rms, 1, code, &h);
        }
        card_put(row, b, h, code);
    }
}
