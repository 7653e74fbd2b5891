/* matmul_dot_neon.h: integer rows and tiles of matmul over dot16(), 16 k of a quad: four sdot where the file is
 * compiled for the dot product, widening multiplications otherwise.  Included once by matmul_neon.c and
 * matmul_dotprod.c, after matmul_f32_neon.h.  All sums are exact integers, so the bits are those of every other ISA. */
#include "devices/cpu/matmul/matmul_int_neon.h"

#if defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t dot;                     /* one sum per output */
enum { TILE_QUADS = 4 };                   /* quads whose sums fit the registers beside 4 rows */
#define QUADS(M, rows) M(rows, 0) M(rows, 1) M(rows, 2) M(rows, 3)

static inline dot dot_zero(void)
{
    return vdupq_n_s32(0);
}

static inline int32x4_t dot_sum(dot a)
{
    return a;
}

static inline dot dot16(dot a, weights w, int8x16_t x)
{
    a = vdotq_laneq_s32(a, w.w0, x, 0);
    a = vdotq_laneq_s32(a, w.w1, x, 1);
    a = vdotq_laneq_s32(a, w.w2, x, 2);
    return vdotq_laneq_s32(a, w.w3, x, 3);
}
#else
typedef struct dot {
    int32x4_t lo, hi;                      /* two sums per output */
} dot;
enum { TILE_QUADS = 2 };
#define QUADS(M, rows) M(rows, 0) M(rows, 1)

static inline dot dot_zero(void)
{
    return (dot){ vdupq_n_s32(0), vdupq_n_s32(0) };
}

static inline int32x4_t dot_sum(dot a)
{
    return vpaddq_s32(a.lo, a.hi);
}

/* Two products fit 16 bits: 2 * 128 * 127 = 32512. */
static inline dot dot8(dot a, int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1)
{
    int16x8_t lo = vmlal_s8(vmull_s8(vget_low_s8(w0), vget_low_s8(x0)), vget_low_s8(w1), vget_low_s8(x1));
    int16x8_t hi = vmlal_high_s8(vmull_high_s8(w0, x0), w1, x1);

    return (dot){ vpadalq_s16(a.lo, lo), vpadalq_s16(a.hi, hi) };
}

#define DOT_LANE(x, i) vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), i))

static inline dot dot16(dot a, weights w, int8x16_t x)
{
    a = dot8(a, w.w0, w.w1, DOT_LANE(x, 0), DOT_LANE(x, 1));
    return dot8(a, w.w2, w.w3, DOT_LANE(x, 2), DOT_LANE(x, 3));
}
#endif

/* acc + (float)sum * (scale * d) */
static inline float32x4_t fold(float32x4_t acc, int32x4_t sum, float32x4_t scale, float d)
{
    return vfmaq_f32(acc, vcvtq_f32_s32(sum), vmulq_n_f32(scale, d));
}

/* ---- few rows: one row, one panel, packed bytes; the offset of the codes is taken out by the sum of the row ---- */

enum { PREFETCH_AHEAD = 2048 };            /* bytes; arbitrary, not tuned: no hardware was at hand */

#define ROW_ZERO(rows, s) dot a##s = dot_zero();
#define ROW_DOT(store, s) a##s = dot16(a##s, raw_##store(codes, h, s, t), v);
#define ROW_FOLD(off, s)                                                                                           \
    y##s = fold(y##s, vsubq_s32(dot_sum(a##s), off), vld1q_f32(scale + i * PANEL + s * 4), d);
#define ROW_MIN(sum, s) y##s = vfmaq_n_f32(y##s, vld1q_f32(min + i * PANEL + s * 4), sum);
#define FOUR(M, arg) M(arg, 0) M(arg, 1) M(arg, 2) M(arg, 3)

#define INT_ROW(name, store, scales, group_k, with_min, steps)                                 \
    static void int_row_##name(const matmul_packed *h_, const uint8_t *panel, const matmul_xq *q, int64_t row, \
                               float *y)                                                                      \
    {                                                                                                         \
        enum { FOLDS = 32 / (group_k) };                                                                      \
        int64_t k = q->k;                                                                                     \
        const int8_t *x = q->q8 + row * k;                                                                    \
        const int32_t *sum = q->sum + row * k / 16;                                                           \
        const float *dx = q->d + row * (k / 32);                                                              \
        const float *sx = (group_k) == 32 ? q->s + row * (k / 32) : q->s16 + row * (k / 16);                  \
        const uint8_t *codes = panel;                                                                         \
        const int8x16_t t = levels_of(h_);                                                                    \
        float32x4_t y0 = vdupq_n_f32(0.0f), y1 = y0, y2 = y0, y3 = y0;                                        \
        for (int64_t b = 0; b < k / 32; b++, sum += 2, codes += h_->code_bytes) {                             \
            float scale[2 * PANEL], min[2 * PANEL];                                                           \
            float d = dx[b];                                                                                  \
            for (int i = 0; i < h_->code_bytes; i += 64)                                                      \
                __builtin_prefetch(codes + PREFETCH_AHEAD + i);                                               \
            scales_##scales(h_, record(h_, panel, b), b, FOLDS, scale, min);                                  \
            for (int i = 0, h = 0; i < FOLDS; i++) {                                                          \
                int32_t centre = (with_min) ? 0 : centre_of(h_, store);                                       \
                int32x4_t off = vdupq_n_s32(centre * (FOLDS == 1 ? sum[0] + sum[1] : sum[i]));                \
                FOUR(ROW_ZERO, )                                                                              \
                for (int end = h + (group_k) / 16; h < end; h++, x += 16) {                                   \
                    int8x16_t v = vld1q_s8(x);                                                                \
                    FOUR(ROW_DOT, store)                                                                      \
                }                                                                                             \
                FOUR(ROW_FOLD, off)                                                                           \
                if (with_min) {                                                                               \
                    FOUR(ROW_MIN, sx[b * FOLDS + i])                                                          \
                }                                                                                             \
            }                                                                                                 \
        }                                                                                                     \
        vst1q_f32(y, y0);                                                                                     \
        vst1q_f32(y + 4, y1);                                                                                 \
        vst1q_f32(y + 8, y2);                                                                                 \
        vst1q_f32(y + 12, y3);                                                                                \
    }
INT_LAYOUTS(INT_ROW)
#define INT_ROW_ENTRY(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = int_row_##name,

/* ---- many rows: unpacked codes, 1 to 4 rows, TILE_QUADS quads at a time ---- */

enum { DOT_ROWS = 4, DOT_DIRECT_ROWS = 3 };        /* arbitrary, not tuned */

#define SUM_ZERO(rows, s) R_##rows(SUM_ZERO_, s)
#define SUM_ZERO_(r, s) dot a##r##s = dot_zero();
#define SUM_X(r, unused) const int8x16_t x##r = vld1q_s8(x + (r) * k);
#define SUM_STEP(rows, s)                                                                                          \
    {                                                                                                              \
        weights t = { vld1q_s8(w + (s) * 16), vld1q_s8(w + (s) * 16 + 64), vld1q_s8(w + (s) * 16 + 128),           \
                      vld1q_s8(w + (s) * 16 + 192) };                                                              \
        R_##rows(SUM_DOT, s)                                                                                       \
    }
#define SUM_DOT(r, s) a##r##s = dot16(a##r##s, t, x##r);
#define SUM_FOLD(rows, s)                                                                                          \
    {                                                                                                              \
        float32x4_t by = vld1q_f32(ws + (s) * 4);                                                                  \
        R_##rows(SUM_FOLD_, s)                                                                                     \
    }
#define SUM_FOLD_(r, s)                                                                                            \
    vst1q_f32(acc + (r) * PANEL + (s) * 4, fold(vld1q_f32(acc + (r) * PANEL + (s) * 4), dot_sum(a##r##s), by,      \
                                                dx[(r) * blocks_all]));
#define SUM_MIN(rows, s)                                                                                           \
    {                                                                                                              \
        float32x4_t by = vld1q_f32(wm + (s) * 4);                                                                  \
        R_##rows(SUM_MIN_, s)                                                                                      \
    }
#define SUM_MIN_(r, s)                                                                                             \
    vst1q_f32(acc + (r) * PANEL + (s) * 4,                                                                         \
              vfmaq_n_f32(vld1q_f32(acc + (r) * PANEL + (s) * 4), by, sx[(r) * blocks_all * folds]));

#define DOT_TILE(rows)                                                                                             \
    static void dot_tile_##rows(const matmul_unpacked *u, const matmul_xq *q, int64_t row, int64_t b0,             \
                                int64_t blocks, float *y, int64_t ldy, int first)                                  \
    {                                                                                                              \
        float all[(rows) * PANEL];                                                                                 \
        int64_t k = q->k, blocks_all = k / 32;                                                                     \
        const int halves = u->group / 16, folds = 2 / halves;                                                      \
        acc_load(all, y, ldy, rows, first);                                                                        \
        for (int s0 = 0; s0 < 4; s0 += TILE_QUADS) {                                                               \
            const int8_t *x = q->q8 + row * k + b0 * 32, *w = (const int8_t *)u->codes + s0 * 16;                  \
            const float *dx = q->d + row * blocks_all + b0;                                                        \
            const float *sx = (folds == 1 ? q->s : q->s16) + (row * blocks_all + b0) * folds;                      \
            const float *ws = u->scale + s0 * 4, *wm = u->min + s0 * 4;                                            \
            float *acc = all + s0 * 4;                                                                             \
            for (int64_t i = 0; i < blocks * folds; i++, ws += PANEL) {                                            \
                QUADS(SUM_ZERO, rows)                                                                              \
                for (int h = 0; h < halves; h++, x += 16, w += 256) {                                              \
                    R_##rows(SUM_X, 0)                                                                             \
                    QUADS(SUM_STEP, rows)                                                                          \
                }                                                                                                  \
                QUADS(SUM_FOLD, rows)                                                                              \
                if (u->has_min) {                                                                                  \
                    QUADS(SUM_MIN, rows)                                                                           \
                    wm += PANEL, sx++;                                                                             \
                }                                                                                                  \
                dx += halves == 2 || i % 2 == 1;                                                                   \
            }                                                                                                      \
        }                                                                                                          \
        acc_store(all, y, ldy, rows);                                                                              \
    }
DOT_TILE(1)
DOT_TILE(2)
DOT_TILE(3)
DOT_TILE(4)

#define DOT_ENTRY(name, store, scales, group_k, with_min, steps)                                    \
    [LAYOUT_##name] = { NULL, dot_tile_1, dot_tile_2, dot_tile_3, dot_tile_4 },
static const matmul_int_tile_fn dot_tiles[LAYOUT_COUNT][TILE_ROWS + 1] = { INT_LAYOUTS(DOT_ENTRY) };
