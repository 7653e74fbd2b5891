/* simd_blocks.h: decode_acc, score and axpy of formats that decode in steps of 32 values, over vf_<isa>.h.
 *
 * Before including: the vocabulary (vf_<isa>.h), and the macro
 *   BLOCK_DECODE(row, b, v)   values 32b .. 32b+31 of the row at `row` -> vf v[VF_B]
 * Gives blocks_decode_acc, blocks_score and blocks_axpy.
 *
 * score decodes in registers for up to 4 queries (4 or 8 accumulators); more queries, and axpy, go through a panel
 * of decoded rows in L1 and the f32 kernels: a store costs no slot of the FMA, shuffle or convert units.  Panels begin
 * on a cache line, or wide loads and stores would split (Zen 4: up to 17 % of an axpy of one weight row).  Bit rule:
 * one accumulator per (query, key) over ascending chunks, as in simd_wide.h; so score and axpy equal the f32 kernels
 * on decoded rows, bit for bit, whatever r and n are. */
#include "formats/simd/simd_f32.h"
#include "formats/simd/simd_rep.h"

enum { PANEL_FLOATS = 4096 };              /* 16 KiB: half of L1 */

static void blocks_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    (void)param;
    for (int i = 0; i < n; i++, rows += stride)
        for (int b = 0; b < d / 32; b++, out += 32) {
            vf v[VF_B];
            BLOCK_DECODE(rows, b, v);
#define BD_STORE(c) vf_store(out + (c) * VF_LANES, v[c]);
            VF_BLOCK(BD_STORE)
        }
}

#define BS_ZERO(j, k) vf a##j##k = vf_zero();
/* query j, vector c of the block, key k */
#define BS_FMA(j, c, k) a##j##k = vf_fma(vf_load(y + (j) * ldq + (c) * VF_LANES), v[c], a##j##k);
#define BS_00(c) BS_FMA(0, c, 0)
#define BS_01(c) BS_FMA(0, c, 1)
#define BS_02(c) BS_FMA(0, c, 2)
#define BS_03(c) BS_FMA(0, c, 3)
#define BS_10(c) BS_FMA(1, c, 0)
#define BS_11(c) BS_FMA(1, c, 1)
#define BS_12(c) BS_FMA(1, c, 2)
#define BS_13(c) BS_FMA(1, c, 3)
#define BS_20(c) BS_FMA(2, c, 0)
#define BS_21(c) BS_FMA(2, c, 1)
#define BS_30(c) BS_FMA(3, c, 0)
#define BS_31(c) BS_FMA(3, c, 1)
#define BS_BLOCK1(k) VF_BLOCK(BS_0##k)
#define BS_BLOCK2(k) BS_BLOCK1(k) VF_BLOCK(BS_1##k)
#define BS_BLOCK3(k) BS_BLOCK2(k) VF_BLOCK(BS_2##k)
#define BS_BLOCK4(k) BS_BLOCK3(k) VF_BLOCK(BS_3##k)
#define BS_KEY1(k) BLOCK_DECODE(rows + (k) * stride, b, v); BS_BLOCK1(k)
#define BS_KEY2(k) BLOCK_DECODE(rows + (k) * stride, b, v); BS_BLOCK2(k)
#define BS_KEY3(k) BLOCK_DECODE(rows + (k) * stride, b, v); BS_BLOCK3(k)
#define BS_KEY4(k) BLOCK_DECODE(rows + (k) * stride, b, v); BS_BLOCK4(k)

/* Q queries x K keys at rows, rows + stride, ...: enough chains to hide the latency of an FMA. */
#define BLOCKS_TILE(Q, K, PUT)                                                                      \
    static void blocks_score_##Q##x##K(const float *q, size_t ldq, const uint8_t *rows, size_t stride, float *s, \
                                       size_t lds, int d)                                           \
    {                                                                                               \
        GRID##Q##x##K(BS_ZERO)                                                                      \
        (void)ldq;                                                                                  \
        (void)lds;                                                                                  \
        for (int b = 0; b < d / 32; b++) {                                                          \
            const float *y = q + 32 * b;                                                            \
            vf v[VF_B];                                                                             \
            REP##K(BS_KEY##Q)                                                                       \
        }                                                                                           \
        PUT                                                                                         \
    }

#ifdef VF_TILE44
/* 4 queries x 4 keys: the keys' block decoded first, so that a vector of a query is loaded once for all of them. */
#define BS_DECODE(k) vf v##k[VF_B]; BLOCK_DECODE(rows + (k) * stride, b, v##k);
#define BS_OF(j, k) a##j##k = vf_fma(q##j, v##k[c], a##j##k);
#define BS_QUERY(j) { vf q##j = vf_load(y + (j) * ldq + c * VF_LANES); ROW4(BS_OF, j) }
static void blocks_score_4x4(const float *q, size_t ldq, const uint8_t *rows, size_t stride, float *s, size_t lds,
                             int d)
{
    GRID4x4(BS_ZERO)
    for (int b = 0; b < d / 32; b++) {
        const float *y = q + 32 * b;
        REP4(BS_DECODE)
        { enum { c = 0 }; REP4(BS_QUERY) }
        { enum { c = 1 }; REP4(BS_QUERY) }
    }
    const vf t[16] = { a00, a01, a02, a03, a10, a11, a12, a13, a20, a21, a22, a23, a30, a31, a32, a33 };
    vf_put44(s, lds, t);
}
#else
BLOCKS_TILE(4, 2, vf_put22(s, s + lds, a00, a01, a10, a11); vf_put22(s + 2 * lds, s + 3 * lds, a20, a21, a30, a31);)
#endif

BLOCKS_TILE(1, 4, vf_put4(s, a00, a01, a02, a03);)
BLOCKS_TILE(2, 4, vf_put4(s, a00, a01, a02, a03); vf_put4(s + lds, a10, a11, a12, a13);)
BLOCKS_TILE(3, 2, vf_put22(s, s + lds, a00, a01, a10, a11); vf_put2(s + 2 * lds, a20, a21);)

typedef void (*blocks_tile_fn)(const float *q, size_t ldq, const uint8_t *rows, size_t stride, float *s, size_t lds,
                               int d);

/* Up to 4 queries, keys by tiles; the last keys fill a tile by repetition (stride 0). */
static void blocks_score_small(const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride, int n, float *s,
                               size_t lds, int d)
{
#ifdef VF_TILE44
    static const blocks_tile_fn tiles[5] = { NULL, blocks_score_1x4, blocks_score_2x4, blocks_score_3x2,
                                             blocks_score_4x4 };
    static const int width[5] = { 0, 4, 4, 2, 4 };
#else
    static const blocks_tile_fn tiles[5] = { NULL, blocks_score_1x4, blocks_score_2x4, blocks_score_3x2,
                                             blocks_score_4x2 };
    static const int width[5] = { 0, 4, 4, 2, 2 };
#endif
    blocks_tile_fn tile = tiles[r];
    int i = 0, k = width[r];

    for (; i + k <= n; i += k, rows += (size_t)k * stride)
        tile(qp, ldq, rows, stride, s + i, lds, d);
    for (; i < n; i++, rows += stride) {
        float copies[16];
        tile(qp, ldq, rows, 0, copies, 4, d);
        for (int j = 0; j < r; j++)
            s[(size_t)j * lds + (size_t)i] = copies[4 * j];
    }
}

static void blocks_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride,
                         int n, float *s, size_t lds, int d)
{
    if (r <= 4) {
        blocks_score_small(qp, ldq, r, rows, stride, n, s, lds, d);
        return;
    }
    _Alignas(64) float panel[PANEL_FLOATS];
    int step = PANEL_FLOATS / d;
    for (int i = 0; i < n; i += step) {
        int m = n - i < step ? n - i : step;
        blocks_decode_acc(param, rows + (size_t)i * stride, stride, m, panel, d);
        VF_KERNEL(f32_score)(NULL, qp, ldq, r, (const uint8_t *)panel, (size_t)d * sizeof *panel, m, s + i, lds, d);
    }
}

/* Panels of one block of columns and up to 64 rows (8 KiB): the accumulators are loaded once per page.  (Panels of
 * two blocks, for tiles of 16 accumulators, take a fifth longer on AVX-512.) */
static void blocks_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride,
                        int n, float *acc, size_t lda, int d)
{
    enum { STEP = 64 };
    _Alignas(64) float panel[STEP * 32];

    (void)param;
    for (int i = 0; i < n; i += STEP) {
        int m = n - i < STEP ? n - i : STEP;
        for (int b = 0; b < d / 32; b++) {
            for (int k = 0; k < m; k++) {
                vf v[VF_B];
                float *out = panel + k * 32;
                BLOCK_DECODE(rows + (size_t)(i + k) * stride, b, v);
                VF_BLOCK(BD_STORE)
            }
            VF_KERNEL(f32_axpy)(NULL, w + i, ldw, r, (const uint8_t *)panel, 32 * sizeof *panel, m, acc + 32 * b, lda,
                                 32);
        }
    }
}
