/* moe.cu: moe_route (one warp per row) and moe_combine, alone or with the sum of a shared expert and the norm behind
 * it. */
#include "devices/cuda/ops/route.cuh"
#include "devices/cuda/ops/row_norm.cuh"

enum { THREADS = 256, MAX_EXPERTS = 4096 };

static __global__ void __launch_bounds__(32) route_kernel(kvant_moe_route_args a)
{
    extern __shared__ float p[];
    pdl_go();
    pdl_wait();
    route_row(a, blockIdx.x, p);
}

static int route_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = (const kvant_moe_route_args *)args;
    (void)d;
    if (a->n_expert > MAX_EXPERTS)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: moe_route: %d experts, wanted at most %d", a->n_expert,
                         MAX_EXPERTS);
    if (a->k > ROUTE_MOST)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: moe_route: %d experts of a row, wanted at most %d", a->k,
                         ROUTE_MOST);
    return KVANT_OK;
}

/* At most 49 KB. */
static int route_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = (const kvant_moe_route_args *)args;
    const size_t bytes = route_bytes(*a);
    CUDA_TRY(route_supports(d, args, diag));
    cuda_smem(route_kernel, bytes);
    if (a->n > 0)
        cuda_launch(d, route_kernel, dim3((unsigned)a->n), 32, bytes, *a);
    return KVANT_OK;
}

static __global__ void combine_kernel(kvant_moe_combine_args a)
{
    const int64_t n = (int64_t)a.n * a.d;
    pdl_go();
    pdl_wait();
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS) {
        const int64_t i = u / a.d, e = u % a.d;
        float sum = 0.0f;
        for (int j = 0; j < a.k; j++)
            sum += a.wts[i * a.k + j] * a.x[(i * a.k + j) * a.d + e];
        a.y[u] = sum;
    }
}

static int combine_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_combine_args *a = (const kvant_moe_combine_args *)args;
    int64_t blocks = ((int64_t)a->n * a->d + THREADS - 1) / THREADS;
    (void)diag;
    if (a->n > 0)
        cuda_launch(d, combine_kernel, dim3((unsigned)(blocks < 65535 ? blocks : 65535)), THREADS, 0, *a);
    return KVANT_OK;
}

/* moe_combine, add or gate_add of a shared expert, norm_add_rms: a block per row. */
typedef struct combine_job {
    kvant_moe_combine_args c;
    const float *shared, *gate;        /* NULL: none; NULL: added as it is */
    kvant_norm_add_rms_args norm;
} combine_job;

/* Eight values of the row at `at`: its experts' sum, with the shared one. */
static __device__ __forceinline__ void combine_eight(const combine_job &p, int64_t row, int at, float *v)
{
    const int k = p.c.k;
    const float *x = p.c.x + row * k * p.c.d + at, *wts = p.c.wts + row * k;
#pragma unroll
    for (int e = 0; e < 8; e++)
        v[e] = 0.0f;
#pragma unroll 4
    for (int j = 0; j < k; j++) {
        float m[8];
        row_load(x + (int64_t)j * p.c.d, m);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] += wts[j] * m[e];
    }
    if (!p.shared)
        return;
    const float by = p.gate ? sigmoid_dev(p.gate[row]) : 1.0f;
    float m[8];
    row_load(p.shared + row * p.c.d + at, m);
#pragma unroll
    for (int e = 0; e < 8; e++)
        v[e] += m[e] * by;
}

template <int P> static __global__ void __launch_bounds__(ROW_THREADS) combine_norm_kernel(combine_job p)
{
    __shared__ float part[ROW_WARPS];
    const int64_t row = blockIdx.x, from = row * p.c.d;
    float v[P][8];

    pdl_go();
    pdl_wait();
#pragma unroll
    for (int i = 0; i < P; i++) {
        const int at = 8 * (threadIdx.x + i * ROW_THREADS);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[i][e] = 0.0f;
        if (at >= p.c.d)
            continue;
        float old[8];
        row_load(p.norm.x + from + at, old);
        combine_eight(p, row, at, v[i]);
        row_store(p.c.y + from + at, v[i]);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[i][e] = old[e] + v[i][e];
        row_store(p.norm.x + from + at, v[i]);
    }
    row_finish<P>(v, p.c.d, p.norm.eps, part, p.norm.w, p.norm.y + from, NULL);
}

/* ---- forms ---- */

static combine_job combine_of(const kvant_op *ops, const float *shared, const float *gate, int norm)
{
    return { *OP_ARGS(moe_combine, 0), shared, gate, *OP_ARGS(norm_add_rms, norm) };
}

static combine_job plain_job(const kvant_op *ops)
{
    return combine_of(ops, NULL, NULL, 1);
}

static combine_job shared_job(const kvant_op *ops)
{
    return combine_of(ops, OP_ARGS(add, 1)->y, NULL, 2);
}

static combine_job gated_job(const kvant_op *ops)
{
    return combine_of(ops, OP_ARGS(gate_add, 1)->x, OP_ARGS(gate_add, 1)->gate, 2);
}

template <combine_job (*JOB)(const kvant_op *)> static bool combine_takes(cuda_device *, const kvant_op *ops)
{
    const combine_job p = JOB(ops);
    const int width = p.c.d;
    return width > 256 && row_fits(p.norm.x, p.norm.y, p.norm.w, width, width, width) &&
           (((uintptr_t)p.c.x | (uintptr_t)p.c.y | (uintptr_t)p.shared) & 15) == 0;
}

template <combine_job (*JOB)(const kvant_op *)>
static int combine_norm_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    const combine_job p = JOB(ops);
    cuda_launch(d, p.c.d <= 8 * ROW_THREADS ? combine_norm_kernel<1> : combine_norm_kernel<ROW_PARTS>,
                dim3((unsigned)p.c.n), ROW_THREADS, 0, p);
    return KVANT_OK;
}

const cuda_form cuda_fused_combine_norm = { combine_takes<plain_job>, combine_norm_run<plain_job> };
const cuda_form cuda_fused_combine_shared_norm = { combine_takes<shared_job>, combine_norm_run<shared_job> };
const cuda_form cuda_fused_combine_gated_norm = { combine_takes<gated_job>, combine_norm_run<gated_job> };
const cuda_op cuda_op_moe_route = { route_supports, NULL, route_run };
const cuda_op cuda_op_moe_combine = { NULL, NULL, combine_run };
