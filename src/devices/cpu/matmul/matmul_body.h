/* matmul_body.h: the f32 register tiles, written once for every vector width (vf_<isa>.h).
 * A tile holds R rows x P panels of sums in registers and walks k once; the accumulators are named variables made by
 * macros, because arrays of vectors do not reliably stay in registers at -O2.
 *
 * The including file defines SUBS(M, r, p): M(r, p, s) for the 16 / VF_LANES vectors of a panel. */
#include "devices/cpu/matmul/matmul_drive.h"

/* R_n(M, P): M(row, P) for n rows.  P_n(M, r): SUBS(M, r, panel) for n panels. */
#define R_1(M, P) M(0, P)
#define R_2(M, P) R_1(M, P) M(1, P)
#define R_3(M, P) R_2(M, P) M(2, P)
#define R_4(M, P) R_3(M, P) M(3, P)
#define R_5(M, P) R_4(M, P) M(4, P)
#define R_6(M, P) R_5(M, P) M(5, P)
#define R_7(M, P) R_6(M, P) M(6, P)
#define R_8(M, P) R_7(M, P) M(7, P)
#define R_9(M, P) R_8(M, P) M(8, P)
#define R_10(M, P) R_9(M, P) M(9, P)
#define R_11(M, P) R_10(M, P) M(10, P)
#define R_12(M, P) R_11(M, P) M(11, P)
#define R_13(M, P) R_12(M, P) M(12, P)
#define R_14(M, P) R_13(M, P) M(13, P)
#define P_1(M, r) SUBS(M, r, 0)
#define P_2(M, r) P_1(M, r) SUBS(M, r, 1)
#define P_3(M, r) P_2(M, r) SUBS(M, r, 2)
#define P_4(M, r) P_3(M, r) SUBS(M, r, 3)
#define P_5(M, r) P_4(M, r) SUBS(M, r, 4)
#define P_6(M, r) P_5(M, r) SUBS(M, r, 5)
#define P_7(M, r) P_6(M, r) SUBS(M, r, 6)
#define P_8(M, r) P_7(M, r) SUBS(M, r, 7)

/* x of row r at the current k: three rows per pointer, so that 14 rows need 5 pointers and ldx. */
#define X_0 x0[0]
#define X_1 x0[ldx]
#define X_2 x0[2 * ldx]
#define X_3 x3[0]
#define X_4 x3[ldx]
#define X_5 x3[2 * ldx]
#define X_6 x6[0]
#define X_7 x6[ldx]
#define X_8 x6[2 * ldx]
#define X_9 x9[0]
#define X_10 x9[ldx]
#define X_11 x9[2 * ldx]
#define X_12 x12[0]
#define X_13 x12[ldx]
#define X_BASE(rows, r) ((rows) > (r) ? (r) * ldx : 0)      /* never past the last row */
#define X_NEXT x0++, x3++, x6++, x9++, x12++

#define ACC(r, p, s) a_##r##_##p##_##s
#define Y_AT(r, p, s) (y + (r) * ldy + (p) * PANEL + (s) * VF_LANES)
#define INIT(r, p, s) vf ACC(r, p, s) = first ? vf_zero() : vf_load(Y_AT(r, p, s));
#define SAVE(r, p, s) vf_store(Y_AT(r, p, s), ACC(r, p, s));
#define ROW_INIT(r, P) P(INIT, r)
#define ROW_SAVE(r, P) P(SAVE, r)

/* Vector s of panel p at the current k.  BF16 lies in pairs of k: a pair is loaded twice (LO, then HI) because keeping
 * it would cost the registers that the accumulators need. */
#define W_AT(p, s, bytes) (w + (p) * stride + (s) * VF_LANES * (bytes))
#define W_F32(p, s) vf_load((const float *)(const void *)W_AT(p, s, 4))
#define W_F16(p, s) vf_load_f16(W_AT(p, s, 2))
#define W_LO(p, s) vpair_lo(vpair_load(W_AT(p, s, 4)))
#define W_HI(p, s) vpair_hi(vpair_load(W_AT(p, s, 4)))

/* One k, many rows: the panel's vectors stay, each row is broadcast in turn. */
#define ROWS_W(form, p, s) vf w_##p##_##s = W_##form(p, s);
#define ROWS_FMA(r, p, s) ACC(r, p, s) = vf_fma(b, w_##p##_##s, ACC(r, p, s));
#define ROWS_ROW(r, P) { vf b = vf_set1(X_##r); P(ROWS_FMA, r) }
#define BY_ROWS(form, R, P) { P(ROWS_W, form) R(ROWS_ROW, P) }
/* One k, many panels: the broadcasts stay, each vector is loaded in turn. */
#define COLS_X(r, P) const vf b_##r = vf_set1(X_##r);
#define COLS_FMA(r, ps) a_##r##_##ps = vf_fma(b_##r, wv, a_##r##_##ps);
#define COLS_F32(R, p, s) { vf wv = W_F32(p, s); R(COLS_FMA, p##_##s) }
#define COLS_F16(R, p, s) { vf wv = W_F16(p, s); R(COLS_FMA, p##_##s) }
#define COLS_LO(R, p, s) { vf wv = W_LO(p, s); R(COLS_FMA, p##_##s) }
#define COLS_HI(R, p, s) { vf wv = W_HI(p, s); R(COLS_FMA, p##_##s) }
#define BY_COLS(form, R, P) { R(COLS_X, P) P(COLS_##form, R) }

#define LOOP_F32(BY, R, P)                                          \
    for (; k > 0; k--, w += PANEL * 4, X_NEXT)                      \
        BY(F32, R, P)
#define LOOP_F16(BY, R, P)                                          \
    for (; k > 0; k--, w += PANEL * 2, X_NEXT)                      \
        BY(F16, R, P)
#define LOOP_BF16(BY, R, P)                                         \
    for (; k > 1; k -= 2, w += PANEL * 4, X_NEXT) {                 \
        BY(LO, R, P)                                                \
        X_NEXT;                                                     \
        BY(HI, R, P)                                                \
    }                                                               \
    if (k > 0)                                                      \
        BY(LO, R, P)

#define TILE(form, BY, rows, panels)                                                                                   \
    static void tile_##form##_##rows##_##panels(const uint8_t *w, size_t stride, const float *x, int64_t ldx,          \
                                                int64_t k, float *y, int64_t ldy, int first)                           \
    {                                                                                                                  \
        const float *x0 = x, *x3 = x + X_BASE(rows, 3), *x6 = x + X_BASE(rows, 6), *x9 = x + X_BASE(rows, 9);          \
        const float *x12 = x + X_BASE(rows, 12);                                                                       \
        R_##rows(ROW_INIT, P_##panels) LOOP_##form(BY, R_##rows, P_##panels) R_##rows(ROW_SAVE, P_##panels)(void) x3,  \
            (void)x6, (void)x9, (void)x12, (void)ldy, (void)stride;                                                    \
    }
#define TILE_ENTRY(form, BY, rows, panels) [LAYOUT_##form][rows][panels] = tile_##form##_##rows##_##panels,
