/* norm.cu: norm_rms, norm_layer, norm_add_rms, norm_l2, norm_gated.
 *
 * Groups of up to HEAD values: a warp each (head_norm.cuh).  Longer rows: a block each, values in registers where they
 * fit (row_norm.cuh), sums over a fixed tree (thread, shuffles, warps in order). */
#include "devices/cuda/ops/head_norm.cuh"
#include "devices/cuda/ops/row_norm.cuh"

/* ---- a warp per group of d <= HEAD values ---- */

static __global__ void __launch_bounds__(THREADS) head_rms_kernel(kvant_norm_rms_args a)
{
    int64_t i;
    int j;
    pdl_go();
    if (!group_at(a.n, a.h, &i, &j))
        return;
    pdl_wait();
    head h = head_load(a.x + i * a.ldx + j * a.gx, a.d);
    head_rms(&h, a.w, a.d, a.eps);
    head_store(a.y + i * a.ldy + j * a.gy, h, a.d);
}

static __global__ void __launch_bounds__(THREADS) head_l2_kernel(kvant_norm_l2_args a)
{
    int64_t i;
    int j;
    pdl_go();
    if (!group_at(a.n, a.h, &i, &j))
        return;
    pdl_wait();
    float *x = a.x + i * a.ldx + j * a.gx;
    head h = head_load(x, a.d);
    const float length = sqrtf(head_squares(h));
    const float scale = 1.0f / (length < a.eps ? a.eps : length); /* a NaN length stays NaN */
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        h.v[k] *= scale;
    head_store(x, h, a.d);
}

static __global__ void __launch_bounds__(THREADS) head_gated_kernel(kvant_norm_gated_args a)
{
    int64_t i;
    int j;
    pdl_go();
    if (!group_at(a.n, a.h, &i, &j))
        return;
    pdl_wait();
    head o = head_load(a.o + (i * a.h + j) * a.dv, a.dv);
    const head z = head_load(a.z + i * a.ldz + j * a.dv, a.dv);
    head_rms(&o, a.w, a.dv, a.eps);
#pragma unroll
    for (int k = 0; k < SLOTS; k++)
        o.v[k] *= z.v[k] / (1.0f + expf(-z.v[k]));
    head_store(a.y + (i * a.h + j) * a.dv, o, a.dv);
}

/* ---- a block per row ---- */

static __device__ float block_sum(float v)
{
    __shared__ float part[WARPS];
    v = warp_sum(v);
    __syncthreads(); /* part may still be read from the sum before */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < WARPS; i++)
        sum += part[i];
    return sum;
}

static __device__ float square_sum(const float *x, int d)
{
    float s = 0.0f;
    for (int e = threadIdx.x; e < d; e += THREADS)
        s = fmaf(x[e], x[e], s);
    return block_sum(s);
}

static __global__ void __launch_bounds__(THREADS) norm_rms_kernel(kvant_norm_rms_args a)
{
    const int64_t i = blockIdx.x / a.h, j = blockIdx.x % a.h;
    const float *x = a.x + i * a.ldx + j * a.gx;
    float *y = a.y + i * a.ldy + j * a.gy;
    pdl_go();
    pdl_wait();
    const float scale = 1.0f / sqrtf(square_sum(x, a.d) / (float)a.d + a.eps);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        y[e] = x[e] * scale * a.w[e];
}

static __global__ void __launch_bounds__(THREADS) norm_layer_kernel(kvant_norm_layer_args a)
{
    const int64_t i = blockIdx.x / a.h, j = blockIdx.x % a.h;
    const float *x = a.x + i * a.ldx + j * a.gx, *w = a.w + j * a.gw, *b = a.b + (a.b ? j * a.gw : 0);
    float *y = a.y + i * a.ldy + j * a.gy, sum = 0.0f, squares = 0.0f;
    pdl_go();
    pdl_wait();
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        sum += x[e];
    const float mean = block_sum(sum) / (float)a.d;
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        squares = fmaf(x[e] - mean, x[e] - mean, squares);
    const float scale = 1.0f / sqrtf(block_sum(squares) / (float)a.d + a.eps);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        y[e] = (x[e] - mean) * scale * w[e] + (a.b ? b[e] : 0.0f);
}

static __global__ void __launch_bounds__(THREADS) norm_l2_kernel(kvant_norm_l2_args a)
{
    float *x = a.x + (int64_t)(blockIdx.x / a.h) * a.ldx + (int64_t)(blockIdx.x % a.h) * a.gx;
    pdl_go();
    pdl_wait();
    const float length = sqrtf(square_sum(x, a.d));
    const float scale = 1.0f / (length < a.eps ? a.eps : length);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        x[e] *= scale;
}

static __global__ void __launch_bounds__(THREADS) norm_gated_kernel(kvant_norm_gated_args a)
{
    const int64_t i = blockIdx.x / a.h, j = blockIdx.x % a.h;
    const float *o = a.o + (i * a.h + j) * a.dv, *z = a.z + i * a.ldz + j * a.dv;
    float *y = a.y + (i * a.h + j) * a.dv;
    pdl_go();
    pdl_wait();
    const float scale = 1.0f / sqrtf(square_sum(o, a.dv) / (float)a.dv + a.eps);
    for (int e = threadIdx.x; e < a.dv; e += THREADS)
        y[e] = o[e] * scale * a.w[e] * (z[e] / (1.0f + expf(-z[e])));
}

/* Rows that row_fits: read once. */
template <int P>
static __global__ void __launch_bounds__(ROW_THREADS) norm_row_kernel(row_norm p, uint16_t *rows)
{
    const int64_t row = blockIdx.x;
    __shared__ float part[ROW_WARPS];
    float v[P][8];

    pdl_go();
    pdl_wait();
#pragma unroll
    for (int i = 0; i < P; i++) {
        const int at = 8 * (threadIdx.x + i * ROW_THREADS);
        float *to = p.x + row * p.ldx + at;
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[i][e] = 0.0f;
        if (at >= p.d)
            continue;
        row_load(to, v[i]);
        if (p.add || p.halves) {
            float m[8];
            if (p.halves)
                row_load(p.halves + row * p.d + at, m);
            else
                row_load(p.add + row * p.ldx + at, m);
#pragma unroll
            for (int e = 0; e < 8; e++)
                v[i][e] += m[e];
            row_store(to, v[i]);
        }
    }
    row_finish<P>(v, p.d, p.eps, part, p.w, p.y ? p.y + row * p.ldy : NULL, rows ? rows + row * p.d : NULL);
}

bool cuda_row_norm(const kvant_norm_rms_args *a, row_norm *o)
{
    *o = { (float *)a->x, NULL, a->w, NULL, a->y, a->ldx, a->ldy, a->n, a->d, a->eps };
    return a->n > 0 && a->h == 1 && a->d > HEAD && row_fits(a->x, a->y, a->w, a->ldx, a->ldy, a->d);
}

bool cuda_row_norm_add(const kvant_norm_add_rms_args *a, row_norm *o)
{
    *o = { a->x, a->add, a->w, NULL, a->y, a->d, a->d, a->n, a->d, a->eps };
    return a->n > 0 && a->d > HEAD && row_fits(a->x, a->y, a->w, a->d, a->d, a->d) && ((uintptr_t)a->add & 15) == 0;
}

void cuda_row_norm_run(const cuda_device *d, const row_norm &o, uint16_t *rows)
{
    void (*const kernel)(row_norm, uint16_t *) =
        o.d <= 8 * ROW_THREADS ? norm_row_kernel<1> : norm_row_kernel<ROW_PARTS>;
    cuda_launch(d, kernel, dim3((unsigned)o.n), ROW_THREADS, 0, o, rows);
}

/* Rows that do not fit the registers: x is stored and read again by the same thread. */
static __global__ void __launch_bounds__(THREADS) norm_add_rms_kernel(kvant_norm_add_rms_args a)
{
    float *x = a.x + (int64_t)blockIdx.x * a.d, *y = a.y + (int64_t)blockIdx.x * a.d, s = 0.0f;
    const float *add = a.add + (int64_t)blockIdx.x * a.d;
    pdl_go();
    pdl_wait();
    for (int e = threadIdx.x; e < a.d; e += THREADS) {
        const float v = x[e] + add[e];
        x[e] = v;
        s = fmaf(v, v, s);
    }
    const float scale = 1.0f / sqrtf(block_sum(s) / (float)a.d + a.eps);
    for (int e = threadIdx.x; e < a.d; e += THREADS)
        y[e] = x[e] * scale * a.w[e];
}

/* ---- ops ---- */

static int norm_rms_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_rms_args *a = (const kvant_norm_rms_args *)args;
    const int64_t groups = a->n * (int64_t)a->h;
    row_norm rows;
    (void)diag;
    if (groups <= 0)
        return KVANT_OK;
    if (a->d <= HEAD)
        cuda_launch(d, head_rms_kernel, dim3(cuda_blocks(groups, WARPS)), THREADS, 0, *a);
    else if (cuda_row_norm(a, &rows))
        cuda_row_norm_run(d, rows, NULL);
    else
        cuda_launch(d, norm_rms_kernel, dim3((unsigned)groups), THREADS, 0, *a);
    return KVANT_OK;
}

static int norm_layer_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_layer_args *a = (const kvant_norm_layer_args *)args;
    const int64_t groups = a->n * (int64_t)a->h;
    (void)diag;
    if (groups > 0)
        cuda_launch(d, norm_layer_kernel, dim3((unsigned)groups), THREADS, 0, *a);
    return KVANT_OK;
}

static int norm_add_rms_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_add_rms_args *a = (const kvant_norm_add_rms_args *)args;
    row_norm rows;
    (void)diag;
    if (cuda_row_norm_add(a, &rows))
        cuda_row_norm_run(d, rows, NULL);
    else if (a->n > 0)
        cuda_launch(d, norm_add_rms_kernel, dim3((unsigned)a->n), THREADS, 0, *a);
    return KVANT_OK;
}

static int norm_l2_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_l2_args *a = (const kvant_norm_l2_args *)args;
    const int64_t groups = a->n * (int64_t)a->h;
    (void)diag;
    if (groups > 0 && a->d <= HEAD)
        cuda_launch(d, head_l2_kernel, dim3(cuda_blocks(groups, WARPS)), THREADS, 0, *a);
    else if (groups > 0)
        cuda_launch(d, norm_l2_kernel, dim3((unsigned)groups), THREADS, 0, *a);
    return KVANT_OK;
}

static int norm_gated_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_norm_gated_args *a = (const kvant_norm_gated_args *)args;
    const int64_t groups = a->n * (int64_t)a->h;
    (void)diag;
    if (groups > 0 && a->dv <= HEAD)
        cuda_launch(d, head_gated_kernel, dim3(cuda_blocks(groups, WARPS)), THREADS, 0, *a);
    else if (groups > 0)
        cuda_launch(d, norm_gated_kernel, dim3((unsigned)groups), THREADS, 0, *a);
    return KVANT_OK;
}

const cuda_op cuda_op_norm_rms = { NULL, NULL, norm_rms_run };
const cuda_op cuda_op_norm_layer = { NULL, NULL, norm_layer_run };
const cuda_op cuda_op_norm_add_rms = { NULL, NULL, norm_add_rms_run };
const cuda_op cuda_op_norm_l2 = { NULL, NULL, norm_l2_run };
const cuda_op cuda_op_norm_gated = { NULL, NULL, norm_gated_run };
