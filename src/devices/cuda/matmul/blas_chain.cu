/* blas_chain.cu: products by cuBLASLt take bf16 rows: a norm makes them at once, products of the same rows share them.
 * Rows that one op makes and the next alone reads stay bf16, in the memory of the f32 rows: gate, up and SwiGLU between
 * two products, and what a product adds to the residual rows. */
#include "devices/cuda/matmul/few.cuh"
#include "devices/cuda/ops/row_norm.cuh"
#include "devices/cuda/ops/swiglu.cuh"

enum { THREADS = 256 };

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

/* ---- norms, whose rows the products behind them take ---- */

/* Rows as bf16 in the scratch, where they are passed; in f32 too, unless that is all. */
static int norm_run(cuda_device *d, row_norm o, enum fuse_pass pass)
{
    if (pass == PASS_ROWS)
        o.y = NULL;
    cuda_row_norm_run(d, o, pass == PASS_NONE ? NULL : cuda_blas_rows(d));
    return KVANT_OK;
}

static bool norm_takes(cuda_device *, const kvant_op *ops)
{
    row_norm o;
    return cuda_row_norm(OP_ARGS(norm_rms, 0), &o);
}

static int norm_rows_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *)
{
    row_norm o;
    cuda_row_norm(OP_ARGS(norm_rms, 0), &o);
    return norm_run(d, o, pass);
}

static bool add_takes(cuda_device *, const kvant_op *ops)
{
    row_norm o;
    return cuda_row_norm_add(OP_ARGS(norm_add_rms, 0), &o);
}

static int add_rows_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *)
{
    row_norm o;
    cuda_row_norm_add(OP_ARGS(norm_add_rms, 0), &o);
    return norm_run(d, o, pass);
}

/* The rows that it adds are bf16. */
static int add_halves_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *)
{
    row_norm o;
    cuda_row_norm_add(OP_ARGS(norm_add_rms, 0), &o);
    o.halves = (const uint16_t *)o.add;
    o.add = NULL;
    return norm_run(d, o, pass);
}

const cuda_form cuda_fused_norm_rows = { norm_takes, norm_rows_run };
const cuda_form cuda_fused_norm_add_rows = { add_takes, add_rows_run };
const cuda_form cuda_fused_halves_norm_rows = { add_takes, add_halves_run };

/* ---- products ---- */

static bool product_takes(cuda_device *d, const kvant_op *ops)
{
    return cuda_by_blas(d, OP_ARGS(matmul, 0));
}

/* rows: those of the product as bf16. */
static int product_run(cuda_device *d, const kvant_matmul_args *a, const uint16_t *rows, enum fuse_pass pass,
                       kvant_diag *diag)
{
    return cuda_blas_run(d, a, rows, pass == PASS_HALVES ? (uint16_t *)a->y : NULL, diag);
}

static int of_rows_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *diag)
{
    return product_run(d, OP_ARGS(matmul, 0), cuda_blas_rows(d), pass, diag);
}

static int of_halves_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *diag)
{
    const kvant_matmul_args *a = OP_ARGS(matmul, 0);
    return product_run(d, a, (const uint16_t *)a->x, pass, diag);
}

static int narrow_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *diag)
{
    const kvant_matmul_args *a = OP_ARGS(matmul, 0);
    return product_run(d, a, cuda_blas_narrow(d, a), pass, diag);
}

const cuda_form cuda_fused_rows_matmul = { product_takes, of_rows_run };
const cuda_form cuda_fused_halves_matmul = { product_takes, of_halves_run };
const cuda_form cuda_fused_narrow_matmul = { product_takes, narrow_run };

/* ---- gate and up, their swiglu, the product of that ---- */

static bool glu_takes(cuda_device *d, const kvant_op *ops)
{
    return cuda_by_blas(d, OP_ARGS(matmul, 0)) && cuda_by_blas(d, OP_ARGS(matmul, 2));
}

static int glu_run(cuda_device *d, const kvant_op *ops, const uint16_t *rows, enum fuse_pass pass, kvant_diag *diag)
{
    const kvant_matmul_args *a = OP_ARGS(matmul, 0), *b = OP_ARGS(matmul, 2);
    const int f = (int)b->w->n_in;
    uint16_t *ff = (uint16_t *)a->y, *hidden = ff + a->m * a->ldy;
    const dim3 grid(cuda_blocks(f, 8 * THREADS), (unsigned)(a->m < 4096 ? a->m : 4096));
    CUDA_TRY(cuda_blas_run(d, a, rows, ff, diag));
    cuda_launch(d, swiglu_bf16_kernel, grid, THREADS, 0, (const uint16_t *)ff, hidden, a->m, f);
    return product_run(d, b, hidden, pass, diag);
}

static int rows_glu_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *diag)
{
    return glu_run(d, ops, cuda_blas_rows(d), pass, diag);
}

static int narrow_glu_run(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *diag)
{
    return glu_run(d, ops, cuda_blas_narrow(d, OP_ARGS(matmul, 0)), pass, diag);
}

const cuda_form cuda_fused_rows_glu_matmul = { glu_takes, rows_glu_run };
const cuda_form cuda_fused_glu_matmul = { glu_takes, narrow_glu_run };
