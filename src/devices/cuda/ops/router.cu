/* router.cu: one row's choice of experts in one launch: every block normalises the residual row for itself and takes a
 * few rows of the router; the block that ends last chooses.  Bits as of norm_add_rms (after its sum), matmul (gemv.cu)
 * and moe_route. */
#include "devices/cuda/ops/router.cuh"
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

/* A router's or a gate's rows in f32 that are multiplied by what the norm gives; NULL: not. */
static const float *plain_rows(const kvant_matmul_args *a, const kvant_norm_add_rms_args *s)
{
    return a->m == 1 && s->y == a->x && s->d == a->w->n_in ? cuda_f32_rows(a->w) : NULL;
}

/* The job of the ops, which is one where `took` is not 0. */
static router_job job_of(const cuda_device *d, const kvant_op *ops, int n, int *took)
{
    router_job p;
    const kvant_norm_add_rms_args *s = (const kvant_norm_add_rms_args *)ops[0].args;
    memset(&p, 0, sizeof p);
    *took = 0;
    if (n < 3 || ops[1].id != KVANT_OP_MATMUL)
        return p;
    const kvant_matmul_args *a = (const kvant_matmul_args *)ops[1].args, *g = (const kvant_matmul_args *)ops[2].args;
    const int gate = n > 3 && ops[2].id == KVANT_OP_MATMUL && g->w->n_out == 1 && plain_rows(g, s);
    if (ops[2 + gate].id != KVANT_OP_MOE_ROUTE)
        return p;
    p.x = s->x;
    p.norm = s->w;
    p.normed = s->y;
    p.eps = s->eps;
    p.d = s->d;
    p.w = plain_rows(a, s);
    p.logits = a->y;
    p.shared = gate ? plain_rows(g, s) : NULL;
    p.gate = gate ? g->y : NULL;
    p.draws = d->draws;
    p.route = *(const kvant_moe_route_args *)ops[2 + gate].args;
    const kvant_moe_route_args *r = &p.route;
    if (p.w && r->n == 1 && r->logits == a->y && r->n_expert == a->w->n_out && r->n_expert <= ROUTER_EXPERTS &&
        r->k <= ROUTE_MOST && s->y != s->x && s->d <= ROW_PARTS * 8 * ROW_THREADS)
        *took = 3 + gate;
    return p;
}

int cuda_router_takes(const cuda_device *d, const kvant_op *ops, int n)
{
    int took;
    job_of(d, ops, n, &took);
    return took;
}

void cuda_router(cuda_device *d, const kvant_op *ops, int n)
{
    int took;
    const router_job p = job_of(d, ops, n, &took);
    const size_t bytes = room_of(p);
    cuda_smem(router_kernel, bytes);
    cuda_launch(d, router_kernel, dim3(cuda_blocks(p.route.n_expert, ROUTER_ROWS)), ROW_THREADS, bytes, p);
}
