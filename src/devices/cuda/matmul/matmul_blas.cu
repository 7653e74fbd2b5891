/* matmul_blas.cu: products that go to cuBLASLt (blas.cu): which ones, and the 16-bit copies that it wants of the
 * activations and, piece by piece, of matrices that are not bf16. */
#include "devices/cuda/matmul/bf16_few.cuh"
#include "devices/cuda/matmul/few.cuh"
#include "devices/cuda/ops/row_norm.cuh"

enum { BLAS_ROWS = 2, BLAS_OTHER_ROWS = 5, EXPAND_BYTES = 128 << 20 };

/* to[m][k] = x[m][ldx]; k a multiple of 8. */
static __global__ void __launch_bounds__(256)
    narrow_kernel(const float *x, int64_t ldx, int x_vec, int64_t chunks, int64_t total, uint4 *to)
{
    pdl_go();
    pdl_wait();
    for (int64_t u = blockIdx.x * 256ll + threadIdx.x; u < total; u += gridDim.x * 256ll) {
        float v[8];
        load8(x + u / chunks * ldx + u % chunks * 8, x_vec, v);
        to[u] = row_bf16(v);
    }
}

/* to[n][k] = the matrix, rounded; its scale (one for the whole) included. */
template <int T> static __global__ void __launch_bounds__(256) expand_kernel(mm p, uint4 *to)
{
    const int64_t chunks = p.n_in / 8, total = p.n_out * chunks;
    const float scale = scale_of(p, 0);
    pdl_go();
    pdl_wait(); /* the last product may still read `to` */
    for (int64_t u = blockIdx.x * 256ll + threadIdx.x; u < total; u += gridDim.x * 256ll) {
        float w[8];
        chunk8<T>(p.w + u / chunks * p.row_bytes, u % chunks, w);
#pragma unroll
        for (int i = 0; i < 8; i++)
            w[i] *= scale;
        to[u] = row_bf16(w);
    }
}

static unsigned stride_grid(const cuda_device *d, int64_t total)
{
    const int64_t blocks = (total + 255) / 256, most = 8ll * d->n_sm;
    return (unsigned)(blocks < most ? blocks : most);
}

template <int T> static void expand(const cuda_device *d, const mm &p, void *to)
{
    cuda_launch(d, expand_kernel<T>, dim3(stride_grid(d, p.n_out * p.n_in / 8)), 256, 0, p, (uint4 *)to);
}

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) expand<WT_##sym>,
static void (*const expanders[])(const cuda_device *d, const mm &p, void *to) = {
#include "cards/lists.inc"
};
#undef CARD_WTYPE

static card_plain plain_of(const kvant_weight *w)
{
    const int type = cuda_wtype_find(w->type);
    return type < 0 ? PLAIN_NONE : plain_types[type];
}

static bool as_it_is(const kvant_weight *w)
{
    return plain_of(w) == PLAIN_BF16 && !w->scale;
}

/* A matrix in f32 goes as it is, with more rows than gemv.cu takes. */
static bool takes_f32(const kvant_matmul_args *a)
{
    return cuda_f32_rows(a->w) && a->m > GEMV_ROWS &&
           !cuda_gemv_small(a->m, a->w->n_out, a->w->n_in * (int64_t)sizeof(float)) &&
           (((uintptr_t)a->x | (uintptr_t)(4 * a->ldx)) & 15) == 0;
}

/* 16-bit products allowed, enough rows (measured: 12288 x 4096 on an H200), and shapes that the library takes (16-byte
 * aligned rows). */
bool cuda_blas_takes(const cuda_device *d, const kvant_matmul_args *a)
{
    const kvant_weight *w = a->w;
    return d->blas && a->compute != KVANT_COMPUTE_F32 && a->m >= (as_it_is(w) ? BLAS_ROWS : BLAS_OTHER_ROWS) &&
           w->n_in % 8 == 0 && w->n_in >= 64 && w->n_out >= 32 && a->ldy % 4 == 0 && ((uintptr_t)a->y & 15) == 0 &&
           (plain_of(w) != PLAIN_F32 || takes_f32(a));
}

bool cuda_blas_bf16(const cuda_device *d, const kvant_matmul_args *a)
{
    return plain_of(a->w) != PLAIN_F32 && cuda_blas_takes(d, a);
}

static size_t narrow_bytes(const kvant_matmul_args *a)
{
    return cuda_aligned((size_t)a->m * (size_t)a->w->n_in * 2);
}

/* Rows of a matrix of another type that are expanded at once. */
static int64_t piece_rows(const kvant_weight *w)
{
    const int64_t rows = EXPAND_BYTES / (2 * w->n_in) / 64 * 64;
    return rows < 64 ? 64 : rows < w->n_out ? rows : w->n_out;
}

/* Scratch: workspace, the activations in bf16, rows of the matrix in bf16. */
size_t cuda_blas_scratch(const cuda_device *d, const void *args)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)args;
    if (!cuda_blas_takes(d, a))
        return 0;
    if (plain_of(a->w) == PLAIN_F32)
        return CUDA_BLAS_WORK;
    return CUDA_BLAS_WORK + narrow_bytes(a) + (as_it_is(a->w) ? 0 : (size_t)(piece_rows(a->w) * a->w->n_in * 2));
}

uint16_t *cuda_blas_rows(const cuda_device *d)
{
    return (uint16_t *)(d->scratch + CUDA_BLAS_WORK);
}

const uint16_t *cuda_blas_narrow(const cuda_device *d, const kvant_matmul_args *a)
{
    const mm p = cuda_mm_of(a->w, a->x, a->y, a->ldx, a->ldy, a->m, 1);
    const int64_t chunks = p.n_in / 8;
    cuda_launch(d, narrow_kernel, dim3(stride_grid(d, a->m * chunks)), 256, 0, p.x, p.ldx, p.x_vec, chunks,
                a->m * chunks, (uint4 *)cuda_blas_rows(d));
    return cuda_blas_rows(d);
}

int cuda_blas_run(cuda_device *d, const kvant_matmul_args *a, const uint16_t *rows, uint16_t *halves,
                  kvant_diag *diag)
{
    const cuda_weight *c = (const cuda_weight *)a->w->packed;
    const mm p = cuda_mm_of(a->w, a->x, a->y, a->ldx, a->ldy, a->m, 1);
    if (plain_of(a->w) == PLAIN_F32)
        return cuda_blas_matmul_f32(d, (const float *)c->data, p.x, p.y, a->m, p.n_out, p.n_in, p.ldx, p.ldy,
                                    d->scratch, diag);
    unsigned char *wide = (unsigned char *)cuda_blas_rows(d) + narrow_bytes(a);
    const int64_t piece = as_it_is(a->w) ? p.n_out : piece_rows(a->w);

    if (!rows)
        rows = cuda_blas_narrow(d, a);
    for (int64_t row = 0; row < p.n_out; row += piece) {
        mm q = p;
        q.w += row * p.row_bytes;
        q.n_out = p.n_out - row < piece ? p.n_out - row : piece;
        if (!as_it_is(a->w))
            expanders[c->type](d, q, wide);
        const void *w = as_it_is(a->w) ? q.w : wide;
        void *y = halves ? (void *)(halves + row) : (void *)(a->y + row);
        const bf16_few few = { w, rows, y, halves != NULL, a->m, p.n_in, q.n_out, a->ldy };
        if (as_it_is(a->w) && cuda_bf16_few_takes(d, few))
            cuda_bf16_few(d, few);
        else
            CUDA_TRY(cuda_blas_matmul(d, w, rows, y, halves != NULL, a->m, q.n_out, p.n_in, a->ldy, d->scratch, diag));
    }
    return KVANT_OK;
}
