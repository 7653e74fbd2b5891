/* router.cu: one row's choice of experts in one launch: every block normalises the residual row for itself and takes a
 * few rows of the router; the block that ends last chooses.  Bits as of norm_add_rms (after its sum), matmul (gemv.cu)
 * and moe_route. */
#include "devices/cuda/matmul/mm.cuh"
#include "devices/cuda/ops/route.cuh"
#include "devices/cuda/ops/row_norm.cuh"

enum { ROUTER_ROWS = 8, ROUTER_EXPERTS = 1024 }; /* rows of a block; most experts */

typedef struct router_job {
    const float *x, *norm, *w, *shared;  /* shared: one more row, the gate of a shared expert, or NULL */
    float *normed, *logits, *gate;
    float eps;
    int d;
    unsigned *draws;                   /* blocks that are done; 0 between launches */
    kvant_moe_route_args route;
} router_job;

/* A thread's values of a row; zeros behind its end. */
static __device__ __forceinline__ void row_parts(const float *row, int d, float (*v)[8])
{
#pragma unroll
    for (int i = 0; i < ROW_PARTS; i++) {
        const int at = 8 * (threadIdx.x + i * ROW_THREADS);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[i][e] = 0.0f;
        if (at < d)
            row_load(row + at, v[i]);
    }
}

/* The row, normalised by the weights that the thread has, to v[d] in shared memory; block 0 writes it out too. */
static __device__ __forceinline__ void norm_to(const router_job &p, const float (*weight)[8], float *v)
{
    __shared__ float part[ROW_WARPS];
    float x[ROW_PARTS][8];
    row_parts(p.x, p.d, x);
    const float scale = row_scale<ROW_PARTS>(x, p.d, p.eps, part);
#pragma unroll
    for (int i = 0; i < ROW_PARTS; i++) {
        const int at = 8 * (threadIdx.x + i * ROW_THREADS);
        if (at >= p.d)
            continue;
#pragma unroll
        for (int e = 0; e < 8; e++)
            x[i][e] = x[i][e] * scale * weight[i][e];
        row_store(v + at, x[i]);
        if (blockIdx.x == 0)
            row_store(p.normed + at, x[i]);
    }
}

static __global__ void __launch_bounds__(ROW_THREADS) router_kernel(router_job p)
{
    extern __shared__ __align__(16) float room[];
    __shared__ bool last;
    const int warp = threadIdx.x / 32, row = blockIdx.x * ROUTER_ROWS + warp;
    const bool gate = p.shared && blockIdx.x == 0 && warp == ROUTER_ROWS;
    const bool mine = (warp < ROUTER_ROWS && row < p.route.n_expert) || gate;
    const float *w = gate ? p.shared : p.w + (int64_t)row * p.d;
    float weight[ROW_PARTS][8];

    pdl_go();
    if (mine) /* the weights' way to the L2, while the launch before ends */
        for (int at = threadIdx.x % 32 * 32; at < p.d; at += 32 * 32)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(w + at));
    row_parts(p.norm, p.d, weight);
    pdl_wait();
    norm_to(p, weight, room);
    __syncthreads();
    if (mine) {
        const float sum = row_dot<8>(w, room, p.d);
        if (threadIdx.x % 32 == 0)
            *(gate ? p.gate : p.logits + row) = sum;
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicInc(p.draws, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last || warp)
        return;
    __threadfence();
    route_row(p.route, 0, room);
}

static size_t room_of(const router_job &p)
{
    const size_t row = (size_t)p.d * sizeof(float), route = route_bytes(p.route);
    return row > route ? row : route;
}

/* ---- forms: norm_add_rms (the launch before adds), the router's product, a gate's or none, moe_route ---- */

static router_job job_of(const cuda_device *d, const kvant_op *ops, bool gate)
{
    const kvant_norm_add_rms_args *s = OP_ARGS(norm_add_rms, 0);
    const kvant_matmul_args *a = OP_ARGS(matmul, 1), *g = gate ? OP_ARGS(matmul, 2) : NULL;
    router_job p;
    memset(&p, 0, sizeof p);
    p.x = s->x;
    p.norm = s->w;
    p.normed = s->y;
    p.eps = s->eps;
    p.d = s->d;
    p.w = cuda_f32_rows(a->w);
    p.logits = a->y;
    p.shared = g ? cuda_f32_rows(g->w) : NULL;
    p.gate = g ? g->y : NULL;
    p.draws = d->draws;
    p.route = *OP_ARGS(moe_route, gate ? 3 : 2);
    return p;
}

template <bool GATE> static bool route_takes(cuda_device *d, const kvant_op *ops)
{
    const router_job p = job_of(d, ops, GATE);
    return p.w && (!GATE || p.shared) && row_fits(p.x, p.normed, p.norm, 0, 0, p.d) &&
           p.route.n_expert <= ROUTER_EXPERTS && p.route.k <= ROUTE_MOST;
}

template <bool GATE> static int route_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    const router_job p = job_of(d, ops, GATE);
    const size_t bytes = room_of(p);
    cuda_smem(router_kernel, bytes);
    cuda_launch(d, router_kernel, dim3(cuda_blocks(p.route.n_expert, ROUTER_ROWS)), ROW_THREADS, bytes, p);
    return KVANT_OK;
}

const cuda_form cuda_fused_added_route = { route_takes<false>, route_run<false> };
const cuda_form cuda_fused_added_route_gate = { route_takes<true>, route_run<true> };
