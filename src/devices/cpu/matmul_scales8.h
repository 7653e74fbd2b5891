/* matmul_scales8.h: the scales of a 32-block of the integer matmul, 8 outputs at a time, as its layout stores them
 * (matmul_pack.h).  Shared by the ISAs with 8 lanes; after scale_f16, scale_bf16 and scale_times of the one that
 * includes it. */

static inline void scales_f16(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    (void)b, (void)min;
    scale_f16(rec, scale);
}

static inline void scales_mxfp4(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    (void)b, (void)min;
    scale_bf16(rec, scale);
}

static inline void scales_nvfp4(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    (void)b, (void)min;
    scale_bf16(rec, scale);
    scale_bf16(rec + 32, scale + PANEL);
}

static inline void scales_q4_k(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    const uint8_t *sm = rec + 64 + b % 8 * 32;

    scale_times(rec, sm, 0, scale);
    scale_times(rec + 32, sm + 16, 0, min);
    for (int i = 0; i < PANEL; i++)
        min[i] = -min[i];
}

static inline void scales_q6_k(const uint8_t *rec, int64_t b, float *scale, float *min)
{
    const uint8_t *sc = rec + 32 + b % 8 * 32;

    (void)min;
    scale_times(rec, sc, 1, scale);
    scale_times(rec, sc + 16, 1, scale + PANEL);
}
