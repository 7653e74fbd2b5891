/* moe.cu: moe_route (one warp per row) and moe_combine. */
#include "devices/cuda/core/cuda_dev.cuh"

enum { THREADS = 256, MAX_EXPERTS = 4096 };

/* a before b: larger p first, lower id at a tie; NaN (key -0.5) after every number, taken (key -1) last. */
static __device__ void best_of_warp(float *key, int *id)
{
    for (int m = 16; m; m >>= 1) {
        const float k = __shfl_xor_sync(0xffffffffu, *key, m);
        const int i = __shfl_xor_sync(0xffffffffu, *id, m);
        if (k > *key || (k == *key && i < *id)) {
            *key = k;
            *id = i;
        }
    }
}

static __global__ void route_kernel(kvant_moe_route_args a)
{
    extern __shared__ float p[];
    const float *logits = a.logits + (int64_t)blockIdx.x * a.n_expert;
    const int lane = threadIdx.x;
    float top = -INFINITY, total = 0.0f;
    double sum = 0.0;

    for (int e = lane; e < a.n_expert; e += 32)
        top = fmaxf(top, logits[e]);
    top = warp_max(top);
    top = isnan(logits[0]) ? logits[0] : top;              /* as the reference: a NaN in front poisons the row */
    for (int e = lane; e < a.n_expert; e += 32) {
        p[e] = expf(logits[e] - top);
        sum += (double)p[e];
    }
    for (int m = 16; m; m >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, m);
    for (int e = lane; e < a.n_expert; e += 32)
        p[e] = (float)((double)p[e] / sum);
    __syncwarp();
    for (int j = 0; j < a.k; j++) {
        float key = -2.0f;
        int id = 0x7fffffff;
        for (int e = lane; e < a.n_expert; e += 32) {
            const float k = isnan(p[e]) ? -0.5f : p[e];
            if (k > key) {
                key = k;
                id = e;
            }
        }
        best_of_warp(&key, &id);
        const float w = p[id];
        __syncwarp();
        if (lane == 0) {
            a.ids[(int64_t)blockIdx.x * a.k + j] = id;
            a.wts[(int64_t)blockIdx.x * a.k + j] = w;
            p[id] = -1.0f;
        }
        total += w;
        __syncwarp();
    }
    total = a.raw ? 1.0f : total < 6.103515625e-5f ? 6.103515625e-5f : total;
    if (lane == 0)
        for (int j = 0; j < a.k; j++) {
            float *w = a.wts + (int64_t)blockIdx.x * a.k + j;
            *w = *w / total * a.scale;
        }
}

static int route_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = (const kvant_moe_route_args *)args;
    (void)d;
    if (a->n_expert > MAX_EXPERTS)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: moe_route: %d experts, wanted at most %d", a->n_expert,
                         MAX_EXPERTS);
    if (a->gating != KVANT_GATING_SOFTMAX)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: moe_route: gating %s, wanted softmax",
                         a->gating == KVANT_GATING_SIGMOID ? "sigmoid" : "softmax of the chosen");
    if (a->bias)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: moe_route: a bias for the choice, wanted none");
    if (a->n_group > 1)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: moe_route: %d groups of experts, wanted one",
                         a->n_group);
    return KVANT_OK;
}

static int route_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = (const kvant_moe_route_args *)args;
    CUDA_TRY(route_supports(d, args, diag));
    if (a->n > 0)
        route_kernel<<<(unsigned)a->n, 32, (size_t)a->n_expert * sizeof(float), d->stream>>>(*a);
    return KVANT_OK;
}

static __global__ void combine_kernel(kvant_moe_combine_args a)
{
    const int64_t n = (int64_t)a.n * a.d;
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
        combine_kernel<<<(unsigned)(blocks < 65535 ? blocks : 65535), THREADS, 0, d->stream>>>(*a);
    return KVANT_OK;
}

const cuda_op cuda_op_moe_route = { route_supports, NULL, route_run };
const cuda_op cuda_op_moe_combine = { NULL, NULL, combine_run };
