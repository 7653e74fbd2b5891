/* cache_trellis.cu: turbo3_tcq (formats/tcq/turbo3_tcq.c), a warp to a unit of 128 values.
 *
 * The cost of a state s depends on its low six bits by what came before and on all nine by the value, so the walk keeps
 * 64 least costs, two to a lane: lane l has those of branches l and l + 32, whose predecessors are its sixteen states.
 * A branch's index is the predecessors' upper six bits; their lower six, where their own costs lie, are
 * 8 (branch % 8) .. + 7, the same for both. */
#include "devices/cuda/cache_job.cuh"

enum { BRANCHES = 64, WARPS = 4, TCQ_WORDS = 13, TCQ_BYTES = 4 * TCQ_WORDS, TCQ_FIRST = 16 + 6 };

/* A walk's states, and the one before the first. */
typedef struct __align__(8) path {
    uint16_t state[GROUP_MAX];
    int start;
} path;

/* What a warp keeps.  y: the unit, rotated, of length 1; back[t]: of time t's branches, two to a byte, which of eight
 * predecessors. */
typedef struct __align__(16) trellis {
    float y[GROUP_MAX], cost[2][BRANCHES];
    uint8_t back[GROUP_MAX][BRANCHES / 2];
    path path[2];
    uint32_t out[TCQ_WORDS];
} trellis;

/* ---- the walk ---- */

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

/* The path of least squared error to the values y by `by`. */
static __device__ __forceinline__ void tcq_walk(trellis &w, float by, path *to)
{
    const int lane = threadIdx.x % 32;
    float c[2][8], best[2];
    int from[2];
#pragma unroll
    for (int k = 0; k < 16; k++)
        c[k / 8][k % 8] = fmt_c_tcq[(lane + k / 8 * 32) << 3 | k % 8];
    w.cost[0][lane] = w.cost[0][lane + 32] = 0.0f;
    w.back[0][lane] = 0;
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < GROUP_MAX; t += 4) {
        const float4 four = *(const float4 *)(w.y + t);
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

/* ---- norms ---- */

/* This lane's four levels of a path. */
static __device__ __forceinline__ void tcq_levels(const path &p, float *c)
{
    const uint2 states = ((const uint2 *)p.state)[threadIdx.x % 32];
    c[0] = fmt_c_tcq[states.x & 511], c[1] = fmt_c_tcq[states.x >> 16];
    c[2] = fmt_c_tcq[states.y & 511], c[3] = fmt_c_tcq[states.y >> 16];
}

/* Sum of squares, one after another as in the reference. */
static __device__ __forceinline__ float tcq_square(const float *x)
{
    float s = 0.0f;
#pragma unroll 8
    for (int i = 0; i < GROUP_MAX; i += 4) {
        const float4 v = *(const float4 *)(x + i);
        s += v.x * v.x;
        s += v.y * v.y;
        s += v.z * v.z;
        s += v.w * v.w;
    }
    return s;
}

/* Sums of y c and of z z over the unit, of this lane's four each. */
typedef struct tcq_fit {
    double yc, zz;
} tcq_fit;

static __device__ __forceinline__ tcq_fit tcq_fits(const float *y, const float *c, const float *z)
{
    tcq_fit f = { 0.0, 0.0 };
#pragma unroll
    for (int k = 0; k < 4; k++) {
        f.yc += (double)y[k] * c[k];
        f.zz += (double)z[k] * z[k];
    }
    f.yc = enc_sum<32>(f.yc);
    f.zz = enc_sum<32>(f.zz);
    return f;
}

/* What a path with levels c loses at a scale. */
static __device__ __forceinline__ double tcq_error(const float *y, float norm, const float *c, uint16_t scale)
{
    double err = 0.0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const double e = (double)y[k] * norm - (double)c[k] * half_to_f32(scale);
        err += e * e;
    }
    return enc_sum<32>(err);
}

/* The scale of least squared error. */
static __device__ __forceinline__ uint16_t tcq_refit(const float *y, float norm, const float *c)
{
    const tcq_fit f = tcq_fits(y, c, c);
    return enc_storable((float)(norm * f.yc / f.zz));
}

/* tcq_choose of turbo3_tcq.c: the path to store; *scale: upstream's, then what is stored. */
static __device__ __forceinline__ int tcq_choose(const trellis &w, float norm, uint16_t *scale)
{
    const float4 four = ((const float4 *)w.y)[threadIdx.x % 32];
    const float y[4] = { four.x, four.y, four.z, four.w };
    float c[2][4];
    double err = INFINITY;
    int which = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        tcq_levels(w.path[i], c[i]);
        if (i == 0)
            err = tcq_error(y, norm, c[0], *scale);
        const uint16_t h = tcq_refit(y, norm, c[i]);
        const double refit = tcq_error(y, norm, c[i], h);
        if (refit < err || (i == 0 && !isfinite(err) && isfinite(refit))) {
            which = i;
            *scale = h;
            err = refit;
        }
    }
    const tcq_fit f = tcq_fits(y, which ? c[1] : c[0], y);
    *scale = enc_unbiased_scale((float)(norm * f.zz / f.yc), *scale);
    return which;
}

/* ---- storing ---- */

/* Symbol t at bit 6 + 3 t behind the scale. */
static __device__ __forceinline__ void tcq_store(trellis &w, const path &p, uint16_t scale, uint8_t *row)
{
    const int lane = threadIdx.x % 32, bit = TCQ_FIRST + 12 * lane;
    const uint2 states = ((const uint2 *)p.state)[lane];
    const uint32_t four =
        (states.x >> 6 & 7) | (states.x >> 22) << 3 | (states.y >> 6 & 7) << 6 | (states.y >> 22) << 9;
    const uint64_t at = (uint64_t)four << bit % 32;
    if (lane < TCQ_WORDS)
        w.out[lane] = lane == 0 ? scale | (uint32_t)(p.start >> 3) << 16 : 0;
    __syncwarp();
    atomicOr(&w.out[bit / 32], (uint32_t)at);
    if (at >> 32)
        atomicOr(&w.out[bit / 32 + 1], (uint32_t)(at >> 32));
    __syncwarp();
    if (lane < TCQ_BYTES / 2)
        enc_put(row + 2 * lane, (uint16_t)(w.out[lane / 2] >> lane % 2 * 16));
}

/* This warp's unit, its values in w.y; false: nothing to encode. */
static __device__ __forceinline__ bool tcq_load(const job &p, unsigned n, unit *o, trellis &w)
{
    const int at = threadIdx.x % 32 * 4;
    float v[4];
    if (!unit_at(p, n, o))
        return false;
    unit_load4<false>(p, *o, at, v);
    if (o->tail) {
        tail_store4<false>(p, o->tail, at, o->count, v);
        return false;
    }
    *(float4 *)(w.y + at) = make_float4(v[0], v[1], v[2], v[3]);
    __syncwarp();
    return true;
}

/* The unit at length 1, rotated; its length. */
static __device__ __forceinline__ float tcq_prepare(trellis &w)
{
    const float norm = sqrtf(tcq_square(w.y)), inv = norm > 1e-10f ? 1.0f / norm : 0.0f;
    const int lane = threadIdx.x % 32;
    const float4 four = ((const float4 *)w.y)[lane];
    float y[4] = { four.x * inv, four.y * inv, four.z * inv, four.w * inv };
    warp_rotate<4>(SPACE_R128, y, lane);
    __syncwarp();
    ((float4 *)w.y)[lane] = make_float4(y[0], y[1], y[2], y[3]);
    __syncwarp();
    return norm;
}

/* Upstream's scale: that keeps the length. */
static __device__ __forceinline__ uint16_t tcq_upstream(trellis &w, float norm)
{
    float c[4], *levels = (float *)w.back;      /* which nobody goes back by any more */
    tcq_levels(w.path[0], c);
    ((float4 *)levels)[threadIdx.x % 32] = make_float4(c[0], c[1], c[2], c[3]);
    __syncwarp();
    const float length = sqrtf(tcq_square(levels));
    __syncwarp();
    return f32_to_half(length > 1e-10f ? norm / length : norm);
}

static __global__ void __launch_bounds__(32 * WARPS) tcq_kernel(jobs js)
{
    __shared__ trellis room[WARPS];
    const job &p = js.j[blockIdx.y];
    trellis &w = room[threadIdx.x / 32];
    unit o;

    pdl_go();
    pdl_wait();
    if (!tcq_load(p, blockIdx.x * WARPS + threadIdx.x / 32, &o, w))
        return;
    const float norm = tcq_prepare(w);
    tcq_walk(w, 1.0f, &w.path[0]);
    uint16_t scale = tcq_upstream(w, norm);
    int which = 0;
    if (p.side.encoder == KVANT_ENCODER_BEST) {
        tcq_walk(w, 1.0f / 0.94f, &w.path[1]);
        which = tcq_choose(w, norm, &scale);
    }
    tcq_store(w, w.path[which], scale, o.row + o.g / GROUP_MAX * TCQ_BYTES);
}

void cuda_trellis_encode(cuda_device *d, const jobs &p, int sides)
{
    const dim3 blocks(cuda_blocks(p.j[0].units, WARPS), (unsigned)sides);
    /* not ahead of its turn (cuda_launch): its blocks would crowd on the first multiprocessors that are free */
    tcq_kernel<<<blocks, 32 * WARPS, 0, d->stream>>>(p);
}
