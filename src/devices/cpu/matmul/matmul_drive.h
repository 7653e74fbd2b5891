/* matmul_drive.h: the ISA-independent half of matmul: cutting (rows x panels x k) into register tiles, and the table
 * that an ISA file (matmul_avx2.c, ...) fills with its tiles.  Plain C; no allocation.
 *
 * BIT RULE: every output element is one chain acc = fma(x[k], w[k], acc), k ascending from 0, in f32; a cut of k stores
 * acc to y and loads it back, which changes nothing.  So the cut, the thread count and the ISA never show in the bits.
 * (Integer form, compute auto: the same chain over 32-blocks.) */
#ifndef KVANT_CPU_MATMUL_DRIVE_H
#define KVANT_CPU_MATMUL_DRIVE_H

#include "kvant/ops.h"
#include "devices/cpu/matmul/matmul_pack.h"

enum {
    TILE_ROWS = 14,      /* most rows of a register tile, over all ISAs */
    TILE_PANELS = 8,     /* most panels side by side */
    /* k per pass: measured 3 % (f32) to 12 % (bytes) better than 256 on Zen 3, longer streams of x */
    TILE_K = 512,
    TILE_BLOCK = 120,    /* rows per pass: 120 x 512 f32 = 240 KiB of x stay in L2; 48 and 240 measured worse */
    XQ_LOCAL_ROWS = 4,   /* up to here every part quantises the rows itself: cheaper than a barrier */
    EXPAND_PANELS = 2,   /* most panels expanded to f32 at a time */
    EXPAND_BYTES = EXPAND_PANELS * TILE_K * PANEL * 4,
};

/* y[r][0..16P) (+)= sum over k of x[r][.] * w[.][0..16P): R rows, P panels `stride` bytes apart; first: y is not
 * read. */
typedef void (*matmul_tile_fn)(const uint8_t *w, size_t stride, const float *x, int64_t ldx, int64_t k, float *y,
                               int64_t ldy, int first);
/* k0 .. k0+k-1 of one panel (k0 and k multiples of 32, or k the rest of the row) as f32 [k][16]. */
typedef void (*matmul_expand_fn)(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst);

/* Activations in 8 bits (compute auto with quantised weights), one scale per 32:
 *     d = amax / 127, q = round_half_even(x * (127 / amax)); a block with a NaN or Inf has d = NaN, q = 0.
 * Row r of m: q8 + r*k, u8 + r*k, q16 + r*k, d + r*k/32, s + r*k/32, s16 + r*k/16, sum + r*k/16. */
typedef struct matmul_xq {
    int64_t k;
    int8_t *q8;
    uint8_t *u8;                 /* q + 128: the unsigned side of a byte product */
    /* each four (x0 x1 x2 x3) as (x0 x2 x1 x3): the order of matmul_int_avx2.c's spread() */
    int16_t *q16;
    float *d;                    /* [k/32] */
    float *s;                    /* [k/32] d * sum of the block's q */
    float *s16;                  /* [k/16] d * sum of q: for layouts with a minimum for 16 */
    int32_t *sum;                /* [k/16] sum of q */
} matmul_xq;

/* Rows of a quantised product: per 32-block (16 for layouts with 16-wide scales), ascending,
 *     acc = fma((float)integer dot, weight scale * d, acc), then with minima acc = fma(minimum, s, acc). */
typedef void (*matmul_quantise_fn)(const float *x, const matmul_xq *q, int64_t row);
/* All k of one panel times one row, straight from the packed form: y[16] overwritten. */
typedef void (*matmul_int_row_fn)(const matmul_packed *h, const uint8_t *panel, const matmul_xq *q, int64_t row,
                                  float *y);

enum { UNPACK_CODES = TILE_K * PANEL * 2, UNPACK_SCALES = TILE_K / 16 * PANEL };
/* A piece of one panel ready for an integer tile.  codes: i8 [k/4][16][4], or i16 in the ISA's own order. */
typedef struct matmul_unpacked {
    _Alignas(64) uint8_t codes[UNPACK_CODES];
    _Alignas(64) int32_t bias[UNPACK_SCALES];     /* [k/group][16] -128 * sum of codes: takes u8's offset out again */
    _Alignas(64) float scale[UNPACK_SCALES];      /* [k/group][16] */
    _Alignas(64) float min[UNPACK_SCALES];        /* [k/group][16], with its sign; only if has_min */
    int group, has_min;                           /* k per scale: 16 or 32 */
} matmul_unpacked;
/* k0 and k multiples of 32, k <= TILE_K. */
typedef void (*matmul_unpack_fn)(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k,
                                 matmul_unpacked *u);
/* y[r][16] (+)= rows row .. row+R-1, blocks b0 .. b0+blocks-1 of 32. */
typedef void (*matmul_int_tile_fn)(const matmul_unpacked *u, const matmul_xq *q, int64_t row, int64_t b0,
                                   int64_t blocks, float *y, int64_t ldy, int first);

typedef struct matmul_isa {
    int rows;                                                      /* R of the big tile */
    int panels[TILE_ROWS + 1];                                     /* most panels for R rows; [R] >= 1 for R <= rows */
    int direct_rows;                                               /* up to here 16-bit weights convert in registers */
    matmul_tile_fn tile[3][TILE_ROWS + 1][TILE_PANELS + 1];        /* [LAYOUT_F32, F16, BF16][R][P] */
    matmul_expand_fn expand[3];                                    /* [LAYOUT_F16, BF16] */
    matmul_expand_fn expand_int;                                   /* all other layouts */
    /* the integer form; NULL: this ISA computes that layout in f32 */
    matmul_quantise_fn quantise;
    const matmul_unpack_fn *unpack;                                /* [LAYOUT_COUNT] */
    const matmul_int_row_fn *int_row;                              /* [LAYOUT_COUNT] */
    int int_rows, int_direct_rows;                                 /* R of the integer tile; up to here row by row */
    const matmul_int_tile_fn (*int_tile)[TILE_ROWS + 1];           /* [LAYOUT_COUNT][rows] */
} matmul_isa;

/* One product: y[to[i]][j] = scale * sum_k W_expert[j][k] x[i][k], i < m, j < n_out. */
typedef struct matmul_job {
    const matmul_packed *w;
    int expert;
    int64_t m, n_out, k;
    const float *x;
    int64_t ldx;
    float *y;
    int64_t ldy;
    float scale;
    const int32_t *to;           /* NULL, or: row i of x gives row to[i] of y */
} matmul_job;

/* Rows [r0, r1) and panels [p0, p1) of a part. */
typedef struct matmul_cut {
    int64_t r0, r1, p0, p1;
} matmul_cut;

/* The share of `part` of m rows (in whole tiles of `tile` rows) and all panels. */
matmul_cut matmul_split(int64_t m, int64_t panels, int tile, int part, int parts);
/* Computes a cut in f32; scratch: EXPAND_BYTES, 64-byte aligned. */
void matmul_f32(const matmul_isa *isa, const matmul_job *j, matmul_cut c, void *scratch);
/* Computes a cut in the integer form, from rows quantised before. */
void matmul_int(const matmul_isa *isa, const matmul_job *j, const matmul_xq *q, matmul_cut c, void *scratch);
/* Bytes for m quantised rows of k, and the pointers into such a block. */
size_t matmul_xq_bytes(int64_t m, int64_t k);
matmul_xq matmul_xq_at(void *base, int64_t m, int64_t k);
/* The op kernels: what an ISA's kvant_matmul_<isa> and kvant_matmul_id_<isa> call with their table. */
size_t matmul_shared_bytes(const void *args);
size_t matmul_local_bytes(const void *args);
int matmul_first_stage(const void *args);
void matmul_quantise(const matmul_isa *isa, const kvant_matmul_args *a, int part, int parts, const kvant_work *work);
void matmul_run(const matmul_isa *isa, const kvant_matmul_args *a, int part, int parts, const kvant_work *work);
/* These do so for matmul_id (matmul_id.c). */
size_t matmul_id_shared_bytes(const void *args);
size_t matmul_id_local_bytes(const void *args);
int matmul_id_first_stage(const void *args);
void matmul_id_group(const matmul_isa *isa, const kvant_matmul_id_args *a, int part, int parts, const kvant_work *work);
void matmul_id_gather(const matmul_isa *isa, const kvant_matmul_id_args *a, int part, int parts,
                      const kvant_work *work);
void matmul_id_run(const matmul_isa *isa, const kvant_matmul_id_args *a, int part, int parts, const kvant_work *work);
/* The integer form is what this ISA computes for w in this mode. */
int matmul_uses_int(const matmul_isa *isa, const kvant_weight *w, int compute);
/* Scratch of the tiles: an expanded or an unpacked panel. */
size_t matmul_tile_scratch(void);
/* Rows of the next register tile when `left` rows remain: balanced, so that no tile of 1 or 2 rows is left over. */
int matmul_tile_rows(int64_t left, int most);

#endif
