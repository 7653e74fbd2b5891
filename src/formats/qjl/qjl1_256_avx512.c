/* qjl1_256_avx512.c: 34 bytes per 128 values: [signs u8 x 32][norm bf16], 256 sketch values (see qjl1_256.c).
 * A byte pair of signs is a mask between +scale and -scale. */
#include "formats/format.h"
#include "formats/simd_avx512.h"
#include <math.h>
#include "base/half.h"
#include "kvant/qjl.h"

static inline void qjl_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 8) * 34;
    uint32_t bits;
    uint16_t norm;
    memcpy(&bits, group + b % 8 * 4, sizeof bits);
    memcpy(&norm, group + 32, sizeof norm);
    vf scale = vf_mul(vf_set1(bits_f32(0x3ba06c99u)), vf_set1(bf16_to_f32(norm)));
    vf minus = _mm512_xor_ps(scale, vf_set1(-0.0f));
    v[0] = _mm512_mask_blend_ps((__mmask16)bits, minus, scale);
    v[1] = _mm512_mask_blend_ps((__mmask16)(bits >> 16), minus, scale);
}

/* d counts real values: a row has 2*d sketch values, which is what blocks run over */
#define BLOCK_DECODE qjl_decode32
#include "formats/simd_blocks.h"

static void qjl_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    blocks_decode_acc(param, rows, stride, n, out, 2 * d);
}

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
        memcpy(&norm, k->at[i] + 32, sizeof norm);
        k->plus[i] = vf_mul(vf_set1(bits_f32(0x3ba06c99u)), vf_set1(bf16_to_f32(norm)));
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
    for (int g = 0; g < d / KVANT_QJL_DIM; g++, rows += 34, q += KVANT_QJL_SKETCH) {
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

static void qjl_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                     float *acc, size_t lda, int d)
{
    blocks_axpy(param, w, ldw, r, rows, stride, n, acc, lda, 2 * d);
}

/* Sketches of a few rows, 64 columns: s[j][c] = sum_i x[j][i]*pi[i][c], one FMA per term, i ascending, so that no tile
 * shows in a sketch.  64 columns of the projection are 32 KiB, which stay in L1 for all rows of a call. */
#define QS_LOAD(c) vf p##c = vf_load(pi + (size_t)i * KVANT_QJL_SKETCH + 16 * (c));
#define QS_FMA(j, c) a##j##c = vf_fma(y, p##c, a##j##c);
#define QS_ROW(j) { vf y = vf_set1(x[(size_t)(j) * ldx + (size_t)i]); ROW4(QS_FMA, j) }
#define QS_STORE(j, c) vf_store(s + (j) * KVANT_QJL_SKETCH + 16 * (c), a##j##c);
#define QJL_SKETCH(Q)                                                                                       \
    static void qjl_sketch_##Q(const float *pi, const float *x, size_t ldx, float *s)                       \
    {                                                                                                       \
        GRID##Q##x4(QJL_ZERO)                                                                               \
        (void)ldx;                                                                                          \
        for (int i = 0; i < KVANT_QJL_DIM; i++) {                                                           \
            REP4(QS_LOAD)                                                                                   \
            REP##Q(QS_ROW)                                                                                  \
        }                                                                                                   \
        GRID##Q##x4(QS_STORE)                                                                               \
    }

QJL_SKETCH(1)
QJL_SKETCH(4)
QJL_SKETCH(6)

/* s f32[n][256] */
static void qjl_sketches(const float *pi, const float *x, size_t ldx, int n, float *s)
{
    for (int j = 0; !pi && j < n * KVANT_QJL_SKETCH; j++) /* as the reference without a projection */
        s[j] = NAN;
    if (!pi)
        return;
    for (int c = 0; c < KVANT_QJL_SKETCH; c += 64) {
        int j = 0;
        for (; j + 6 <= n; j += 6)
            qjl_sketch_6(pi + c, x + (size_t)j * ldx, ldx, s + j * KVANT_QJL_SKETCH + c);
        for (; j + 4 <= n; j += 4)
            qjl_sketch_4(pi + c, x + (size_t)j * ldx, ldx, s + j * KVANT_QJL_SKETCH + c);
        for (; j < n; j++)
            qjl_sketch_1(pi + c, x + (size_t)j * ldx, ldx, s + j * KVANT_QJL_SKETCH + c);
    }
}

static void qjl_prep_q(const void *param, const float *q, float *qp, int d)
{
    for (int g = 0; g < d / KVANT_QJL_DIM; g++)
        qjl_sketches(param, q + g * KVANT_QJL_DIM, 0, 1, qp + g * KVANT_QJL_SKETCH);
}

static void qjl_pack(const float *x, const float *s, uint8_t *bytes)
{
    __m512d even = _mm512_setzero_pd(), odd = even;
    for (int j = 0; j < KVANT_QJL_SKETCH; j += 16) {
        uint16_t bits = _mm512_cmp_ps_mask(vf_load(s + j), vf_zero(), _CMP_GT_OQ);
        memcpy(bytes + j / 8, &bits, sizeof bits);
    }
    for (int i = 0; i < KVANT_QJL_DIM; i += 16) {
        __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + i)), b = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));
        even = _mm512_fmadd_pd(a, a, even);
        odd = _mm512_fmadd_pd(b, b, odd);
    }
    uint16_t norm = f32_to_bf16((float)sqrt(_mm512_reduce_add_pd(_mm512_add_pd(even, odd))));
    memcpy(bytes + 32, &norm, sizeof norm);
}

static void qjl_encode_rows(const void *param, const float *x, size_t ldx, int n, uint8_t *rows, size_t stride, int d,
                            int encoder)
{
    enum { BATCH = 24 };
    const uint16_t no_norm = f32_to_bf16(NAN);
    float s[BATCH * KVANT_QJL_SKETCH];
    (void)encoder;
    for (int i = 0; i < n; i += BATCH) {
        int m = n - i < BATCH ? n - i : BATCH;
        for (int g = 0; g < d / KVANT_QJL_DIM; g++) {
            const float *from = x + (size_t)i * ldx + g * KVANT_QJL_DIM;
            qjl_sketches(param, from, ldx, m, s);
            for (int j = 0; j < m; j++) {
                uint8_t *bytes = rows + (size_t)(i + j) * stride + g * 34;
                qjl_pack(from + (size_t)j * ldx, s + j * KVANT_QJL_SKETCH, bytes);
                if (!param)
                    memcpy(bytes + 32, &no_norm, sizeof no_norm);
            }
        }
    }
}

static void qjl_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    qjl_encode_rows(param, x, 0, 1, row, 0, d, encoder);
}

const kvant_format_kernels kvant_qjl1_256_kernels_avx512 = {
    .encode = qjl_encode, .encode_rows = qjl_encode_rows, .prep_q = qjl_prep_q,
    .decode_acc = qjl_decode_acc, .score = qjl_score, .axpy = qjl_axpy,
};
