/* sketch.h: signs of a sketch (qjl1_256.c) over vf_<isa>.h, after it and
 *   card_decode32(row, b, v)   sketch values 32b .. 32b+31
 *   positive_bits(v)           bit j: lane j > 0
 *   sketch_squares(x)          |x|^2 of 128 values */
#include "formats/simd/simd_rep.h"

/* d counts real values: a row has 2*d sketch values, which is what blocks run over */
#define BLOCK_DECODE card_decode32
#include "formats/simd/simd_blocks.h"

static void qjl_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    blocks_decode_acc(param, rows, stride, n, out, 2 * d);
}

static void qjl_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                     float *acc, size_t lda, int d)
{
    blocks_axpy(param, w, ldw, r, rows, stride, n, acc, lda, 2 * d);
}

/* Sketches of a few rows, some columns: s[j][c] = sum_i x[j][i]*pi[i][c], one FMA per term, i ascending, so that no
 * tile shows in a sketch.  The columns of the projection, 16 or 32 KiB, stay in L1 for all rows of a call. */
#define QS_ZERO(j, c) vf a##j##c = vf_zero();
#define QS_VALUE(j) vf y##j = vf_set1(x[(size_t)(j) * ldx + (size_t)i]);
#define QS_FMA(j, c) a##j##c = vf_fma(y##j, p, a##j##c);
#define QS_COLUMN(c, ROWS) { vf p = vf_load(pi + (size_t)i * KVANT_QJL_SKETCH + VF_LANES * (c)); ROWS(c) }
#define QS_ROWS1(c) QS_FMA(0, c)
#define QS_ROWS2(c) QS_ROWS1(c) QS_FMA(1, c)
#define QS_ROWS3(c) QS_ROWS2(c) QS_FMA(2, c)
#define QS_ROWS4(c) QS_ROWS3(c) QS_FMA(3, c)
#define QS_ROWS6(c) QS_ROWS4(c) QS_FMA(4, c) QS_FMA(5, c)
#define QS_COLUMNS4(R) QS_COLUMN(0, R) QS_COLUMN(1, R) QS_COLUMN(2, R) QS_COLUMN(3, R)
#define QS_COLUMNS8(R) QS_COLUMNS4(R) QS_COLUMN(4, R) QS_COLUMN(5, R) QS_COLUMN(6, R) QS_COLUMN(7, R)
#define QS_STORE(j, c) vf_store(s + (j) * KVANT_QJL_SKETCH + VF_LANES * (c), a##j##c);
#define QJL_SKETCH(Q, C)                                                                                    \
    static void qjl_sketch_##Q(const float *pi, const float *x, size_t ldx, float *s)                       \
    {                                                                                                       \
        GRID##Q##x##C(QS_ZERO)                                                                              \
        (void)ldx;                                                                                          \
        for (int i = 0; i < KVANT_QJL_DIM; i++) {                                                           \
            REP##Q(QS_VALUE)                                                                                \
            QS_COLUMNS##C(QS_ROWS##Q)                                                                       \
        }                                                                                                   \
        GRID##Q##x##C(QS_STORE)                                                                             \
    }

#ifdef VF_TILE44
enum { QS_WIDTH = 64, QS_MANY = 6, QS_SOME = 4 };
QJL_SKETCH(1, 4)
QJL_SKETCH(4, 4)
QJL_SKETCH(6, 4)
#define qjl_sketch_some qjl_sketch_4
#define qjl_sketch_many qjl_sketch_6
#else
enum { QS_WIDTH = 32, QS_MANY = 3, QS_SOME = 2 };
QJL_SKETCH(1, 8)
QJL_SKETCH(2, 4)
QJL_SKETCH(3, 4)
#define qjl_sketch_some qjl_sketch_2
#define qjl_sketch_many qjl_sketch_3
#endif

/* n rows, as many as tiles of several take; returns how many. */
static int qjl_sketch_tiles(const float *pi, const float *x, size_t ldx, int n, float *s)
{
    int j = 0;
    for (int c = 0; c < KVANT_QJL_SKETCH; c += QS_WIDTH) {
        for (j = 0; j + QS_MANY <= n; j += QS_MANY)
            qjl_sketch_many(pi + c, x + (size_t)j * ldx, ldx, s + j * KVANT_QJL_SKETCH + c);
        for (; j + QS_SOME <= n; j += QS_SOME)
            qjl_sketch_some(pi + c, x + (size_t)j * ldx, ldx, s + j * KVANT_QJL_SKETCH + c);
    }
    return j;
}

/* s f32[n][256] */
static void qjl_sketches(const float *pi, const float *x, size_t ldx, int n, float *s)
{
    for (int j = 0; !pi && j < n * KVANT_QJL_SKETCH; j++) /* as the reference without a projection */
        s[j] = NAN;
    if (!pi)
        return;
    for (int j = qjl_sketch_tiles(pi, x, ldx, n, s); j < n; j++)
        for (int c = 0; c < KVANT_QJL_SKETCH; c += 64)
            qjl_sketch_1(pi + c, x + (size_t)j * ldx, ldx, s + j * KVANT_QJL_SKETCH + c);
}

static void qjl_prep_q(const void *param, const float *q, float *qp, int d)
{
    for (int g = 0; g < d / KVANT_QJL_DIM; g++)
        qjl_sketches(param, q + g * KVANT_QJL_DIM, 0, 1, qp + g * KVANT_QJL_SKETCH);
}

static void qjl_pack(const float *pi, const float *x, const float *s, uint8_t *bytes)
{
    for (int j = 0; j < KVANT_QJL_SKETCH; j += VF_LANES) {
        const uint16_t bits = positive_bits(vf_load(s + j));
        memcpy(bytes + j / 8, &bits, VF_LANES / 8);
    }
    const uint16_t norm = f32_to_bf16(pi ? (float)sqrt(sketch_squares(x)) : NAN);
    memcpy(bytes + CARD_SCALE_AT, &norm, sizeof norm);
}

static void qjl_encode_rows(const void *param, const float *x, size_t ldx, int n, uint8_t *rows, size_t stride, int d,
                            int encoder)
{
    enum { BATCH = 24 };
    float s[BATCH * KVANT_QJL_SKETCH];
    (void)encoder;
    for (int i = 0; i < n; i += BATCH) {
        int m = n - i < BATCH ? n - i : BATCH;
        for (int g = 0; g < d / KVANT_QJL_DIM; g++) {
            const float *from = x + (size_t)i * ldx + g * KVANT_QJL_DIM;
            qjl_sketches(param, from, ldx, m, s);
            for (int j = 0; j < m; j++) {
                uint8_t *bytes = rows + (size_t)(i + j) * stride + g * CARD_BYTES_OF_RECORD;
                qjl_pack(param, from + (size_t)j * ldx, s + j * KVANT_QJL_SKETCH, bytes);
            }
        }
    }
}

static void qjl_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    qjl_encode_rows(param, x, 0, 1, row, 0, d, encoder);
}

#define SKETCH_KERNELS .encode = qjl_encode, .encode_rows = qjl_encode_rows, .prep_q = qjl_prep_q, \
                       .decode_acc = qjl_decode_acc, .axpy = qjl_axpy
