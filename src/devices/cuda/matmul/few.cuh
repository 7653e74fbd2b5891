/* few.cuh: products of few rows, as matmul.cu and matmul_id.cu put them together with the ops behind them. */
#ifndef KVANT_CUDA_FEW_CUH
#define KVANT_CUDA_FEW_CUH

#include "devices/cuda/matmul/int8/int8.cuh"
#include "devices/cuda/ops/router.cuh"

mm cuda_mm_of(const kvant_weight *w, const float *x, float *y, int64_t ldx, int64_t ldy, int rows, int x_div);
int cuda_weight_supports(const kvant_weight *w, const char *op, kvant_diag *diag);
int cuda_weight_loaded(const kvant_weight *w, const char *op, kvant_diag *diag);
int cuda_wtype_of(const kvant_weight *w); /* of one that was loaded */

/* Returns true if an op is a product that cuBLASLt runs in bf16. */
bool cuda_by_blas(const cuda_device *d, const kvant_op *op);

static inline bool apart(const float *a, int64_t n, const float *b, int64_t m)
{
    return a + n <= b || b + m <= a;
}

/* Returns true if two products take the same rows. */
static inline bool same_rows(const kvant_matmul_args *a, const kvant_matmul_args *b)
{
    return b->x == a->x && b->ldx == a->ldx && b->m == a->m && b->w->n_in == a->w->n_in;
}

/* Returns true if a product leaves its rows alone, so that others may take them behind it. */
static inline bool rows_stay(const kvant_matmul_args *a)
{
    return apart(a->x, (a->m - 1) * a->ldx + a->w->n_in, a->y, (a->m - 1) * a->ldy + a->w->n_out);
}

/* Values of gate and up where the op is their swiglu, in place over the gate half of y[rows][n_out]; else 0. */
int64_t cuda_glu_of(const kvant_op *op, const float *y, int64_t ldy, int rows, int64_t n_out);

/* As cuda_glu_of, for the op after a matmul. */
int64_t cuda_swiglu_after(const kvant_op *ops, int n);

/* A product: its job, its type, and whether it goes by integers. */
struct few {
    mm p;
    int type;
    bool int8;
};

/* The ops behind a launch that adds its row to the residual row: norm_add_rms of that, and the product of the normed
 * row (and its swiglu), or the choice of experts (router.cuh): took ops.  x[d]: the residual row. */
typedef struct norm_next {
    int took;
    float *x;
    int64_t d, pair;
    few b;
    bool route;
    const kvant_op *ops;
} norm_next;

/* Returns true if ops begin with one; add: the summand of its norm. */
bool cuda_norm_next(const cuda_device *d, const kvant_op *ops, int n, const float *add, norm_next *o);
void cuda_norm_next_run(cuda_device *d, const norm_next *o);

#endif
