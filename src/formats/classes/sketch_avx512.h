/* sketch_avx512.h: signs of a sketch (qjl1_256.c).  A byte pair of signs is a mask between +scale and -scale. */
#include <math.h>
#include "formats/simd/simd_card.h"
#include "kvant/qjl.h"

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    uint32_t bits;
    uint16_t norm;
    memcpy(&bits, card_codes(row, b), sizeof bits);
    memcpy(&norm, card_scale(row, b), sizeof norm);
    vf scale = vf_mul(vf_set1(bits_f32(CARD_SCALE_TIMES)), vf_set1(bf16_to_f32(norm)));
    vf minus = _mm512_xor_ps(scale, vf_set1(-0.0f));
    v[0] = _mm512_mask_blend_ps((__mmask16)bits, minus, scale);
    v[1] = _mm512_mask_blend_ps((__mmask16)(bits >> 16), minus, scale);
}

static inline uint16_t positive_bits(vf v)
{
    return _mm512_cmp_ps_mask(v, vf_zero(), _CMP_GT_OQ);
}

/* |x|^2 of 128 values */
static inline double sketch_squares(const float *x)
{
    __m512d even = _mm512_setzero_pd(), odd = even;
    for (int i = 0; i < KVANT_QJL_DIM; i += 16) {
        __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + i)), b = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));
        even = _mm512_fmadd_pd(a, a, even);
        odd = _mm512_fmadd_pd(b, b, odd);
    }
    return _mm512_reduce_add_pd(_mm512_add_pd(even, odd));
}

#include "formats/classes/sketch.h"

/* 4 queries x 4 keys: as blocks_score, with the two signs of a norm made once per group. */
typedef struct qjl_keys {
    const uint8_t *at[4];
    vf plus[4], minus[4];
} qjl_keys;

static inline void qjl_keys_open(qjl_keys *k, const uint8_t *rows, size_t stride)
{
    for (int i = 0; i < 4; i++) {
        uint16_t norm;
        k->at[i] = rows + (size_t)i * stride;
        memcpy(&norm, k->at[i] + CARD_SCALE_AT, sizeof norm);
        k->plus[i] = vf_mul(vf_set1(bits_f32(CARD_SCALE_TIMES)), vf_set1(bf16_to_f32(norm)));
        k->minus[i] = _mm512_xor_ps(k->plus[i], vf_set1(-0.0f));
    }
}

#define QJL_ZERO(j, k) vf a##j##k = vf_zero();
#define QJL_SIGN(k)                                                            \
    uint16_t m##k;                                                             \
    memcpy(&m##k, keys.at[k] + 2 * c, sizeof m##k);                            \
    vf x##k = _mm512_mask_blend_ps(m##k, keys.minus[k], keys.plus[k]);
#define QJL_FMA(j, k) a##j##k = vf_fma(y, x##k, a##j##k);
#define QJL_ROW(j) { vf y = vf_load(q + (j) * ldq + 16 * c); ROW4(QJL_FMA, j) }

static void qjl_score_4x4(const float *q, size_t ldq, const uint8_t *rows, size_t stride, float *s, size_t lds, int d)
{
    GRID4x4(QJL_ZERO)
    for (int g = 0; g < d / KVANT_QJL_DIM; g++, rows += CARD_BYTES_OF_RECORD, q += KVANT_QJL_SKETCH) {
        qjl_keys keys;
        qjl_keys_open(&keys, rows, stride);
        for (int c = 0; c < KVANT_QJL_SKETCH / 16; c++) {
            REP4(QJL_SIGN)
            REP4(QJL_ROW)
        }
    }
    const vf t[16] = { a00, a01, a02, a03, a10, a11, a12, a13, a20, a21, a22, a23, a30, a31, a32, a33 };
    vf_put44(s, lds, t);
}

static void qjl_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride, int n,
                      float *s, size_t lds, int d)
{
    int whole = n / 4 * 4;
    for (; r >= 4; r -= 4, qp += 4 * ldq, s += 4 * lds) {
        for (int i = 0; i < whole; i += 4)
            qjl_score_4x4(qp, ldq, rows + (size_t)i * stride, stride, s + i, lds, d);
        blocks_score(param, qp, ldq, 4, rows + (size_t)whole * stride, stride, n - whole, s + whole, lds, 2 * d);
    }
    if (r)
        blocks_score(param, qp, ldq, r, rows, stride, n, s, lds, 2 * d);
}

const kvant_format_kernels CARD_KERNELS(CARD_NAME, VF_ISA) = { SKETCH_KERNELS, .score = qjl_score };
