/* simd_wide.h: kernels of the plain formats (f32, f16, bf16), written once over vf_<isa>.h.
 *
 * Before including: the vocabulary (vf_<isa>.h), and
 *   WIDE_BYTES   bytes per value
 *   WIDE_LOAD    vf_load_<format>
 * Gives wide_score and wide_axpy.
 *
 * Tiles hold q queries x k keys (score) or q weight rows x c vectors of columns (axpy) in registers: 8 to 12 chains,
 * what two FMA units with a latency of 4 need.  Bit rule: each (query, key) has one accumulator over ascending chunks
 * of VF_LANES values; a last partial chunk is padded with zeros; each output column takes one FMA per row, ascending.
 * So no tile shows in a result, and simd_blocks.h can hand its decoded values to these kernels. */
#include "formats/simd/simd_rep.h"

/* A partial chunk of m < VF_LANES values, zero-padded. */
static vf wide_load_part(const uint8_t *p, int m)
{
    uint8_t chunk[VF_LANES * WIDE_BYTES] = { 0 };
    memcpy(chunk, p, (size_t)m * WIDE_BYTES);
    return WIDE_LOAD(chunk);
}

static vf float_load_part(const float *p, int m)
{
    float chunk[VF_LANES] = { 0 };
    memcpy(chunk, p, (size_t)m * sizeof *p);
    return vf_load(chunk);
}

#define SC_ZERO(j, k) vf a##j##k = vf_zero();
#define SC_KEY(k) vf x##k = WIDE_LOAD(rows + (k) * stride + (size_t)c * WIDE_BYTES);
#define SC_KEY_PART(k) vf x##k = wide_load_part(rows + (k) * stride + (size_t)c * WIDE_BYTES, d - c);
#define SC_FMA(j, k) a##j##k = vf_fma(y, x##k, a##j##k);
#define SC_QUERY1(j) { vf y = vf_load(q + (j) * ldq + c); ROW1(SC_FMA, j) }
#define SC_QUERY2(j) { vf y = vf_load(q + (j) * ldq + c); ROW2(SC_FMA, j) }
#define SC_QUERY3(j) { vf y = vf_load(q + (j) * ldq + c); ROW3(SC_FMA, j) }
#define SC_QUERY4(j) { vf y = vf_load(q + (j) * ldq + c); ROW4(SC_FMA, j) }
#define SC_QUERY8(j) { vf y = vf_load(q + (j) * ldq + c); ROW8(SC_FMA, j) }
#define SC_PART1(j) { vf y = float_load_part(q + (j) * ldq + c, d - c); ROW1(SC_FMA, j) }
#define SC_PART2(j) { vf y = float_load_part(q + (j) * ldq + c, d - c); ROW2(SC_FMA, j) }
#define SC_PART3(j) { vf y = float_load_part(q + (j) * ldq + c, d - c); ROW3(SC_FMA, j) }
#define SC_PART4(j) { vf y = float_load_part(q + (j) * ldq + c, d - c); ROW4(SC_FMA, j) }
#define SC_PART8(j) { vf y = float_load_part(q + (j) * ldq + c, d - c); ROW8(SC_FMA, j) }
#define SC_PUT1(j) vf_put1(s + (j) * lds, a##j##0);
#define SC_PUT3(j) vf_put3(s + (j) * lds, a##j##0, a##j##1, a##j##2);
#define SC_PUT4(j) vf_put4(s + (j) * lds, a##j##0, a##j##1, a##j##2, a##j##3);
#define SC_PUT8(j) SC_PUT4(j) vf_put4(s + (j) * lds + 4, a##j##4, a##j##5, a##j##6, a##j##7);
#define SC_PUT_1x1 REP1(SC_PUT1)
#define SC_PUT_2x1 REP2(SC_PUT1)
#define SC_PUT_3x1 REP3(SC_PUT1)
#define SC_PUT_4x1 REP4(SC_PUT1)
#define SC_PUT_1x8 REP1(SC_PUT8)
#define SC_PUT_2x4 REP2(SC_PUT4)
#define SC_PUT_3x4 REP3(SC_PUT4)
#define SC_PUT_4x3 REP4(SC_PUT3)
#define SC_PUT_4x4                                                                                  \
    {                                                                                               \
        const vf v[16] = { a00, a01, a02, a03, a10, a11, a12, a13, a20, a21, a22, a23, a30, a31, a32, a33 }; \
        vf_put44(s, lds, v);                                                                        \
    }
#define SC_PUT_4x2 vf_put22(s, s + lds, a00, a01, a10, a11); vf_put22(s + 2 * lds, s + 3 * lds, a20, a21, a30, a31);

#define SCORE_TILE(Q, K)                                                                            \
    static void score_##Q##x##K(const float *q, size_t ldq, const uint8_t *rows, size_t stride,     \
                                float *s, size_t lds, int d)                                        \
    {                                                                                               \
        int c = 0;                                                                                  \
        GRID##Q##x##K(SC_ZERO)                                                                      \
        for (; c + VF_LANES <= d; c += VF_LANES) {                                                          \
            REP##K(SC_KEY)                                                                          \
            REP##Q(SC_QUERY##K)                                                                     \
        }                                                                                           \
        if (c < d) {                                                                                \
            REP##K(SC_KEY_PART)                                                                     \
            REP##Q(SC_PART##K)                                                                      \
        }                                                                                           \
        SC_PUT_##Q##x##K                                                                            \
    }

SCORE_TILE(1, 8)
SCORE_TILE(1, 1)
SCORE_TILE(2, 4)
SCORE_TILE(2, 1)
SCORE_TILE(3, 4)
SCORE_TILE(3, 1)
#ifdef VF_TILE44
SCORE_TILE(4, 4)
#else
SCORE_TILE(4, 3)
#endif
SCORE_TILE(4, 2)
SCORE_TILE(4, 1)

typedef void (*score_tile_fn)(const float *q, size_t ldq, const uint8_t *rows, size_t stride, float *s, size_t lds,
                              int d);

/* n keys against q queries (1 to 4): wide tiles, then the rest one by one. */
static void score_strip(const float *qp, size_t ldq, int q, const uint8_t *rows, size_t stride, int n, float *s,
                        size_t lds, int d)
{
#ifdef VF_TILE44
    static const score_tile_fn wide[5] = { NULL, score_1x8, score_2x4, score_3x4, score_4x4 };
    static const int width[5] = { 0, 8, 4, 4, 4 };
#else
    static const score_tile_fn wide[5] = { NULL, score_1x8, score_2x4, score_3x4, score_4x3 };
    static const int width[5] = { 0, 8, 4, 4, 3 };
#endif
    static const score_tile_fn one[5] = { NULL, score_1x1, score_2x1, score_3x1, score_4x1 };
    int i = 0;

    while (i < n) {
        int left = n - i, step = 1;
        if (q == 4 && (left == 2 || left == 7 - width[q])) {       /* 64 = 20 * 3 + 2 * 2: never a lone key */
            step = 2;
            score_4x2(qp, ldq, rows + (size_t)i * stride, stride, s + i, lds, d);
        } else if (left >= width[q]) {
            step = width[q];
            wide[q](qp, ldq, rows + (size_t)i * stride, stride, s + i, lds, d);
        } else {
            one[q](qp, ldq, rows + (size_t)i * stride, stride, s + i, lds, d);
        }
        i += step;
    }
}

/* Keys in strips that stay in L1 (12 KiB at d 128 in f32) while all queries pass over them. */
enum { SCORE_STRIP = 24 };

static void wide_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride,
                       int n, float *s, size_t lds, int d)
{
    (void)param;
    for (int i = 0; i < n; i += SCORE_STRIP) {
        int strip = r <= 4 || n - i < SCORE_STRIP ? n - i : SCORE_STRIP;
        for (int j = 0; j < r; j += 4)
            score_strip(qp + (size_t)j * ldq, ldq, r - j < 4 ? r - j : 4, rows + (size_t)i * stride, stride, strip,
                        s + (size_t)j * lds + i, lds, d);
        if (r <= 4)
            break;
    }
}

#define AX_LOAD(j, c) vf a##j##c = vf_load(acc + (j) * lda + (c) * VF_LANES);
#define AX_STORE(j, c) vf_store(acc + (j) * lda + (c) * VF_LANES, a##j##c);
#define AX_VALUE(c) vf x##c = WIDE_LOAD(v + (c) * VF_LANES * WIDE_BYTES);
#define AX_FMA(j, c) a##j##c = vf_fma(y, x##c, a##j##c);
#define AX_WEIGHT1(j) { vf y = vf_set1(w[(j) * ldw + (size_t)i]); ROW1(AX_FMA, j) }
#define AX_WEIGHT2(j) { vf y = vf_set1(w[(j) * ldw + (size_t)i]); ROW2(AX_FMA, j) }
#define AX_WEIGHT4(j) { vf y = vf_set1(w[(j) * ldw + (size_t)i]); ROW4(AX_FMA, j) }
#define AX_WEIGHT8(j) { vf y = vf_set1(w[(j) * ldw + (size_t)i]); ROW8(AX_FMA, j) }

#define AXPY_TILE(Q, C)                                                                             \
    static void axpy_##Q##x##C(const float *w, size_t ldw, const uint8_t *v, size_t stride, int n,  \
                               float *acc, size_t lda)                                              \
    {                                                                                               \
        GRID##Q##x##C(AX_LOAD)                                                                      \
        for (int i = 0; i < n; i++, v += stride) {                                                  \
            REP##C(AX_VALUE)                                                                        \
            REP##Q(AX_WEIGHT##C)                                                                    \
        }                                                                                           \
        GRID##Q##x##C(AX_STORE)                                                                     \
    }

AXPY_TILE(1, 8)
AXPY_TILE(1, 4)
AXPY_TILE(1, 1)
AXPY_TILE(2, 4)
AXPY_TILE(2, 1)
AXPY_TILE(3, 4)
AXPY_TILE(3, 1)
#ifdef VF_TILE44
AXPY_TILE(4, 4)
#endif
AXPY_TILE(4, 2)
AXPY_TILE(4, 1)
AXPY_TILE(6, 2)
AXPY_TILE(6, 1)

typedef void (*axpy_tile_fn)(const float *w, size_t ldw, const uint8_t *v, size_t stride, int n, float *acc,
                             size_t lda);

/* The last d % VF_LANES columns, through a padded copy. */
static void axpy_rest(const float *w, size_t ldw, int q, const uint8_t *v, size_t stride, int n, float *acc,
                      size_t lda, int m)
{
    for (int j = 0; j < q; j++) {
        vf a = float_load_part(acc + (size_t)j * lda, m);
        float out[VF_LANES];
        for (int i = 0; i < n; i++)
            a = vf_fma(vf_set1(w[(size_t)j * ldw + (size_t)i]), wide_load_part(v + (size_t)i * stride, m), a);
        vf_store(out, a);
        memcpy(acc + (size_t)j * lda, out, (size_t)m * sizeof *out);
    }
}

/* A tile: q weight rows x `width` vectors of columns. */
typedef struct axpy_tile {
    axpy_tile_fn fn;
    int q, width;
} axpy_tile;

/* The widest tile of q rows for `left` vectors of columns. */
static axpy_tile axpy_choose(int q, int left)
{
    static const axpy_tile tiles[] = {     /* of each q from wide to narrow */
        { axpy_1x8, 1, 8 }, { axpy_1x4, 1, 4 }, { axpy_1x1, 1, 1 }, { axpy_2x4, 2, 4 }, { axpy_2x1, 2, 1 },
        { axpy_3x4, 3, 4 }, { axpy_3x1, 3, 1 },
#ifdef VF_TILE44
        { axpy_4x4, 4, 4 },
#endif
        { axpy_4x2, 4, 2 }, { axpy_4x1, 4, 1 }, { axpy_6x2, 6, 2 }, { axpy_6x1, 6, 1 },
    };
    int i = 0;
    while (tiles[i].q != q || tiles[i].width > left)
        i++;
    return tiles[i];
}

static int axpy_rows(int left)
{
    if (left >= 6 && left != 8)            /* 8 = 4 + 4 beats 6 + 2 */
        return 6;
    return left >= 4 ? 4 : left;
}

static void axpy_columns(const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n, float *acc,
                         size_t lda, int d)
{
    for (int j = 0, q; j < r; j += q) {
        int c = 0;
        const float *wj = w + (size_t)j * ldw;
        float *a = acc + (size_t)j * lda;
        q = axpy_rows(r - j);
        while (c + VF_LANES <= d) {
            axpy_tile tile = axpy_choose(q, (d - c) / VF_LANES);
            tile.fn(wj, ldw, rows + (size_t)c * WIDE_BYTES, stride, n, a + c, lda);
            c += tile.width * VF_LANES;
        }
        if (c < d)
            axpy_rest(wj, ldw, q, rows + (size_t)c * WIDE_BYTES, stride, n, a + c, lda, d - c);
    }
}

/* Column tiles visit a row's cache lines one pass apart, which no hardware prefetcher follows: ask for them all.
 * On Zen 3 f16 from DRAM gains a fifth and loses a tenth in L2, where a cache of a real model never is. */
static void axpy_prefetch(const uint8_t *rows, size_t stride, int n, size_t row_bytes)
{
    for (int i = 0; i < n; i++, rows += stride)
        for (size_t at = 0; at < row_bytes; at += 64)
            vf_prefetch(rows + at);
}

/* Many weight rows: narrow column panels, so that a panel of 64 rows (4 or 8 KiB in f32) stays in L1. */
static void wide_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                      float *acc, size_t lda, int d)
{
    int panel = r > 6 ? 2 * VF_LANES : d;

    (void)param;
    if (r <= 6)
        axpy_prefetch(rows, stride, n, (size_t)d * WIDE_BYTES);
    for (int c = 0; c < d; c += panel)
        axpy_columns(w, ldw, r, rows + (size_t)c * WIDE_BYTES, stride, n, acc + c, lda, d - c < panel ? d - c : panel);
}
