/* matmul_i8mm.c: matmul with smmla: a 2 x 8 by 8 x 2 product of bytes, 32 products in one instruction.
 * A tile is up to 2 pairs of rows times 8 pairs of outputs (3 pairs spill: 53 instructions for 24 smmla, against 31 for
 * 16); an odd last row is paired with itself.  Unpacked codes are [k/8][8 pairs][2 outputs][8 k].  One row has no use
 * for it: few rows are those of matmul_dotprod.c. */
#include "devices/cpu/matmul/matmul_kernels.h"
#include "devices/cpu/matmul/matmul_f32_neon.h"
#include "devices/cpu/matmul/matmul_int_neon.h"

/* From [k/4][16][4], in place: two groups of 4 k of a quad become 8 k of two pairs. */
static void unpack_pairs(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, matmul_unpacked *u)
{
    matmul_unpack_neon[h->layout](h, panel, k0, k, u);
    for (int64_t i = 0; i < k / 8; i++) {
        int32_t *p = (int32_t *)(void *)(u->codes + i * 128);
        int32x4_t a0 = vld1q_s32(p), a1 = vld1q_s32(p + 4), a2 = vld1q_s32(p + 8), a3 = vld1q_s32(p + 12);
        int32x4_t b0 = vld1q_s32(p + 16), b1 = vld1q_s32(p + 20), b2 = vld1q_s32(p + 24), b3 = vld1q_s32(p + 28);
        vst1q_s32(p, vzip1q_s32(a0, b0));
        vst1q_s32(p + 4, vzip2q_s32(a0, b0));
        vst1q_s32(p + 8, vzip1q_s32(a1, b1));
        vst1q_s32(p + 12, vzip2q_s32(a1, b1));
        vst1q_s32(p + 16, vzip1q_s32(a2, b2));
        vst1q_s32(p + 20, vzip2q_s32(a2, b2));
        vst1q_s32(p + 24, vzip1q_s32(a3, b3));
        vst1q_s32(p + 28, vzip2q_s32(a3, b3));
    }
}

#define UNPACK_PAIRS_ENTRY(name, store, scales, group_k, with_min, steps)                           \
    [LAYOUT_##name] = unpack_pairs,
static const matmul_unpack_fn unpack[LAYOUT_COUNT] = { INT_LAYOUTS(UNPACK_PAIRS_ENTRY) };

static inline float32x4_t two_rows(const float *p, int64_t ld)
{
    return vcombine_f32(vdup_n_f32(p[0]), vdup_n_f32(p[ld]));
}

static inline float32x4_t pair_twice(const float *p)
{
    float32x2_t v = vld1_f32(p);

    return vcombine_f32(v, v);
}

/* a: sums (row 0: outputs 0, 1; row 1: outputs 0, 1).  acc, the tile in f32, has the same order. */
#define MM_PAIRS(M, p) M(p, 0) M(p, 1) M(p, 2) M(p, 3) M(p, 4) M(p, 5) M(p, 6) M(p, 7)
#define MM_ZERO(p, o) int32x4_t a##p##o = vdupq_n_s32(0);
#define MM_X(p, last)                                                                                              \
    const int8x16_t x##p = vcombine_s8(vld1_s8(x + 2 * (p) * k),                                                   \
                                       vld1_s8(x + (2 * (p) + (2 * (p) + 1 < (last))) * k));
#define MM_STEP(rows, o)                                                                                           \
    {                                                                                                              \
        int8x16_t t = vld1q_s8(w + (o) * 16);                                                                      \
        R_##rows(MM_DOT, o)                                                                                        \
    }
#define MM_DOT(p, o) a##p##o = vmmlaq_s32(a##p##o, x##p, t);
#define MM_FOLD(p, o)                                                                                              \
    vst1q_f32(acc + ((p) * 8 + (o)) * 4,                                                                           \
              vfmaq_f32(vld1q_f32(acc + ((p) * 8 + (o)) * 4), vcvtq_f32_s32(a##p##o),                              \
                        vmulq_f32(pair_twice(ws + 2 * (o)), d##p)));
#define MM_MIN(p, o)                                                                                               \
    vst1q_f32(acc + ((p) * 8 + (o)) * 4,                                                                           \
              vfmaq_f32(vld1q_f32(acc + ((p) * 8 + (o)) * 4), pair_twice(wm + 2 * (o)), s##p));
#define MM_SECOND(p, last) ((2 * (p) + 1 < (last)) ? blocks_all : 0)
#define MM_SCALES(p, last) const float32x4_t d##p = two_rows(dx + 2 * (p) * blocks_all, MM_SECOND(p, last));
#define MM_SUMS(p, last)                                                                                           \
    const float32x4_t s##p = two_rows(sx + 2 * (p) * blocks_all * folds, MM_SECOND(p, last) * folds);
#define MM_EACH_ZERO(p, unused) MM_PAIRS(MM_ZERO, p)
#define MM_EACH_FOLD(p, unused) MM_PAIRS(MM_FOLD, p)
#define MM_EACH_MIN(p, unused) MM_PAIRS(MM_MIN, p)

/* rows: of the tile; pairs: of rows */
#define MM_TILE(rows, pairs)                                                                                       \
    static void mm_tile_##rows(const matmul_unpacked *u, const matmul_xq *q, int64_t row, int64_t b0,              \
                               int64_t blocks, float *y, int64_t ldy, int first)                                   \
    {                                                                                                              \
        float acc[(pairs) * 2 * PANEL];                                                                            \
        int64_t k = q->k, blocks_all = k / 32;                                                                     \
        const int8_t *x = q->q8 + row * k + b0 * 32, *w = (const int8_t *)u->codes;                                \
        const int steps = u->group / 8, folds = 4 / steps;                                                         \
        const float *dx = q->d + row * blocks_all + b0;                                                            \
        const float *sx = (folds == 1 ? q->s : q->s16) + (row * blocks_all + b0) * folds;                          \
        const float *ws = u->scale, *wm = u->min;                                                                  \
        mm_load(acc, y, ldy, rows, first);                                                                         \
        for (int64_t i = 0; i < blocks * 4 / steps; i++, ws += PANEL) {                                            \
            R_##pairs(MM_EACH_ZERO, 0)                                                                             \
            for (int j = 0; j < steps; j++, x += 8, w += 128) {                                                    \
                R_##pairs(MM_X, rows)                                                                              \
                MM_PAIRS(MM_STEP, pairs)                                                                           \
            }                                                                                                      \
            R_##pairs(MM_SCALES, rows)                                                                             \
            R_##pairs(MM_EACH_FOLD, 0)                                                                             \
            if (u->has_min) {                                                                                      \
                R_##pairs(MM_SUMS, rows)                                                                           \
                R_##pairs(MM_EACH_MIN, 0)                                                                          \
                wm += PANEL, sx++;                                                                                 \
            }                                                                                                      \
            dx += steps == 4 || i % 2 == 1;                                                                        \
        }                                                                                                          \
        mm_store(acc, y, ldy, rows);                                                                               \
    }

/* Place of row r, output o in acc. */
static inline int mm_at(int r, int o)
{
    return ((r / 2) * 8 + o / 2) * 4 + r % 2 * 2 + o % 2;
}

static void mm_load(float *acc, const float *y, int64_t ldy, int rows, int first)
{
    for (int r = 0; r < rows + rows % 2; r++)
        for (int o = 0; o < PANEL; o++)
            acc[mm_at(r, o)] = first || r >= rows ? 0.0f : y[r * ldy + o];
}

static void mm_store(const float *acc, float *y, int64_t ldy, int rows)
{
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < PANEL; o++)
            y[r * ldy + o] = acc[mm_at(r, o)];
}

MM_TILE(1, 1)
MM_TILE(2, 1)
MM_TILE(3, 2)
MM_TILE(4, 2)

#define MM_ENTRY(name, store, scales, group_k, with_min, steps)                                     \
    [LAYOUT_##name] = { NULL, mm_tile_1, mm_tile_2, mm_tile_3, mm_tile_4 },
static const matmul_int_tile_fn mm_tiles[LAYOUT_COUNT][TILE_ROWS + 1] = { INT_LAYOUTS(MM_ENTRY) };

static const matmul_isa isa = {
    ISA_8_F32(matmul_expand_neon),
    .quantise = matmul_quantise_neon,
    .unpack = unpack,
    .int_row = matmul_int_row_dotprod,
    .int_rows = 4,
    .int_direct_rows = 1,
    .int_tile = mm_tiles,
};

MATMUL_KERNELS(i8mm)
