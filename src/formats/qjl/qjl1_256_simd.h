/* qjl1_256_simd.h: qjl1_256 over an 8-lane vector layer (see qjl1_256.c), after it and
 *   qjl_decode32(row, b, v)    sketch values 32b .. 32b+31
 *   positive_bits(v)           bit j: lane j > 0
 * The sketch sums over the key's values in ascending order, 64 columns at a time in registers: the reference's bits. */
#include <math.h>
#include "base/half.h"
#include "formats/format.h"
#include "kvant/qjl.h"

/* d counts real values: a row has 2*d sketch values, which is what blocks run over */
#define BLOCK_DECODE qjl_decode32
#include "formats/simd_blocks.h"

static void qjl_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    blocks_decode_acc(param, rows, stride, n, out, 2 * d);
}

static void qjl_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride, int n,
                      float *s, size_t lds, int d)
{
    blocks_score(param, qp, ldq, r, rows, stride, n, s, lds, 2 * d);
}

static void qjl_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                     float *acc, size_t lda, int d)
{
    blocks_axpy(param, w, ldw, r, rows, stride, n, acc, lda, 2 * d);
}

/* s[j] = sum_i x[i]*pi[i][j]: one multiplication and one addition per term, i ascending, as the reference rounds. */
static void qjl_sketch(const float *pi, const float *x, float *s)
{
    for (int j = 0; !pi && j < KVANT_QJL_SKETCH; j++) /* as the reference without a projection */
        s[j] = NAN;
    if (!pi)
        return;
    for (int c = 0; c < KVANT_QJL_SKETCH; c += 64) {
        vf a[8];
        for (int k = 0; k < 8; k++)
            a[k] = vf_zero();
        for (int i = 0; i < KVANT_QJL_DIM; i++) {
            const float *p = pi + i * KVANT_QJL_SKETCH + c;
            vf y = vf_set1(x[i]);
#define QJL_TERM(k) a[k] = vf_add(a[k], vf_mul(y, vf_load(p + 8 * (k))));
            REP8(QJL_TERM)
        }
        for (int k = 0; k < 8; k++)
            vf_store(s + c + 8 * k, a[k]);
    }
}

static void qjl_prep_q(const void *param, const float *q, float *qp, int d)
{
    for (int g = 0; g < d / KVANT_QJL_DIM; g++)
        qjl_sketch(param, q + g * KVANT_QJL_DIM, qp + g * KVANT_QJL_SKETCH);
}

static void qjl_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)encoder;
    for (int g = 0; g < d / KVANT_QJL_DIM; g++, x += KVANT_QJL_DIM, row += 34) {
        float s[KVANT_QJL_SKETCH];
        double sum = 0.0;
        qjl_sketch(param, x, s);
        for (int j = 0; j < KVANT_QJL_SKETCH; j += 8)
            row[j / 8] = positive_bits(vf_load(s + j));
        for (int i = 0; i < KVANT_QJL_DIM; i++)
            sum += (double)x[i] * x[i];
        uint16_t norm = f32_to_bf16(param ? (float)sqrt(sum) : NAN);
        memcpy(row + 32, &norm, sizeof norm);
    }
}
