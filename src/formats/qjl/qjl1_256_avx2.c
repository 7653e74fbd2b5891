/* qjl1_256_avx2.c: 34 bytes per 128 values: [signs u8 x 32][norm bf16], 256 sketch values (see qjl1_256.c).
 * A sketch value is +-(scale * norm): a bit moved to the sign position of a constant.
 * The sketch sums over the key's values in ascending order, 64 columns at a time in registers: the reference's bits. */
#include "formats/format.h"
#include "formats/simd_encode_avx2.h"
#include "kvant/qjl.h"

#include <math.h>
#include "base/half.h"

static inline void qjl_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 8) * 34;
    const __m256i top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24), sign = _mm256_set1_epi32((int)0x80000000u);
    uint32_t bits;
    uint16_t norm;
    memcpy(&bits, group + b % 8 * 4, sizeof bits);
    memcpy(&norm, group + 32, sizeof norm);
    __m256i x = _mm256_set1_epi32((int)~bits);
    vf scale = vf_mul(vf_set1(bits_f32(0x3ba06c99u)), vf_set1(bf16_to_f32(norm)));

    v[0] = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(_mm256_sllv_epi32(x, top), sign)));
    x = _mm256_srli_epi32(x, 8);
    v[1] = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(_mm256_sllv_epi32(x, top), sign)));
    x = _mm256_srli_epi32(x, 8);
    v[2] = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(_mm256_sllv_epi32(x, top), sign)));
    x = _mm256_srli_epi32(x, 8);
    v[3] = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(_mm256_sllv_epi32(x, top), sign)));
}

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
    for (int c = 0; c < KVANT_QJL_SKETCH; c += 64) {
        vf a[8];
        for (int k = 0; k < 8; k++)
            a[k] = vf_zero();
        for (int i = 0; i < KVANT_QJL_DIM; i++) {
            const float *p = pi + i * KVANT_QJL_SKETCH + c;
            vf y = vf_set1(x[i]);
#define QJL_TERM(k) a[k] = _mm256_add_ps(a[k], vf_mul(y, vf_load(p + 8 * (k))));
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
            row[j / 8] = (uint8_t)_mm256_movemask_ps(_mm256_cmp_ps(vf_load(s + j), vf_zero(), _CMP_GT_OQ));
        for (int i = 0; i < KVANT_QJL_DIM; i++)
            sum += (double)x[i] * x[i];
        uint16_t norm = f32_to_bf16((float)sqrt(sum));
        memcpy(row + 32, &norm, sizeof norm);
    }
}

const kvant_format_kernels kvant_qjl1_256_kernels_avx2 = {
    .encode = qjl_encode, .prep_q = qjl_prep_q, .decode_acc = qjl_decode_acc, .score = qjl_score, .axpy = qjl_axpy,
};
