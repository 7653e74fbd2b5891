/* route.cuh: the experts of a row, by one warp: moe_route alone (moe.cu) and behind the router's product (router.cu).
 * Up to 512 experts without groups stay in registers; else gates, scores and one float per group lie in shared memory,
 * before the weights of the chosen.  The bits are the same. */
#ifndef KVANT_CUDA_ROUTE_CUH
#define KVANT_CUDA_ROUTE_CUH

#include "devices/cuda/core/cuda_dev.cuh"

enum { ROUTE_MOST = 64 }; /* experts of a row */

/* As ops/moe_choose.h has them; a score of NaN ranks behind all others. */
static __device__ constexpr float LEAST_SUM = 6.103515625e-5f, LEAST_SCORE = -1e38f, NAN_SCORE = -2e38f;

/* p = softmax of a row of logits. */
static __device__ __forceinline__ void softmax_row(const float *logits, float *p, int n)
{
    const int lane = (int)threadIdx.x % 32;
    float top = -INFINITY;
    double sum = 0.0;

    for (int e = lane; e < n; e += 32)
        top = fmaxf(top, __ldcg(logits + e));
    top = warp_max(top);
    top = isnan(__ldcg(logits)) ? __ldcg(logits) : top; /* as the reference: a NaN in front poisons the row */
    for (int e = lane; e < n; e += 32) {
        p[e] = expf(__ldcg(logits + e) - top);
        sum += (double)p[e];
    }
    for (int m = 16; m; m >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, m);
    const double inverse = 1.0 / sum;
    for (int e = lane; e < n; e += 32)
        p[e] = (float)((double)p[e] * inverse);
}

/* p = the gate of a row of logits. */
static __device__ __forceinline__ void gate_row(const kvant_moe_route_args &a, const float *logits, float *p)
{
    if (a.gating == KVANT_GATING_SOFTMAX)
        softmax_row(logits, p, a.n_expert);
    else
        for (int e = (int)threadIdx.x % 32; e < a.n_expert; e += 32)
            p[e] = a.gating == KVANT_GATING_SIGMOID ? sigmoid_dev(__ldcg(logits + e)) : __ldcg(logits + e);
}

/* All scores of groups that are not among the best become -infinity.  A lane per group and turn. */
static __device__ __forceinline__ void close_groups(const kvant_moe_route_args &a, float *score, float *group)
{
    const int each = a.n_expert / a.n_group;

    for (int g = (int)threadIdx.x % 32; g < a.n_group; g += 32) {
        float first = LEAST_SCORE, second = LEAST_SCORE;
        for (int e = g * each; e < (g + 1) * each; e++) {
            const float s = score[e];
            second = s > first ? first : s > second ? s : second;
            first = s > first ? s : first;
        }
        group[g] = a.group_best == 1 ? first : first + second;
    }
    __syncwarp();
    for (int g = (int)threadIdx.x % 32; g < a.n_group; g += 32) {
        int better = 0;
        for (int o = 0; o < a.n_group; o++)
            better += group[o] > group[g] || (group[o] == group[g] && o < g);
        for (int e = g * each; e < (g + 1) * each && better >= a.top_groups; e++)
            score[e] = -INFINITY;
    }
    __syncwarp();
}

/* Larger scores have larger keys. */
static __device__ __forceinline__ uint32_t score_key(float x)
{
    const uint32_t u = __float_as_uint(x + 0.0f); /* -0 is 0 */
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* A lane's best among its scores, every 32nd one; at a tie the lowest id. */
typedef struct best {
    uint32_t key, id;
} best;

static __device__ __forceinline__ best best_of_lane(const float *score, int n)
{
    float top = -INFINITY;
    best o = { 0, 0x7fffffff };
    for (int e = (int)threadIdx.x % 32; e < n; e += 32)
        if (score[e] > top) {
            top = score[e];
            o.id = (uint32_t)e;
        }
    o.key = score_key(top);
    return o;
}

/* ids and wts[k]: the experts of the largest scores, descending, and their gates.  Returns the sum of those. */
static __device__ __forceinline__ float choose_row(const kvant_moe_route_args &a, const float *p, float *score,
                                                   int32_t *ids, float *wts)
{
    float total = 0.0f;
    best mine = best_of_lane(score, a.n_expert);

    for (int j = 0; j < a.k; j++) {
        const uint32_t top = __reduce_max_sync(0xffffffffu, mine.key);
        const uint32_t id = __reduce_min_sync(0xffffffffu, mine.key == top ? mine.id : 0x7fffffffu);
        total += p[id];
        if (threadIdx.x % 32 == 0) {
            ids[j] = (int32_t)id;
            wts[j] = p[id];
        }
        if (id % 32 == threadIdx.x % 32) {
            score[id] = -INFINITY;
            mine = best_of_lane(score, a.n_expert);
        }
    }
    __syncwarp();
    return total;
}

/* wts = softmax of themselves. */
static __device__ __forceinline__ void softmax_chosen(float *wts, int k)
{
    float top = -INFINITY, sum = 0.0f;

    for (int j = (int)threadIdx.x % 32; j < k; j += 32)
        top = fmaxf(top, wts[j]);
    top = warp_max(top);
    for (int j = (int)threadIdx.x % 32; j < k; j += 32)
        sum += wts[j] = expf(wts[j] - top);
    sum = warp_sum(sum);
    for (int j = (int)threadIdx.x % 32; j < k; j += 32)
        wts[j] /= sum;
}

/* Chooses as above, of up to 32 N experts: value i of a lane is expert 32 i + lane's. */
template <int N> struct row_regs {
    float p[N], score[N];

    __device__ __forceinline__ void gates(const kvant_moe_route_args &a, const float *logits)
    {
        const int lane = (int)threadIdx.x % 32;
        float top = -INFINITY;
        double sum = 0.0;
#pragma unroll
        for (int i = 0; i < N; i++)
            p[i] = 32 * i + lane < a.n_expert ? __ldcg(logits + 32 * i + lane) : -INFINITY;
        if (a.gating == KVANT_GATING_SIGMOID)
#pragma unroll
            for (int i = 0; i < N; i++)
                p[i] = sigmoid_dev(p[i]);
        if (a.gating != KVANT_GATING_SOFTMAX)
            return;
#pragma unroll
        for (int i = 0; i < N; i++)
            top = fmaxf(top, p[i]);
        top = warp_max(top);
        const float front = __shfl_sync(0xffffffffu, p[0], 0);
        top = isnan(front) ? front : top;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (32 * i + lane < a.n_expert)
                sum += (double)(p[i] = expf(p[i] - top));
        for (int m = 16; m; m >>= 1)
            sum += __shfl_xor_sync(0xffffffffu, sum, m);
        const double inverse = 1.0 / sum;
#pragma unroll
        for (int i = 0; i < N; i++)
            p[i] = (float)((double)p[i] * inverse);
    }

    __device__ __forceinline__ void scores(const kvant_moe_route_args &a)
    {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const bool there = 32 * i + lane < a.n_expert;
            const float s = there && a.bias ? p[i] + a.bias[32 * i + lane] : p[i];
            score[i] = !there ? -INFINITY : isnan(s) ? NAN_SCORE : s < LEAST_SCORE ? LEAST_SCORE : s;
        }
    }

    /* A lane's best; its gate. */
    __device__ __forceinline__ best of_lane(float *gate) const
    {
        float top = -INFINITY;
        best o = { 0, 0x7fffffff };
#pragma unroll
        for (int i = 0; i < N; i++)
            if (score[i] > top) {
                top = score[i];
                o.id = (uint32_t)(32 * i) + threadIdx.x % 32;
                *gate = p[i];
            }
        o.key = score_key(top);
        return o;
    }

    __device__ __forceinline__ float choose(const kvant_moe_route_args &a, int32_t *ids, float *wts)
    {
        float total = 0.0f, gate = 0.0f;
        best mine = of_lane(&gate);
        for (int j = 0; j < a.k; j++) {
            const uint32_t top = __reduce_max_sync(0xffffffffu, mine.key);
            const uint32_t id = __reduce_min_sync(0xffffffffu, mine.key == top ? mine.id : 0x7fffffffu);
            const float chosen = __shfl_sync(0xffffffffu, gate, id % 32);
            total += chosen;
            if (threadIdx.x % 32 == 0) {
                ids[j] = (int32_t)id;
                wts[j] = chosen;
            }
#pragma unroll
            for (int i = 0; i < N; i++)
                if ((uint32_t)(32 * i) + threadIdx.x % 32 == id)
                    score[i] = -INFINITY;
            mine = of_lane(&gate);
        }
        __syncwarp();
        return total;
    }
};

template <int N>
static __device__ __forceinline__ float choose_regs(const kvant_moe_route_args &a, int64_t row, float *wts)
{
    row_regs<N> r;
    r.gates(a, a.logits + row * a.n_expert);
    r.scores(a);
    return r.choose(a, a.ids + row * a.k, wts);
}

static __host__ __device__ __forceinline__ size_t route_bytes(const kvant_moe_route_args &a)
{
    return (2 * (size_t)a.n_expert + (size_t)a.n_group + ROUTE_MOST) * sizeof(float);
}

static __device__ __forceinline__ float choose_shared(const kvant_moe_route_args &a, int64_t row, float *p, float *wts)
{
    float *score = p + a.n_expert, *group = score + a.n_expert;

    gate_row(a, a.logits + row * a.n_expert, p);
    for (int e = (int)threadIdx.x % 32; e < a.n_expert; e += 32) {
        const float s = a.bias ? p[e] + a.bias[e] : p[e];
        score[e] = isnan(s) ? NAN_SCORE : s < LEAST_SCORE ? LEAST_SCORE : s;
    }
    __syncwarp();
    if (a.n_group > 1)
        close_groups(a, score, group);
    return choose_row(a, p, score, a.ids + row * a.k, wts);
}

/* Row `row`; p: route_bytes of shared memory. */
static __device__ __forceinline__ void route_row(const kvant_moe_route_args &a, int64_t row, float *p)
{
    float *wts = p + 2 * a.n_expert + a.n_group;
    const bool few = a.n_expert <= 512 && a.n_group <= 1;
    float total = !few                ? choose_shared(a, row, p, wts)
                  : a.n_expert <= 128 ? choose_regs<4>(a, row, wts)
                  : a.n_expert <= 256 ? choose_regs<8>(a, row, wts)
                                      : choose_regs<16>(a, row, wts);
    if (a.gating == KVANT_GATING_SOFTMAX_CHOSEN)
        softmax_chosen(wts, a.k);
    total = a.raw || a.gating == KVANT_GATING_SOFTMAX_CHOSEN ? 1.0f : total < LEAST_SUM ? LEAST_SUM : total;
    for (int j = (int)threadIdx.x % 32; j < a.k; j += 32)
        a.wts[row * a.k + j] = wts[j] / total * a.scale;
}

#endif
