/* blas.cu: matrix products in bf16 and TF32 by cuBLASLt, for batches where it is best.  The library is found at run
 * time by its name, as the driver is: a machine without it uses the kernels of matmul_tiles.cu.  If the toolkit that
 * builds this has no header of it, it is left out.
 *
 * The choice of an algorithm (a heuristic of the library, the same for the same shape) is kept per shape.  Passes with
 * prompts have other rows each time, and a choice takes as long as a small product, or loads a kernel: products of
 * about as many rows share one (rows_about). */
#include <stdlib.h>
#include "devices/cuda/core/cuda_dev.cuh"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>

enum { SETS = 64, WAYS = 8, PLANS = SETS * WAYS }; /* a shape's plan is in its set */
enum { ODD_OUTPUTS = 8192 };

typedef struct blas_plan {
    int m, rows;                   /* chosen for m rows; those that the layouts have now */
    bool f32;                      /* matrix and activations in f32, products in TF32; else bf16 */
    bool halves;                   /* results in bf16; else f32 */
    int64_t n, k, ldx, ldy;
    uint64_t used;                 /* 0: free */
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
} blas_plan;

struct cuda_blas {
    void *lib;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc, desc_f32;
    cublasLtMatmulPreference_t pref;
    uint64_t clock;
    blas_plan plans[PLANS];
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
    decltype(&cublasLtMatmulPreferenceCreate) pref_create;
    decltype(&cublasLtMatmulPreferenceDestroy) pref_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) pref_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
};

template <typename F> static bool symbol(void *lib, const char *name, F *f)
{
    void *p = dlsym(lib, name);
    memcpy(f, &p, sizeof p);
    return p != NULL;
}

static bool load(cuda_blas *b)
{
    return symbol(b->lib, "cublasLtCreate", &b->create) && symbol(b->lib, "cublasLtDestroy", &b->destroy) &&
           symbol(b->lib, "cublasLtMatmul", &b->matmul) &&
           symbol(b->lib, "cublasLtMatmulDescCreate", &b->desc_create) &&
           symbol(b->lib, "cublasLtMatmulDescDestroy", &b->desc_destroy) &&
           symbol(b->lib, "cublasLtMatmulDescSetAttribute", &b->desc_set) &&
           symbol(b->lib, "cublasLtMatrixLayoutCreate", &b->layout_create) &&
           symbol(b->lib, "cublasLtMatrixLayoutDestroy", &b->layout_destroy) &&
           symbol(b->lib, "cublasLtMatrixLayoutSetAttribute", &b->layout_set) &&
           symbol(b->lib, "cublasLtMatmulPreferenceCreate", &b->pref_create) &&
           symbol(b->lib, "cublasLtMatmulPreferenceDestroy", &b->pref_destroy) &&
           symbol(b->lib, "cublasLtMatmulPreferenceSetAttribute", &b->pref_set) &&
           symbol(b->lib, "cublasLtMatmulAlgoGetHeuristic", &b->heuristic);
}

static bool prepare(cuda_blas *b)
{
    const cublasOperation_t t = CUBLAS_OP_T;
    const size_t work = CUDA_BLAS_WORK;
    return b->create(&b->handle) == CUBLAS_STATUS_SUCCESS &&
           b->desc_create(&b->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           b->desc_set(b->desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t) == CUBLAS_STATUS_SUCCESS &&
           b->desc_create(&b->desc_f32, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           b->desc_set(b->desc_f32, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t) == CUBLAS_STATUS_SUCCESS &&
           b->pref_create(&b->pref) == CUBLAS_STATUS_SUCCESS &&
           b->pref_set(b->pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work) == CUBLAS_STATUS_SUCCESS;
}

void cuda_blas_open(cuda_device *d)
{
    char name[64];
    cuda_blas *b = (cuda_blas *)calloc(1, sizeof *b);
    if (!b)
        return;
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUDART_VERSION / 1000);
    d->blas = b;
    b->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!b->lib || !load(b) || !prepare(b))
        cuda_blas_close(d);
}

static void drop_plan(cuda_blas *b, blas_plan *p)
{
    if (p->w)
        b->layout_destroy(p->w);
    if (p->x)
        b->layout_destroy(p->x);
    if (p->y)
        b->layout_destroy(p->y);
    memset(p, 0, sizeof *p);
}

/* The library itself stays loaded: it holds parts of the driver's context. */
void cuda_blas_close(cuda_device *d)
{
    cuda_blas *b = d->blas;
    d->blas = NULL;
    if (!b)
        return;
    for (int i = 0; b->layout_destroy && i < PLANS; i++)
        drop_plan(b, &b->plans[i]);
    if (b->pref)
        b->pref_destroy(b->pref);
    if (b->desc)
        b->desc_destroy(b->desc);
    if (b->desc_f32)
        b->desc_destroy(b->desc_f32);
    if (b->handle)
        b->destroy(b->handle);
    free(b);
}

static cublasLtMatmulDesc_t desc_of(const cuda_blas *b, const blas_plan *p)
{
    return p->f32 ? b->desc_f32 : b->desc;
}

/* Column-major views: y[n x m] = w[k x n] transposed times x[k x m]. */
static cublasStatus_t make_plan(cuda_blas *b, blas_plan *p)
{
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const cudaDataType_t type = p->f32 ? CUDA_R_32F : CUDA_R_16BF;
    cublasStatus_t rc = b->layout_create(&p->w, type, (uint64_t)p->k, (uint64_t)p->n, p->k);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = b->layout_create(&p->x, type, (uint64_t)p->k, (uint64_t)p->m, p->ldx);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = b->layout_create(&p->y, p->halves ? CUDA_R_16BF : CUDA_R_32F, (uint64_t)p->n, (uint64_t)p->m, p->ldy);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = b->heuristic(b->handle, desc_of(b, p), p->w, p->x, p->y, p->y, b->pref, 1, &found, &count);
    if (rc != CUBLAS_STATUS_SUCCESS || count < 1)
        return rc != CUBLAS_STATUS_SUCCESS ? rc : CUBLAS_STATUS_NOT_SUPPORTED;
    p->algo = found.algo;
    p->rows = p->m;
    return CUBLAS_STATUS_SUCCESS;
}

static unsigned set_of(const blas_plan &p)
{
    const uint64_t n = (uint64_t)p.m * 31 + (uint64_t)p.n * 7 + (uint64_t)p.k + (p.f32 ? 5 : 0) + (p.halves ? 3 : 0);
    return (unsigned)(n * 0x9e3779b97f4a7c15ull >> 58) % SETS;
}

static cublasStatus_t find_plan(cuda_blas *b, const blas_plan &want, blas_plan **out)
{
    blas_plan *set = &b->plans[set_of(want) * WAYS], *old = set;
    for (int i = 0; i < WAYS; i++) {
        blas_plan *p = &set[i];
        if (p->used && p->m == want.m && p->n == want.n && p->k == want.k && p->ldx == want.ldx && p->ldy == want.ldy &&
            p->f32 == want.f32 && p->halves == want.halves) {
            *out = p;
            p->used = ++b->clock;
            return CUBLAS_STATUS_SUCCESS;
        }
        old = p->used < old->used ? p : old;
    }
    drop_plan(b, old);
    *old = want;
    *out = old;
    const cublasStatus_t rc = make_plan(b, old);
    if (rc == CUBLAS_STATUS_SUCCESS)
        old->used = ++b->clock;
    else
        drop_plan(b, old);
    return rc;
}

/* Rows of which a choice is made for m: up to 3 % more.  Those of decode stay what they are.  On an H200 the choice for
 * an odd number is up to a tenth better where a matrix has few outputs, and worse where it has many
 * (bench/results/cuda-h200-serving.md). */
static int rows_about(int m, int64_t n)
{
    int step = 8;
    while (step * 32 < m)
        step *= 2;
    return m <= 64 ? m : (m + step - 1) / step * step - (n <= ODD_OUTPUTS);
}

static cublasStatus_t set_rows(const cuda_blas *b, blas_plan *p, int rows)
{
    const uint64_t columns = (uint64_t)rows;
    if (p->rows == rows)
        return CUBLAS_STATUS_SUCCESS;
    p->rows = rows;
    const cublasStatus_t rc = b->layout_set(p->x, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof columns);
    return rc != CUBLAS_STATUS_SUCCESS ? rc
                                       : b->layout_set(p->y, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof columns);
}

/* By the choice for `about` rows. */
static cublasStatus_t run_about(cuda_device *d, blas_plan want, int about, const void *w, const void *x, void *y,
                                void *work)
{
    const float one = 1.0f, zero = 0.0f;
    const int rows = want.m;
    cuda_blas *b = d->blas;
    blas_plan *p = NULL;
    want.m = about;
    cublasStatus_t rc = find_plan(b, want, &p);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = set_rows(b, p, rows);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = b->matmul(b->handle, desc_of(b, p), &one, w, p->w, x, p->x, &zero, y, p->y, y, p->y, &p->algo, work,
                       CUDA_BLAS_WORK, d->stream);
    return rc;
}

static int run(cuda_device *d, const blas_plan &want, const void *w, const void *x, void *y, void *work,
               kvant_diag *diag)
{
    const int about = rows_about(want.m, want.n);
    cublasStatus_t rc = run_about(d, want, about, w, x, y, work);
    if (rc != CUBLAS_STATUS_SUCCESS && about != want.m)
        rc = run_about(d, want, want.m, w, x, y, work); /* a choice that this many rows cannot have */
    if (rc != CUBLAS_STATUS_SUCCESS)
        return cuda_fail(diag, KVANT_EDEVICE, "device cuda: cuBLASLt: status %d for %d x %lld x %lld", (int)rc, want.m,
                         (long long)want.n, (long long)want.k);
    return KVANT_OK;
}

int cuda_blas_matmul(cuda_device *d, const void *w, const void *x, void *y, bool halves, int m, int64_t n, int64_t k,
                     int64_t ldy, void *work, kvant_diag *diag)
{
    blas_plan want = {};
    want.m = m, want.n = n, want.k = k, want.ldx = k, want.ldy = ldy, want.halves = halves;
    return run(d, want, w, x, y, work, diag);
}

int cuda_blas_matmul_f32(cuda_device *d, const float *w, const float *x, float *y, int m, int64_t n, int64_t k,
                         int64_t ldx, int64_t ldy, void *work, kvant_diag *diag)
{
    blas_plan want = {};
    want.m = m, want.n = n, want.k = k, want.ldx = ldx, want.ldy = ldy, want.f32 = true;
    return run(d, want, w, x, y, work, diag);
}
#else
void cuda_blas_open(cuda_device *d)
{
    d->blas = NULL;
}

void cuda_blas_close(cuda_device *d)
{
    (void)d;
}

int cuda_blas_matmul(cuda_device *d, const void *w, const void *x, void *y, bool halves, int m, int64_t n, int64_t k,
                     int64_t ldy, void *work, kvant_diag *diag)
{
    (void)d, (void)w, (void)x, (void)y, (void)halves, (void)m, (void)n, (void)k, (void)ldy, (void)work;
    return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: built without cuBLASLt");
}

int cuda_blas_matmul_f32(cuda_device *d, const float *w, const float *x, float *y, int m, int64_t n, int64_t k,
                         int64_t ldx, int64_t ldy, void *work, kvant_diag *diag)
{
    (void)ldx;
    return cuda_blas_matmul(d, w, x, y, false, m, n, k, ldy, work, diag);
}
#endif
