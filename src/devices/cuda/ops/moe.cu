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

/* The shared expert's sum at ops[0], if it is one of y; how many ops. */
static int shared_after(const kvant_op *op, combine_job *p)
{
    const kvant_moe_combine_args *c = &p->c;
    if (op->id == KVANT_OP_GATE_ADD) {
        const kvant_gate_add_args *a = (const kvant_gate_add_args *)op->args;
        p->shared = a->x;
        p->gate = a->gate;
        return a->y == c->y && a->n == c->n && a->d == c->d;
    }
    if (op->id == KVANT_OP_ADD) {
        const kvant_add_args *a = (const kvant_add_args *)op->args;
        p->shared = a->y;
        return a->x == c->y && a->n == c->n && a->d == c->d;
    }
    return 0;
}

static int combine_fuse(cuda_device *d, const kvant_op *ops, int n, kvant_diag *)
{
    combine_job p = { *(const kvant_moe_combine_args *)ops[0].args };
    const int more = n > 2 ? shared_after(ops + 1, &p) : 0, width = p.c.d;
    if (!more)
        p.shared = p.gate = NULL;
    if (n < more + 2 || ops[more + 1].id != KVANT_OP_NORM_ADD_RMS || p.c.n < 1)
        return 0;
    p.norm = *(const kvant_norm_add_rms_args *)ops[more + 1].args;
    if (p.norm.add != p.c.y || p.norm.n != p.c.n || p.norm.d != width || p.norm.y == p.norm.x || width <= 256 ||
        !row_fits(p.norm.x, p.norm.y, p.norm.w, width, width, width) ||
        (((uintptr_t)p.c.x | (uintptr_t)p.c.y | (uintptr_t)p.shared) & 15))
        return 0;
    cuda_launch(d, width <= 8 * ROW_THREADS ? combine_norm_kernel<1> : combine_norm_kernel<ROW_PARTS>,
                dim3((unsigned)p.c.n), ROW_THREADS, 0, p);
    return more + 2;
}

const cuda_op cuda_op_moe_route = { route_supports, NULL, route_run };
const cuda_op cuda_op_moe_combine = { NULL, NULL, combine_run, combine_fuse };
