/* moe.cu: moe_route (one warp per row) and moe_combine. */
#include "devices/cuda/core/cuda_dev.cuh"

enum { THREADS = 256, MAX_EXPERTS = 4096 };

/* As ops/moe_choose.h has them; a score of NaN ranks behind all others. */
static __device__ constexpr float LEAST_SUM = 6.103515625e-5f, LEAST_SCORE = -1e38f, NAN_SCORE = -2e38f;

/* a before b: larger key first, lower id at a tie. */
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

/* p = softmax of a row of logits. */
static __device__ void softmax_row(const float *logits, float *p, int n)
{
    const int lane = threadIdx.x;
    float top = -INFINITY;
    double sum = 0.0;

    for (int e = lane; e < n; e += 32)
        top = fmaxf(top, logits[e]);
    top = warp_max(top);
    top = isnan(logits[0]) ? logits[0] : top;              /* as the reference: a NaN in front poisons the row */
    for (int e = lane; e < n; e += 32) {
        p[e] = expf(logits[e] - top);
        sum += (double)p[e];
    }
    for (int m = 16; m; m >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, m);
    for (int e = lane; e < n; e += 32)
        p[e] = (float)((double)p[e] / sum);
}

/* p = the gate of a row of logits. */
static __device__ void gate_row(const kvant_moe_route_args &a, const float *logits, float *p)
{
    if (a.gating == KVANT_GATING_SOFTMAX)
        softmax_row(logits, p, a.n_expert);
    else
        for (int e = threadIdx.x; e < a.n_expert; e += 32)
            p[e] = a.gating == KVANT_GATING_SIGMOID ? sigmoid_dev(logits[e]) : logits[e];
}

/* All scores of groups that are not among the best become -infinity.  A lane per group and turn. */
static __device__ void close_groups(const kvant_moe_route_args &a, float *score, float *group)
{
    const int each = a.n_expert / a.n_group;

    for (int g = threadIdx.x; g < a.n_group; g += 32) {
        float first = LEAST_SCORE, second = LEAST_SCORE;
        for (int e = g * each; e < (g + 1) * each; e++) {
            const float s = score[e];
            second = s > first ? first : s > second ? s : second;
            first = s > first ? s : first;
        }
        group[g] = a.group_best == 1 ? first : first + second;
    }
    __syncwarp();
    for (int g = threadIdx.x; g < a.n_group; g += 32) {
        int better = 0;
        for (int o = 0; o < a.n_group; o++)
            better += group[o] > group[g] || (group[o] == group[g] && o < g);
        for (int e = g * each; e < (g + 1) * each && better >= a.top_groups; e++)
            score[e] = -INFINITY;
    }
    __syncwarp();
}

/* ids and wts[k]: the experts of the largest scores, descending, and their gates.  Returns the sum of those. */
static __device__ float choose_row(const kvant_moe_route_args &a, const float *p, float *score, int32_t *ids,
                                   float *wts)
{
    float total = 0.0f;

    for (int j = 0; j < a.k; j++) {
        float key = -INFINITY;
        int id = 0x7fffffff;
        for (int e = threadIdx.x; e < a.n_expert; e += 32)
            if (score[e] > key) {
                key = score[e];
                id = e;
            }
        best_of_warp(&key, &id);
        total += p[id];
        if (threadIdx.x == 0) {
            ids[j] = id;
            wts[j] = p[id];
            score[id] = -INFINITY;
        }
        __syncwarp();
    }
    return total;
}

/* wts = softmax of themselves. */
static __device__ void softmax_chosen(float *wts, int k)
{
    float top = -INFINITY, sum = 0.0f;

    for (int j = threadIdx.x; j < k; j += 32)
        top = fmaxf(top, wts[j]);
    top = warp_max(top);
    for (int j = threadIdx.x; j < k; j += 32)
        sum += wts[j] = expf(wts[j] - top);
    sum = warp_sum(sum);
    for (int j = threadIdx.x; j < k; j += 32)
        wts[j] /= sum;
}

/* A warp per row. */
static __global__ void __launch_bounds__(32) route_kernel(kvant_moe_route_args a)
{
    extern __shared__ float p[];
    float *score = p + a.n_expert, *wts = a.wts + (int64_t)blockIdx.x * a.k;

    pdl_go();
    pdl_wait();
    gate_row(a, a.logits + (int64_t)blockIdx.x * a.n_expert, p);
    for (int e = threadIdx.x; e < a.n_expert; e += 32) {
        const float s = a.bias ? p[e] + a.bias[e] : p[e];
        score[e] = isnan(s) ? NAN_SCORE : s < LEAST_SCORE ? LEAST_SCORE : s;
    }
    __syncwarp();
    if (a.n_group > 1)
        close_groups(a, score, score + a.n_expert);
    float total = choose_row(a, p, score, a.ids + (int64_t)blockIdx.x * a.k, wts);
    if (a.gating == KVANT_GATING_SOFTMAX_CHOSEN)
        softmax_chosen(wts, a.k);
    total = a.raw || a.gating == KVANT_GATING_SOFTMAX_CHOSEN ? 1.0f : total < LEAST_SUM ? LEAST_SUM : total;
    for (int j = threadIdx.x; j < a.k; j += 32)
        wts[j] = wts[j] / total * a.scale;
}

static int route_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = (const kvant_moe_route_args *)args;
    (void)d;
    if (a->n_expert > MAX_EXPERTS)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: moe_route: %d experts, wanted at most %d", a->n_expert,
                         MAX_EXPERTS);
    return KVANT_OK;
}

/* At most 48 KB: gates, scores, and one float per group. */
static int route_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_moe_route_args *a = (const kvant_moe_route_args *)args;
    const size_t bytes = (2 * (size_t)a->n_expert + (size_t)a->n_group) * sizeof(float);
    CUDA_TRY(route_supports(d, args, diag));
    if (a->n > 0)
        cuda_launch(d, route_kernel, dim3((unsigned)a->n), 32, bytes, *a);
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
