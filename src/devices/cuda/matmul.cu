/* matmul.cu: embed, matmul, matmul_id for every weight type in file layout: which kernel runs, and the tiled ones.
 *
 * Few rows: gemv.cu.  More, in mode auto: cuBLASLt on bf16 activations (blas.cu), the matrix expanded to bf16 first
 * where it is of another type; without the library, and for experts, tiles of 64 outputs x 64 rows on bf16
 * tensor cores with f32 sums.  In mode f32: the same tiles with f32 FMA.  matmul_id sorts its (row, slot) pairs by
 * expert on the device; nothing is read back. */
#include <mma.h>
#include <cuda_bf16.h>
#include "devices/cuda/mm.cuh"
#include "devices/cuda/row_norm.cuh"

enum { TILE = 64, STEP = 32, MAX_EXPERTS = 1024, BLAS_ROWS = 2, BLAS_OTHER_ROWS = 5, EXPAND_BYTES = 128 << 20 };

/* What a tile block computes: expert and the sorted rows lo .. hi-1; 0 where the grid is larger than the work. */
static __device__ bool tile_rows(const mm &p, int tile, int *e, int *lo, int *hi)
{
    __shared__ int found[3];
    if (!p.offs) {
        *e = 0;
        *lo = tile * TILE;
        *hi = *lo + TILE < p.rows ? *lo + TILE : p.rows;
        return *lo < p.rows;
    }
    if (threadIdx.x == 0) {
        int left = tile, i = 0;
        found[0] = -1;
        for (; i < p.n_expert; i++) {
            const int tiles = (p.offs[i + 1] - p.offs[i] + TILE - 1) / TILE;
            if (left < tiles) {
                found[0] = i;
                found[1] = p.offs[i] + left * TILE;
                found[2] = found[1] + TILE < p.offs[i + 1] ? found[1] + TILE : p.offs[i + 1];
                break;
            }
            left -= tiles;
        }
    }
    __syncthreads();
    *e = found[0];
    *lo = found[1];
    *hi = found[2];
    return *e >= 0;
}

/* Thread's eight weights of the tile: row t/4 of the tile, values 8*(t%4) .. of the step; zero outside. */
template <int T>
static __device__ __forceinline__ void tile_weights(const mm &p, int e, int64_t out, int64_t k, float *w)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        w[i] = 0.0f;
    if (out >= p.n_out || k >= p.n_in)
        return;
    const uint8_t *row = p.w + ((int64_t)e * p.n_out + out) * p.row_bytes;
    if (!wide<T>() || (p.w_vec && k + 8 <= p.n_in)) {
        chunk8<T>(row, k / 8, w);
        return;
    }
    for (int i = 0; i < 8 && k + i < p.n_in; i++)
        w[i] = value1<T>(row, k + i);
}

static __device__ __forceinline__ void tile_acts(const mm &p, int r, int64_t k, float *v)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = 0.0f;
    if (r < 0 || k >= p.n_in)
        return;
    const float *x = p.x + (int64_t)(r / p.x_div) * p.ldx + k;
    if (k + 8 <= p.n_in) {
        load8(x, p.x_vec, v);
        return;
    }
    for (int i = 0; i < 8 && k + i < p.n_in; i++)
        v[i] = x[i];
}

/* f32: 256 threads, each 4 outputs x 4 rows; k ascending in one FMA chain per output. */
template <int T> static __global__ void __launch_bounds__(256) gemm_f32_kernel(mm p)
{
    __shared__ __align__(16) float ws[STEP][TILE + 4], xs[STEP][TILE + 4];
    __shared__ int map[TILE];
    const int t = threadIdx.x, tr = t / 4, tk = 8 * (t % 4), ox = 4 * (t % 16), rx = 4 * (t / 16);
    const int64_t out0 = (int64_t)blockIdx.x * TILE;
    float acc[4][4] = { { 0 } };
    int e, lo, hi;

    if (!tile_rows(p, (int)blockIdx.y, &e, &lo, &hi))
        return;
    if (t < TILE)
        map[t] = lo + t < hi ? (p.perm ? p.perm[lo + t] : lo + t) : -1;
    __syncthreads();
    for (int64_t k = 0; k < p.n_in; k += STEP) {
        float w[8], v[8];
        tile_weights<T>(p, e, out0 + tr, k + tk, w);
        tile_acts(p, map[tr], k + tk, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            ws[tk + i][tr] = w[i];
            xs[tk + i][tr] = v[i];
        }
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < STEP; i++) {
            const float4 a = *(const float4 *)&ws[i][ox], b = *(const float4 *)&xs[i][rx];
            const float av[4] = { a.x, a.y, a.z, a.w }, bv[4] = { b.x, b.y, b.z, b.w };
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int o = 0; o < 4; o++)
                    acc[r][o] = fmaf(av[o], bv[r], acc[r][o]);
        }
        __syncthreads();
    }
    const float scale = scale_of(p, e);
    for (int r = 0; r < 4; r++)
        for (int o = 0; o < 4; o++)
            if (map[rx + r] >= 0 && out0 + ox + o < p.n_out)
                p.y[(int64_t)map[rx + r] * p.ldy + out0 + ox + o] = acc[r][o] * scale;
}

/* bf16 tensor cores: 8 warps, each 16 rows x 32 outputs of the tile. */
template <int T> static __global__ void __launch_bounds__(256) gemm_bf16_kernel(mm p)
{
    using namespace nvcuda;
    enum { LD = STEP + 8, LDC = TILE + 4 };
    __shared__ __align__(32) union {
        struct {
            __nv_bfloat16 w[TILE][LD], x[TILE][LD];
        } in;
        float out[TILE][LDC];
    } s;
    __shared__ int map[TILE];
    const int t = threadIdx.x, tr = t / 4, tk = 8 * (t % 4), warp = t / 32, wr = 16 * (warp / 2), wo = 32 * (warp % 2);
    const int64_t out0 = (int64_t)blockIdx.x * TILE;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c[2];
    int e, lo, hi;

    if (!tile_rows(p, (int)blockIdx.y, &e, &lo, &hi))
        return;
    if (t < TILE)
        map[t] = lo + t < hi ? (p.perm ? p.perm[lo + t] : lo + t) : -1;
    wmma::fill_fragment(c[0], 0.0f);
    wmma::fill_fragment(c[1], 0.0f);
    __syncthreads();
    for (int64_t k = 0; k < p.n_in; k += STEP) {
        float w[8], v[8];
        tile_weights<T>(p, e, out0 + tr, k + tk, w);
        tile_acts(p, map[tr], k + tk, v);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            *(__nv_bfloat162 *)&s.in.w[tr][tk + i] = __floats2bfloat162_rn(w[i], w[i + 1]);
            *(__nv_bfloat162 *)&s.in.x[tr][tk + i] = __floats2bfloat162_rn(v[i], v[i + 1]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < STEP; i += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
            wmma::load_matrix_sync(a, &s.in.x[wr][i], LD);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> b;
                wmma::load_matrix_sync(b, &s.in.w[wo + 16 * j][i], LD);
                wmma::mma_sync(c[j], a, b, c[j]);
            }
        }
        __syncthreads();
    }
    wmma::store_matrix_sync(&s.out[wr][wo], c[0], LDC, wmma::mem_row_major);
    wmma::store_matrix_sync(&s.out[wr][wo + 16], c[1], LDC, wmma::mem_row_major);
    __syncthreads();
    const float scale = scale_of(p, e);
    for (int u = t; u < TILE * TILE; u += 256) {
        const int r = u / TILE, o = u % TILE;
        if (map[r] >= 0 && out0 + o < p.n_out)
            p.y[(int64_t)map[r] * p.ldy + out0 + o] = s.out[r][o] * scale;
    }
}

/* offs and perm from ids, one block.  The order inside an expert is not fixed and does not matter: every output is
 * computed from its own row alone. */
static __global__ void sort_kernel(const int32_t *ids, int rows, int n_expert, int32_t *offs, int32_t *perm)
{
    __shared__ int count[MAX_EXPERTS];
    for (int e = threadIdx.x; e < n_expert; e += blockDim.x)
        count[e] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < rows; i += blockDim.x)
        atomicAdd(&count[ids[i]], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int e = 0; e < n_expert; e++) {
            const int n = count[e];
            offs[e] = count[e] = sum;
            sum += n;
        }
        offs[n_expert] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < rows; i += blockDim.x)
        perm[atomicAdd(&count[ids[i]], 1)] = i;
}

/* ---- 16-bit copies for cuBLASLt ---- */

static __device__ __forceinline__ uint4 pack8(const float *v)
{
    union {
        __nv_bfloat162 h[4];
        uint4 u;
    } o;
#pragma unroll
    for (int i = 0; i < 4; i++)
        o.h[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
    return o.u;
}

/* to[m][k] = x[m][ldx]; k a multiple of 8. */
static __global__ void __launch_bounds__(256)
    narrow_kernel(const float *x, int64_t ldx, int x_vec, int64_t chunks, int64_t total, uint4 *to)
{
    pdl_go();
    pdl_wait();
    for (int64_t u = blockIdx.x * 256ll + threadIdx.x; u < total; u += gridDim.x * 256ll) {
        float v[8];
        load8(x + u / chunks * ldx + u % chunks * 8, x_vec, v);
        to[u] = pack8(v);
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
        to[u] = pack8(w);
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

template <int T> static void launch(const mm &p, int tiles, int f32, cudaStream_t s)
{
    const dim3 grid(cuda_blocks(p.n_out, TILE), (unsigned)tiles);
    if (f32)
        gemm_f32_kernel<T><<<grid, 256, 0, s>>>(p);
    else
        gemm_bf16_kernel<T><<<grid, 256, 0, s>>>(p);
}

typedef void (*launch_fn)(const mm &p, int tiles, int f32, cudaStream_t s);
#define CUDA_WTYPE(sym, name) launch<WT_##sym>,
static const launch_fn launches[] = {
#include "devices/cuda/cuda_wtypes.def"
};
#undef CUDA_WTYPE
#define CUDA_WTYPE(sym, name) expand<WT_##sym>,
static void (*const expanders[])(const cuda_device *d, const mm &p, void *to) = {
#include "devices/cuda/cuda_wtypes.def"
};
#undef CUDA_WTYPE

static mm mm_of(const kvant_weight *w, const float *x, float *y, int64_t ldx, int64_t ldy, int rows, int x_div)
{
    const cuda_weight *c = (const cuda_weight *)w->packed;
    mm p;
    memset(&p, 0, sizeof p);
    p.w = c->data;
    p.scale = c->scale;
    p.x = x;
    p.y = y;
    p.n_in = w->n_in;
    p.n_out = w->n_out;
    p.row_bytes = (int64_t)c->row_bytes;
    p.ldx = ldx;
    p.ldy = ldy;
    p.rows = rows;
    p.n_expert = w->n_expert;
    p.n_scale = w->n_scale;
    p.x_div = x_div;
    p.x_vec = (((uintptr_t)x | (uintptr_t)(ldx * 4)) & 15) == 0;
    p.w_vec = (c->row_bytes & 15) == 0;
    return p;
}

static int weight_supports(const kvant_weight *w, const char *op, kvant_diag *diag)
{
    if (cuda_wtype_find(w->type) < 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s: weight type %s has no kernels here", op,
                         w->type->name);
    return KVANT_OK;
}

static int loaded(const kvant_weight *w, const char *op, kvant_diag *diag)
{
    if (!w->packed)
        return cuda_fail(diag, KVANT_EINVAL, "device cuda: %s: weight %.64s was not loaded", op,
                         w->name ? w->name : "?");
    return KVANT_OK;
}

static int matmul_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    (void)d;
    return weight_supports(((const kvant_matmul_args *)args)->w, "matmul", diag);
}

static bool as_it_is(const kvant_weight *w)
{
    return cuda_wtype_find(w->type) == WT_bf16 && !w->scale;
}

/* By cuBLASLt: 16-bit products allowed, enough rows (measured: 12288 x 4096 on an H200), and shapes that it takes
 * (16-byte aligned rows). */
static bool by_blas(const cuda_device *d, const kvant_matmul_args *a)
{
    const kvant_weight *w = a->w;
    return d->blas && a->compute != KVANT_COMPUTE_F32 && a->m >= (as_it_is(w) ? BLAS_ROWS : BLAS_OTHER_ROWS) &&
           w->n_in % 8 == 0 && w->n_in >= 64 && w->n_out >= 32 && a->ldy % 4 == 0 && ((uintptr_t)a->y & 15) == 0 &&
           cuda_wtype_find(w->type) != WT_f32;
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
static size_t matmul_scratch(const cuda_device *d, const void *args)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)args;
    if (!by_blas(d, a))
        return 0;
    return CUDA_BLAS_WORK + narrow_bytes(a) + (as_it_is(a->w) ? 0 : (size_t)(piece_rows(a->w) * a->w->n_in * 2));
}

static int run_blas(cuda_device *d, const kvant_matmul_args *a, const mm &p, kvant_diag *diag)
{
    const cuda_weight *c = (const cuda_weight *)a->w->packed;
    unsigned char *x = d->scratch + CUDA_BLAS_WORK, *wide = x + narrow_bytes(a);
    const int64_t chunks = p.n_in / 8, piece = as_it_is(a->w) ? p.n_out : piece_rows(a->w);

    cuda_launch(d, narrow_kernel, dim3(stride_grid(d, a->m * chunks)), 256, 0, p.x, p.ldx, p.x_vec, chunks,
                a->m * chunks, (uint4 *)x);
    for (int64_t row = 0; row < p.n_out; row += piece) {
        mm q = p;
        q.w += row * p.row_bytes;
        q.n_out = p.n_out - row < piece ? p.n_out - row : piece;
        if (!as_it_is(a->w))
            expanders[c->type](d, q, wide);
        CUDA_TRY(cuda_blas_matmul(d, as_it_is(a->w) ? q.w : wide, x, a->y + row, a->m, q.n_out, p.n_in, a->ldy,
                                  d->scratch, diag));
    }
    return KVANT_OK;
}

static int matmul_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)args;
    CUDA_TRY(loaded(a->w, "matmul", diag));
    if (a->m <= 0)
        return KVANT_OK;
    const mm p = mm_of(a->w, a->x, a->y, a->ldx, a->ldy, a->m, 1);
    const int type = ((const cuda_weight *)a->w->packed)->type;
    if (by_blas(d, a))
        return run_blas(d, a, p, diag);
    if (a->m <= GEMV_ROWS)
        cuda_gemv(d, type, p, 0);
    else
        launches[type](p, (a->m + TILE - 1) / TILE, a->compute == KVANT_COMPUTE_F32, d->stream);
    return KVANT_OK;
}

/* Values of gate and up where the op after a matmul is their swiglu, in place over the gate half; else 0. */
static int64_t swiglu_after(const kvant_op *ops, int n)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)ops[0].args;
    if (n < 2 || ops[1].id != KVANT_OP_SWIGLU)
        return 0;
    const kvant_swiglu_args *s = (const kvant_swiglu_args *)ops[1].args;
    const bool fits = s->gate == a->y && s->y == a->y && s->up == a->y + s->f && s->ldg == a->ldy && s->ldu == a->ldy &&
                      s->ldy == a->ldy && s->n == a->m && a->w->n_out == 2 * (int64_t)s->f;
    return fits ? s->f : 0;
}

/* As a product of few rows, if it is one; false else. */
static bool few_rows(const cuda_device *d, const kvant_op *op, mm *p, int *type)
{
    const kvant_matmul_args *a = (const kvant_matmul_args *)op->args;
    if (op->id != KVANT_OP_MATMUL || a->m < 1 || a->m > GEMV_ROWS || !a->w->packed || by_blas(d, a))
        return false;
    *p = mm_of(a->w, a->x, a->y, a->ldx, a->ldy, a->m, 1);
    *type = ((const cuda_weight *)a->w->packed)->type;
    return true;
}

static bool apart(const float *a, int64_t n, const float *b, int64_t m)
{
    return a + n <= b || b + m <= a;
}

/* matmul, norm_add_rms of its result, matmul of the norm (and swiglu) for one row: two launches.  The first adds to the
 * residual row, every block of the second normalises that row for itself. */
static int fuse_norm(cuda_device *d, const kvant_op *ops, int n)
{
    mm a, b;
    int type_a, type_b;
    if (n < 3 || ops[1].id != KVANT_OP_NORM_ADD_RMS || !few_rows(d, &ops[0], &a, &type_a) ||
        !few_rows(d, &ops[2], &b, &type_b) || !cuda_gemv_streams(type_a, a) || !cuda_gemv_streams(type_b, b))
        return 0;
    const kvant_norm_add_rms_args *s = (const kvant_norm_add_rms_args *)ops[1].args;
    if (s->n != 1 || s->add != a.y || s->d != a.n_out || s->y != b.x || s->d != b.n_in ||
        !row_fits(s->x, s->y, s->w, 0, 0, s->d) || !apart(s->x, s->d, a.x, a.n_in) || !apart(s->x, s->d, a.y, s->d) ||
        !apart(s->x, s->d, b.y, b.n_out) || !apart(s->x, s->d, s->y, s->d) || !apart(s->y, s->d, b.y, b.n_out))
        return 0;
    const int64_t pair = swiglu_after(ops + 2, n - 2);
    a.add = s->x;
    b.x = s->x;
    b.x_vec = 1;
    b.norm = s->w;
    b.normed = s->y;
    b.eps = s->eps;
    cuda_gemv_stream(d, type_a, a, 0);
    cuda_gemv_stream(d, type_b, b, pair);
    return pair ? 4 : 3;
}

static int matmul_fuse(cuda_device *d, const kvant_op *ops, int n)
{
    const int took = fuse_norm(d, ops, n);
    if (took)
        return took;
    const int64_t pair = swiglu_after(ops, n);
    mm p;
    int type;
    if (!pair || !few_rows(d, ops, &p, &type))
        return 0;
    cuda_gemv(d, type, p, pair);
    return 2;
}

/* Few tokens: every (row, slot) reads its own expert once; the sort would cost more than it saves. */
static int id_sorted(const kvant_matmul_id_args *a)
{
    return a->n > GEMV_ROWS;
}

static int matmul_id_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)args;
    (void)d;
    if (a->w->n_expert > MAX_EXPERTS)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: matmul_id: %d experts, wanted at most %d",
                         a->w->n_expert, MAX_EXPERTS);
    return weight_supports(a->w, "matmul_id", diag);
}

static size_t matmul_id_scratch(const cuda_device *d, const void *args)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)args;
    (void)d;
    return ((size_t)a->n * (size_t)a->k + MAX_EXPERTS + 1) * sizeof(int32_t);
}

static int matmul_id_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_matmul_id_args *a = (const kvant_matmul_id_args *)args;
    CUDA_TRY(loaded(a->w, "matmul_id", diag));
    CUDA_TRY(matmul_id_supports(d, args, diag));
    const int rows = a->n * a->k;
    if (rows <= 0)
        return KVANT_OK;
    mm p = mm_of(a->w, a->x, a->y, a->ldx, a->w->n_out, rows, a->x_div);
    const int type = ((const cuda_weight *)a->w->packed)->type;
    p.ids = a->ids;
    if (!id_sorted(a)) {
        cuda_gemv(d, type, p, 0);
        return KVANT_OK;
    }
    int32_t *offs = (int32_t *)d->scratch, *perm = offs + MAX_EXPERTS + 1;
    sort_kernel<<<1, 1024, 0, d->stream>>>(a->ids, rows, a->w->n_expert, offs, perm);
    p.offs = offs;
    p.perm = perm;
    const int tiles = rows / TILE + (rows < a->w->n_expert ? rows : a->w->n_expert) + 1; /* no more can be begun */
    launches[type](p, tiles, a->compute == KVANT_COMPUTE_F32, d->stream);
    return KVANT_OK;
}

/* ---- embed ---- */

template <int T> static __global__ void embed_kernel(mm p)
{
    const uint8_t *row = p.w + (int64_t)p.ids[blockIdx.x] * p.row_bytes;
    float *y = p.y + (int64_t)blockIdx.x * p.ldy;
    const int64_t chunks = wide<T>() ? 0 : p.n_in / 8;
    for (int64_t c = threadIdx.x; c < chunks; c += blockDim.x) {
        float w[8];
        chunk8<T>(row, c, w);
        for (int i = 0; i < 8; i++)
            y[8 * c + i] = p.scale ? w[i] * p.scale[0] : w[i];
    }
    if (wide<T>())
        for (int64_t k = threadIdx.x; k < p.n_in; k += blockDim.x) {
            const float w = value1<T>(row, k);
            y[k] = p.scale ? w * p.scale[0] : w;
        }
}

template <int T> static void embed_launch(const mm &p, int tiles, int f32, cudaStream_t s)
{
    (void)tiles;
    (void)f32;
    embed_kernel<T><<<(unsigned)p.rows, 128, 0, s>>>(p);
}

#define CUDA_WTYPE(sym, name) embed_launch<WT_##sym>,
static const launch_fn embed_launches[] = {
#include "devices/cuda/cuda_wtypes.def"
};
#undef CUDA_WTYPE

static int embed_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    (void)d;
    return weight_supports(((const kvant_embed_args *)args)->w, "embed", diag);
}

static int embed_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_embed_args *a = (const kvant_embed_args *)args;
    CUDA_TRY(loaded(a->w, "embed", diag));
    if (a->n <= 0)
        return KVANT_OK;
    mm p = mm_of(a->w, NULL, a->y, 0, a->w->n_in, a->n, 1);
    p.ids = a->ids;
    embed_launches[((const cuda_weight *)a->w->packed)->type](p, 0, 1, d->stream);
    return KVANT_OK;
}

const cuda_op cuda_op_embed = { embed_supports, NULL, embed_run };
const cuda_op cuda_op_matmul = { matmul_supports, matmul_scratch, matmul_run, matmul_fuse };
const cuda_op cuda_op_matmul_id = { matmul_id_supports, matmul_id_scratch, matmul_id_run };
