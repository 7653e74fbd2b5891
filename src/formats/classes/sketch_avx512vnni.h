/* sketch_avx512vnni.h: signs of a sketch (qjl1_256.c) in the integer path.
 * score: lanes are 16 keys.  vgf2p8affineqb moves bit k of every byte of the signs to bit 0: the unsigned bytes of
 * vpdpbusd.  sum(+-q) = 2 * sum of q at set bits - sum of q. Per (query, key): 4 vpdpbusd; per key 4 to select bits
 * and 2.5 to turn rows into lanes.  (Eight bit planes and VPOPCNT take 12.)  The numbers are those of
 * kvant_qjl_score_i8. V in this format is for debugging: axpy_q8 is axpy. */
#include "formats/simd/simd_card.h"
#include "formats/simd/simd_rep.h"
#include "kvant/qjl.h"

enum { QJL_SET = 16, QJL_HEAD = 192, QJL_FAR = 1 << 26 };
enum { QJL_GROUPS = KVANT_MAX_HEAD_DIM / KVANT_QJL_DIM };

/* A prepared query: f32 scale of each group; at byte 64 i32 sum of each group; at 192 the sketch in int8, groups one
 * after the other: byte 32k + 4D + i is value 32D + 8i + k. */
static void qjl_prep_q8(const void *param, const float *qp, void *q8, int d)
{
    uint8_t *head = q8;
    memset(head, 0, QJL_HEAD);
    (void)param;
    for (int g = 0; g < d / KVANT_QJL_DIM; g++, qp += KVANT_QJL_SKETCH) {
        int8_t q[KVANT_QJL_SKETCH];
        uint8_t *out = head + QJL_HEAD + g * KVANT_QJL_SKETCH;
        int32_t sum = 0;
        float scale, finite = 0.0f;
        kvant_qjl_query_i8(qp, q, &scale);
        for (int j = 0; j < KVANT_QJL_SKETCH; j++) {
            sum += q[j];
            finite += qp[j] * 0.0f;
            out[j % 8 * 32 + j / 32 * 4 + j % 32 / 8] = (uint8_t)q[j];
        }
        scale += finite;                   /* NaN if a value is not finite */
        memcpy(head + 4 * g, &scale, sizeof scale);
        memcpy(head + 64 + 4 * g, &sum, sizeof sum);
    }
}

/* The norms of 16 rows at p, times sqrt(pi/2)/256: the upper halves of the dwords that end the rows. */
static inline __m512 qjl_norms(const uint8_t *p, __m512i row)
{
    __m512i w = _mm512_and_si512(_mm512_i32gather_epi32(row, p + 30, 1), _mm512_set1_epi32((int)0xffff0000));
    return _mm512_mul_ps(_mm512_set1_ps(bits_f32(CARD_SCALE_TIMES)), _mm512_castsi512_ps(w));
}

/* One set of keys against up to four queries. */
typedef struct qjl_strip {
    const uint8_t *rows, *head;
    size_t stride, ldq8;
    float *s;
    size_t lds;
    int d, n;
} qjl_strip;

#define QJL_QUERY(j) (t->head + (size_t)(j) * t->ldq8)
#define QJL_ZERO(j) __m512 f##j = _mm512_setzero_ps();
/* a, e: sums over even and odd words: two chains hide the latency of vpdpbusd */
#define QJL_OPEN(j) __m512i a##j = _mm512_setzero_si512(), e##j = a##j;
#define QJL_ADD(j)                                                                                          \
    a##j = _mm512_dpbusd_epi32(a##j, even, vb_splat4(QJL_QUERY(j) + at + 8 * w));                           \
    e##j = _mm512_dpbusd_epi32(e##j, odd, vb_splat4(QJL_QUERY(j) + at + 8 * w + 4));
#define QJL_WORDS(Q, i)                                                                                     \
    {                                                                                                       \
        enum { w = i };                                                                                     \
        __m512i even = _mm512_gf2p8affine_epi64_epi8(x[2 * w], bit, 0);                                     \
        __m512i odd = _mm512_gf2p8affine_epi64_epi8(x[2 * w + 1], bit, 0);                                  \
        REP##Q(QJL_ADD)                                                                                     \
    }
#define QJL_CLOSE(j)                                                                                        \
    {                                                                                                       \
        __m512i all = vb_splat4(QJL_QUERY(j) + 64 + 4 * g);                                                 \
        float scale;                                                                                        \
        memcpy(&scale, QJL_QUERY(j) + 4 * g, sizeof scale);                                                 \
        __m512i set = _mm512_add_epi32(a##j, e##j);                                                         \
        __m512 v = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_slli_epi32(set, 1), all));                    \
        f##j = _mm512_add_ps(f##j, _mm512_mul_ps(_mm512_mul_ps(norms, _mm512_set1_ps(scale)), v));          \
    }
#define QJL_PUT(j) _mm512_mask_storeu_ps(t->s + (size_t)(j) * t->lds, put, f##j);

#define QJL_TILE(Q)                                                                                         \
    static void qjl_score_##Q(const qjl_strip *t)                                                           \
    {                                                                                                       \
        __mmask16 put = (__mmask16)(t->n >= QJL_SET ? 0xffff : (1u << t->n) - 1);                           \
        const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);       \
        const __m512i row = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)t->stride));                    \
        REP##Q(QJL_ZERO)                                                                                    \
        for (int g = 0; g < t->d / KVANT_QJL_DIM; g++) {                                                    \
            const uint8_t *p = t->rows + g * CARD_BYTES_OF_RECORD;                                                     \
            __m512 norms = qjl_norms(p, row);                                                               \
            __m512i x[8];                                                                                   \
            int at = QJL_HEAD + g * KVANT_QJL_SKETCH;                                                       \
            keys_sixteen(p, t->stride, x);                                                                  \
            keys_sixteen(p + 16, t->stride, x + 4);                                                         \
            REP##Q(QJL_OPEN)                                                                                \
            for (unsigned k = 0; k < 8; k++, at += 32) {                                                    \
                const __m512i bit = _mm512_set1_epi64((long long)(1ull << (56 + k)));                       \
                QJL_WORDS(Q, 0) QJL_WORDS(Q, 1) QJL_WORDS(Q, 2) QJL_WORDS(Q, 3)                             \
            }                                                                                               \
            REP##Q(QJL_CLOSE)                                                                               \
        }                                                                                                   \
        REP##Q(QJL_PUT)                                                                                     \
    }

QJL_TILE(1)
QJL_TILE(2)
QJL_TILE(4)

static void qjl_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *rows, size_t stride,
                         int n, float *s, size_t lds, int d)
{
    static void (*const tiles[3])(const qjl_strip *) = { qjl_score_1, qjl_score_2, qjl_score_4 };
    uint8_t last[QJL_SET * QJL_GROUPS * CARD_BYTES_OF_RECORD];
    size_t row_bytes = (size_t)(d / KVANT_QJL_DIM) * CARD_BYTES_OF_RECORD;

    (void)param;
    for (int i = 0; i < n; i += QJL_SET) {
        qjl_strip t = { .rows = rows + (size_t)i * stride, .stride = stride, .ldq8 = ldq8, .lds = lds, .d = d };
        t.n = n - i;
        if (t.n < QJL_SET || stride > QJL_FAR) {    /* copied, zeros behind the last */
            memset(last, 0, sizeof last);
            for (int k = 0; k < t.n && k < QJL_SET; k++)
                memcpy(last + (size_t)k * row_bytes, t.rows + (size_t)k * stride, row_bytes);
            t.rows = last;
            t.stride = row_bytes;
        }
        for (int j = 0, q; j < r; j += q) {
            q = r - j >= 4 ? 4 : r - j >= 2 ? 2 : 1;
            t.head = (const uint8_t *)q8 + (size_t)j * ldq8;
            t.s = s + (size_t)j * lds + i;
            tiles[q / 2](&t);
        }
    }
}

static void qjl_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                        float *acc, size_t lda, int d)
{
    CARD_KERNELS(CARD_NAME, avx512).axpy(param, w, ldw, r, rows, stride, n, acc, lda, d);
}

const kvant_format_kernels CARD_KERNELS(CARD_NAME, avx512vnni) = {
    .prep_q8 = qjl_prep_q8, .score_q8 = qjl_score_q8, .axpy_q8 = qjl_axpy_q8,
};
