/* blas_chain.cu: products by cuBLASLt take bf16 rows: a norm makes them at once, products of the same rows share them.
 * Rows that one op makes and the next alone reads stay bf16, in the memory of the f32 rows: gate, up and SwiGLU between
 * two products, and what a product adds to the residual rows. */
#include "devices/cuda/matmul/blas_chain.cuh"
#include "devices/cuda/matmul/few.cuh"
#include "devices/cuda/ops/row_norm.cuh"
#include "devices/cuda/ops/swiglu.cuh"

enum { THREADS = 256 };

static const kvant_matmul_args *matmul_of(const kvant_op *op)
{
    return (const kvant_matmul_args *)op->args;
}

/* y[n][f] = silu(x[n][0 .. f - 1]) * x[n][f ..], all bf16; f a multiple of 8; one row per blockIdx.y and turn. */
static __global__ void __launch_bounds__(THREADS) swiglu_bf16_kernel(const uint16_t *x, uint16_t *y, int n, int f)
{
    const int j = 8 * (blockIdx.x * THREADS + threadIdx.x);
    pdl_go();
    pdl_wait();
    for (int64_t i = blockIdx.y; j < f && i < n; i += gridDim.y) {
        float g[8], u[8];
        row_load(x + 2 * i * f + j, g);
        row_load(x + (2 * i + 1) * f + j, u);
#pragma unroll
        for (int e = 0; e < 8; e++)
            g[e] = swiglu_one(g[e], u[e]);
        *(uint4 *)(y + i * f + j) = row_bf16(g);
    }
}

/* Returns true if ops are gate and up, their swiglu in place, and the product of that: all readers of ff[m][2f]. */
static bool glu_chain(const cuda_device *d, const kvant_op *ops, int n)
{
    const kvant_matmul_args *a = matmul_of(ops), *b = n < 3 ? NULL : matmul_of(ops + 2);
    const int64_t f = cuda_swiglu_after(ops, n);
    if (n < 3 || !f || f % 8 || a->ldy != 2 * f || !cuda_by_blas(d, ops) || !cuda_by_blas(d, ops + 2) || b->x != a->y ||
        b->ldx != a->ldy || b->m != a->m || b->w->n_in != f)
        return false;
    return apart(a->y, a->m * a->ldy, b->y, (b->m - 1) * b->ldy + b->w->n_out) &&
           cuda_unread(ops + 3, n - 3, a->y, a->m * a->ldy);
}

/* Products of the rows of ops[0] at the list's begin; took: ops, with two more where the last one is gate and up. */
typedef struct chain {
    int products, took;
} chain;

static chain chain_of(const cuda_device *d, const kvant_op *ops, int n)
{
    const kvant_matmul_args *a = matmul_of(ops);
    chain c = { 0, 0 };
    for (bool more = true; more && c.took < n && cuda_by_blas(d, ops + c.took);) {
        const kvant_matmul_args *b = matmul_of(ops + c.took);
        if (!same_rows(a, b) || !rows_stay(b))
            break;
        more = !glu_chain(d, ops + c.took, n - c.took);
        c.took += more ? 1 : 3;
        c.products++;
    }
    return c;
}

/* Returns true if op is the norm that adds a product's result, which nobody reads again; *o: the norm. */
static bool sum_next(const kvant_op *ops, int n, const kvant_matmul_args *a, row_norm *o)
{
    const int64_t values = a->m * a->ldy;
    return n > 0 && a->w->n_out % 8 == 0 && a->ldy == a->w->n_out && cuda_row_norm(ops, o) && o->add == a->y &&
           o->n == a->m && o->d == a->w->n_out && apart(o->x, values, a->y, values) &&
           apart(o->y, values, a->y, values) &&
           cuda_unread(ops + 1, n - 1, a->y, values);
}

static int norm_chain(cuda_device *d, const kvant_op *ops, int n, row_norm o, kvant_diag *diag);

/* The last product of a chain, at ops[0], and the norm that adds it, where that is next: it gets bf16.  Returns how
 * many ops these and the chain behind them are. */
static int run_last(cuda_device *d, const kvant_op *ops, int n, const uint16_t *rows, kvant_diag *diag)
{
    const kvant_matmul_args *a = matmul_of(ops);
    row_norm o;
    const bool sum = sum_next(ops + 1, n - 1, a, &o);
    CUDA_TRY(cuda_blas_run(d, a, rows, sum ? (uint16_t *)a->y : NULL, diag));
    if (!sum)
        return 1;
    o.add = NULL;
    o.halves = (const uint16_t *)a->y;
    const int took = norm_chain(d, ops + 1, n - 1, o, diag);
    return took < 0 ? took : 1 + took;
}

/* ops[0]: gate and up; ops[1]: their swiglu; ops[2]: the product of that. */
static int run_glu(cuda_device *d, const kvant_op *ops, int n, const uint16_t *rows, kvant_diag *diag)
{
    const kvant_matmul_args *a = matmul_of(ops);
    const int f = (int)matmul_of(ops + 2)->w->n_in;
    uint16_t *ff = (uint16_t *)a->y, *hidden = ff + a->m * a->ldy;
    const dim3 grid(cuda_blocks(f, 8 * THREADS), (unsigned)(a->m < 4096 ? a->m : 4096));
    CUDA_TRY(cuda_blas_run(d, a, rows, ff, diag));
    cuda_launch(d, swiglu_bf16_kernel, grid, THREADS, 0, (const uint16_t *)ff, hidden, a->m, f);
    const int took = run_last(d, ops + 2, n - 2, hidden, diag);
    return took < 0 ? took : 2 + took;
}

/* rows: those of all products as bf16.  Returns the ops taken. */
static int chain_run(cuda_device *d, const kvant_op *ops, int n, chain c, const uint16_t *rows, kvant_diag *diag)
{
    const int last = c.products - 1;
    for (int i = 0; i < last; i++)
        CUDA_TRY(cuda_blas_run(d, matmul_of(ops + i), rows, NULL, diag));
    const int took = c.took > c.products ? run_glu(d, ops + last, n - last, rows, diag)
                                         : run_last(d, ops + last, n - last, rows, diag);
    return took < 0 ? took : last + took;
}

/* The norm at ops[0], and the products of its rows behind it, if there are any. */
static int norm_chain(cuda_device *d, const kvant_op *ops, int n, row_norm o, kvant_diag *diag)
{
    chain c = { 0, 0 };
    if (n > 1 && cuda_by_blas(d, ops + 1)) {
        const kvant_matmul_args *a = matmul_of(ops + 1);
        if (a->x == o.y && a->ldx == o.ldy && a->m == o.n && a->w->n_in == o.d)
            c = chain_of(d, ops + 1, n - 1);
    }
    if (!c.took) {
        cuda_row_norm_run(d, o, NULL);
        return 1;
    }
    if (cuda_unread(ops + 1 + c.took, n - 1 - c.took, o.y, o.n * o.ldy))
        o.y = NULL;
    cuda_row_norm_run(d, o, cuda_blas_rows(d));
    const int took = chain_run(d, ops + 1, n - 1, c, cuda_blas_rows(d), diag);
    return took < 0 ? took : 1 + took;
}

int cuda_blas_after_norm(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    row_norm o;
    return n > 1 && cuda_by_blas(d, ops + 1) && cuda_row_norm(ops, &o) ? norm_chain(d, ops, n, o, diag) : 0;
}

int cuda_blas_side_by_side(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    row_norm o;
    if (!cuda_by_blas(d, ops))
        return 0;
    const chain c = chain_of(d, ops, n);
    if (c.took < 2 && !(c.took && sum_next(ops + 1, n - 1, matmul_of(ops), &o)))
        return 0;
    return chain_run(d, ops, n, c, cuda_blas_narrow(d, matmul_of(ops)), diag);
}

bool cuda_blas_takes_halves(const cuda_device *d, const kvant_op *ops, int n, const float *x, int64_t ldx, int m)
{
    if (n < 1 || !cuda_by_blas(d, ops))
        return false;
    const kvant_matmul_args *a = matmul_of(ops);
    return a->x == x && a->ldx == ldx && a->m == m && a->w->n_in == ldx &&
           apart(x, m * ldx, a->y, (a->m - 1) * a->ldy + a->w->n_out) && cuda_unread(ops + 1, n - 1, x, m * ldx);
}

int cuda_blas_of_halves(cuda_device *d, const kvant_op *ops, int n, const uint16_t *rows, kvant_diag *diag)
{
    return run_last(d, ops, n, rows, diag);
}
