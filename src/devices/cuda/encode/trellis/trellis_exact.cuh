/* trellis_exact.cuh: the walk of turbo3_tcq's reference (formats/tcq/turbo3_tcq.c), bit for bit, by a warp.
 *
 * The cost of a state s depends on its low six bits by what came before and on all nine by the value, so the walk keeps
 * 64 least costs, two to a lane: lane l has those of branches l and l + 32, whose predecessors are its sixteen states.
 * A branch's index is the predecessors' upper six bits; their lower six, where their own costs lie, are
 * 8 (branch % 8) .. + 7, the same for both. */
#ifndef KVANT_CUDA_TRELLIS_EXACT_CUH
#define KVANT_CUDA_TRELLIS_EXACT_CUH

#include "devices/cuda/encode/encode_job.cuh"

enum { TCQ_BRANCHES = 64, TCQ_WORDS = 13, TCQ_BYTES = 4 * TCQ_WORDS };

/* A walk's states, and the one before the first. */
typedef struct __align__(8) tcq_path {
    uint16_t state[GROUP_MAX];
    int start;
} tcq_path;

/* back[t]: of time t's branches, two to a byte, which of eight predecessors. */
typedef struct __align__(16) tcq_room {
    float cost[2][TCQ_BRANCHES];
    uint8_t back[GROUP_MAX][TCQ_BRANCHES / 2];
} tcq_room;

/* The least of eight predecessors' costs: of those before plus the value's, whose states' levels are c. */
static __device__ __forceinline__ float tcq_least(const float *before, float y, const float *c, int *from)
{
    float best = 0.0f;
    *from = 0;
#pragma unroll
    for (int q = 0; q < 8; q++) {
        const float e = y - c[q], cost = before[q] + e * e;
        if (q == 0 || cost < best) {
            best = cost;
            *from = q;
        }
    }
    return best;
}

/* One value: from the branches' costs before it to those behind it; from[i]: of branch lane + 32 i. */
static __device__ __forceinline__ void tcq_step(const float *cost, float y, const float (*c)[8], float *best, int *from)
{
    const float4 *at = (const float4 *)(cost + threadIdx.x % 8 * 8), low = at[0], high = at[1];
    const float before[8] = { low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w };
#pragma unroll
    for (int i = 0; i < 2; i++)
        best[i] = tcq_least(before, y, c[i], &from[i]);
}

/* The state of least cost behind the last value, the first of equals. */
static __device__ __forceinline__ int tcq_last(const float *best, const int *from)
{
    const int lane = threadIdx.x % 32, second = best[1] < best[0];
    float cost = second ? best[1] : best[0];
    int state = second ? (lane + 32) << 3 | from[1] : lane << 3 | from[0];
#pragma unroll
    for (int m = 1; m < 32; m *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, cost, m);
        const int its = __shfl_xor_sync(0xffffffffu, state, m);
        const bool take = other < cost || (other == cost && its < state);
        cost = take ? other : cost;
        state = take ? its : state;
    }
    return __shfl_sync(0xffffffffu, state, 0);
}

/* The path of least squared error to the unit y by `by`. */
static __device__ __forceinline__ void tcq_walk(const float *y_at, float by, tcq_room &w, tcq_path *to)
{
    const int lane = threadIdx.x % 32;
    float c[2][8], best[2];
    int from[2];
#pragma unroll
    for (int k = 0; k < 16; k++)
        c[k / 8][k % 8] = fmt_c_turbo3_tcq_codebook[(lane + k / 8 * 32) << 3 | k % 8];
    w.cost[0][lane] = w.cost[0][lane + 32] = 0.0f;
    w.back[0][lane] = 0;
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < GROUP_MAX; t += 4) {
        const float4 four = *(const float4 *)(y_at + t);
        const float y[4] = { four.x * by, four.y * by, four.z * by, four.w * by };
#pragma unroll
        for (int k = 0; k < 4; k++) {
            tcq_step(w.cost[k & 1], y[k], c, best, from);
            if (t + k + 1 < GROUP_MAX) {
                w.cost[~k & 1][lane] = best[0];
                w.cost[~k & 1][lane + 32] = best[1];
                w.back[t + k + 1][lane] = (uint8_t)(from[0] | from[1] << 4);
            }
            __syncwarp();
        }
    }
    int s = tcq_last(best, from);
    for (int t = GROUP_MAX - 1; t >= 0; t--) {
        if (lane == 0)
            to->state[t] = (uint16_t)s;
        s = (s & 63) << 3 | (w.back[t][s & 31] >> (s >> 3 & 4) & 7);
    }
    to->start = s;
    __syncwarp();
}

#endif
