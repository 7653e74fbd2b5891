/* qjl1_256: 34 bytes per 128 values: [signs u8 x 32][norm bf16].  Bit j of the sketch is signs[j/8] bit j%8.
 * param: the projection Pi f32[128][256] (kvant/qjl.h).
 *
 * acc space: the sketch, 256 values: value j = (+-) (sqrt(pi/2)/256 * norm).  prep_q(q) = q * Pi;
 * finish_out(acc) = Pi * acc, a cosine-style estimate of the key, for debugging rather than for V.
 * Encode: bit j = 1 iff sum_i x[i]*Pi[i][j] > 0 (0, -0 and NaN give 0), sum in f32 with ascending i;
 * norm = |x| (double) to bf16.  There is nothing to search: upstream and best are one.
 * Source: docs/formats/qjl1_256.md.  Golden: tests/golden/qjl1_256_*.json. */
#include "formats/format.h"

#include <math.h>
#include "formats/qjl/score_i8.h"

static void fill_nan(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = NAN;
}

static void sketch(const float *pi, const float *x, float *s)
{
    if (!pi) { /* not checked by the caller: no numbers that look like any */
        fill_nan(s, KVANT_QJL_SKETCH);
        return;
    }
    memset(s, 0, KVANT_QJL_SKETCH * sizeof *s);
    for (int i = 0; i < KVANT_QJL_DIM; i++, pi += KVANT_QJL_SKETCH)
        for (int j = 0; j < KVANT_QJL_SKETCH; j++)
            s[j] += x[i] * pi[j];
}

static void qjl1_256_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    float s[KVANT_QJL_SKETCH];
    double sum = 0.0;
    (void)encoder;
    sketch(param, x, s);
    memset(bytes, 0, 32);
    for (int j = 0; j < KVANT_QJL_SKETCH; j++)
        bytes[j / 8] = (uint8_t)(bytes[j / 8] | (s[j] > 0.0f) << (j % 8));
    for (int i = 0; i < KVANT_QJL_DIM; i++)
        sum += (double)x[i] * x[i];
    store_u16(bytes + 32, f32_to_bf16(param ? (float)sqrt(sum) : NAN));
}

static void qjl1_256_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    float scale = bits_f32(QJL_SCALE_BITS) * bf16_to_f32(load_u16(bytes + 32));
    (void)param;
    for (int j = 0; j < KVANT_QJL_SKETCH; j++)
        acc[j] = bytes[j / 8] >> (j % 8) & 1 ? scale : -scale;
}

static void qjl1_256_prep_group(const void *param, const float *q, float *qp)
{
    sketch(param, q, qp);
}

static void qjl1_256_finish_group(const void *param, const float *acc, float *x)
{
    const float *pi = param;
    if (!pi) {
        fill_nan(x, KVANT_QJL_DIM);
        return;
    }
    for (int i = 0; i < KVANT_QJL_DIM; i++, pi += KVANT_QJL_SKETCH) {
        float sum = 0.0f;
        for (int j = 0; j < KVANT_QJL_SKETCH; j++)
            sum += pi[j] * acc[j];
        x[i] = sum;
    }
}

KVANT_FORMAT_DEFINE(qjl1_256, "qjl", 128, 34, 256, KVANT_FORMAT_PARAM);
