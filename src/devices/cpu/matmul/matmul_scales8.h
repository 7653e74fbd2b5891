/* matmul_scales8.h: the scales of a 32-block of the integer matmul, 16 outputs each, by the kind that its layout names
 * (matmul_pack.h): scales_<kind>(h, rec, b, folds, scale, min) fills scale[folds][16] and, where there are minima,
 * min[folds][16].  Shared by the ISAs with 8 lanes; after scale_times and scale_sign of the one that includes it. */

static inline void scale_f16(const uint8_t *p, float *dst)
{
    vf_store(dst, vf_load_f16(p));
    vf_store(dst + 8, vf_load_f16(p + 16));
}

static inline void scale_bf16(const uint8_t *p, float *dst)
{
    vf_store(dst, vf_load_bf16(p));
    vf_store(dst + 8, vf_load_bf16(p + 16));
}

/* 16 floats times x. */
static inline void scale_by(float *v, float x)
{
    for (int i = 0; i < PANEL; i += 8)
        vf_store(v + i, vf_mul(vf_load(v + i), vf_set1(x)));
}

/* Scale record of 32-block b. */
static inline const uint8_t *record(const matmul_packed *h, const uint8_t *panel, int64_t b)
{
    return panel + h->scale_offset + (size_t)(b * 32 / h->span) * (size_t)h->span_bytes;
}

static inline void scales_f16(const matmul_packed *h, const uint8_t *rec, int64_t b, int folds, float *scale,
                              float *min)
{
    (void)h, (void)b, (void)folds, (void)min;
    scale_f16(rec, scale);
}

static inline void scales_bf16(const matmul_packed *h, const uint8_t *rec, int64_t b, int folds, float *scale,
                               float *min)
{
    (void)h, (void)b, (void)min;
    for (int f = 0; f < folds; f++)
        scale_bf16(rec + f * 32, scale + f * PANEL);
}

static inline void scales_f16_min(const matmul_packed *h, const uint8_t *rec, int64_t b, int folds, float *scale,
                                  float *min)
{
    (void)b, (void)folds;
    scale_f16(rec, scale);
    scale_f16(rec + 32, min);
    scale_sign(min, h->min_sign);
}

static inline void scales_sub(const matmul_packed *h, const uint8_t *rec, int64_t b, int folds, float *scale,
                              float *min)
{
    const uint8_t *s = rec + 32 + (b & h->last) * folds * PANEL;

    (void)min;
    for (int f = 0; f < folds; f++)
        scale_times(rec, s + f * PANEL, 1, scale + f * PANEL);
}

static inline void scales_part(const matmul_packed *h, const uint8_t *rec, int64_t b, int folds, float *scale,
                               float *min)
{
    scales_sub(h, rec, b, folds, scale, min);
    for (int f = 0; f < folds; f++)
        scale_by(scale + f * PANEL, h->factor);
}

static inline void scales_sub_min(const matmul_packed *h, const uint8_t *rec, int64_t b, int folds, float *scale,
                                  float *min)
{
    const uint8_t *s = rec + 64 + (b & h->last) * 2 * folds * PANEL;

    for (int f = 0; f < folds; f++) {
        scale_times(rec, s + f * PANEL, 0, scale + f * PANEL);
        scale_times(rec + 32, s + (folds + f) * PANEL, 0, min + f * PANEL);
        scale_sign(min + f * PANEL, h->min_sign);
    }
}
