/* gemv_stream.cu: one vector times a 16-bit matrix at the rate of memory.
 *
 * Blocks stay, one or two to a multiprocessor.  A block holds the whole vector in registers, eight neighbouring values
 * of every 8 * THREADS per thread, and takes R rows at a time: all of a thread's words of R rows are on their way while
 * the words before them are used, the first ones before the launch before this one has ended, since weights do not
 * depend on it.  Two groups of R rows are a block's own, the others go to the block that is ready first, for at times
 * some blocks get only two thirds of the others' share of the memory's rate.  A sum runs over a thread's values, then
 * over the lanes, then over the warps in order: it depends on the row alone, not on the grid.  R rows are R neighbours,
 * or R/2 rows and their partners of the other half (gate and up).  The residual sum after a product and the norm before
 * one can be part of it (matmul_fuse). */
#include "devices/cuda/matmul/mm.cuh"
#include "devices/cuda/ops/row_norm.cuh"

enum { THREADS = ROW_THREADS, WARPS = THREADS / 32 };

/* The k-th of the R rows of group g. */
template <int R> static __device__ __forceinline__ int64_t row_of(int64_t g, int k, int64_t pair)
{
    return pair ? g * (R / 2) + k % (R / 2) + (k < R / 2 ? 0 : pair) : g * R + k;
}

/* Sums over the lanes of R values each; lane l ends with the sum of value l % R. */
template <int R> static __device__ __forceinline__ float lanes_sum(float *v)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = R / 2; h; h /= 2)
#pragma unroll
        for (int k = 0; k < h; k++) {
            const bool upper = lane & h;
            const float mine = upper ? v[k + h] : v[k], other = upper ? v[k] : v[k + h];
            v[k] = mine + __shfl_xor_sync(0xffffffffu, other, h);
        }
#pragma unroll
    for (int m = R; m < 32; m *= 2)
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], m);
    return v[0];
}

/* P words of a thread and row: n_in <= 8 * THREADS * P.  B blocks on a multiprocessor. */
template <int T, int P, int R, int B>
static __global__ void __launch_bounds__(THREADS, B) stream_kernel(mm p, int64_t pair)
{
    __shared__ float part[2][WARPS][R];
    __shared__ unsigned drawn[2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunks = (int)(p.n_in / 8);
    const int64_t rows = pair ? pair : p.n_out, per = pair ? R / 2 : R, groups = (rows + per - 1) / per;
    const int64_t last = p.n_out - 1;
    uint4 w[R][P];
    float x[P][8];

    auto fetch = [&](int64_t g, int k) {
        int64_t row = row_of<R>(g, k, pair);
        row = row < last ? row : last;
        const uint4 *from = (const uint4 *)(p.w + row * p.row_bytes);
#pragma unroll
        for (int i = 0; i < P; i++)
            if ((int)threadIdx.x + i * THREADS < chunks)
                w[k][i] = __ldcs(from + threadIdx.x + i * THREADS);
    };

    pdl_go();
#pragma unroll
    for (int k = 0; k < R; k++)
#pragma unroll
        for (int i = 0; i < P; i++)
            w[k][i] = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < R; k++)
        fetch(blockIdx.x, k);
    pdl_wait();
#pragma unroll
    for (int i = 0; i < P; i++) {
        const int c = threadIdx.x + i * THREADS;
#pragma unroll
        for (int e = 0; e < 8; e++)
            x[i][e] = 0.0f;
        if (c < chunks)
            load8(p.x + 8 * c, p.x_vec, x[i]);
    }
    if (p.norm) {
        const float scale = row_scale<P>(x, (int)p.n_in, p.eps, part[1][0]);
#pragma unroll
        for (int i = 0; i < P; i++) {
            const int c = threadIdx.x + i * THREADS;
            if (c >= chunks)
                continue;
            row_times(x[i], scale, p.norm + 8 * c);
            if (blockIdx.x == 0)
                row_store(p.normed + 8 * c, x[i]);
        }
    }
    const bool draws = groups > 2 * (int64_t)gridDim.x;
    int64_t next = blockIdx.x + (int64_t)gridDim.x;
    int turn = 0;
    for (int64_t g = blockIdx.x; g < groups; turn ^= 1) {
        float acc[R];
        unsigned draw = 0;
        if (draws && threadIdx.x == 0) /* a draw for every group: the last one leaves the counter at 0 */
            draw = atomicInc(p.draws, (unsigned)groups - 1);
#pragma unroll
        for (int k = 0; k < R; k++) {
            acc[k] = 0.0f;
#pragma unroll
            for (int i = 0; i < P; i++) {
                float v[8];
                unpack8<T>(w[k][i], v);
#pragma unroll
                for (int e = 0; e < 8; e++)
                    acc[k] = fmaf(v[e], x[i][e], acc[k]);
            }
            if (next < groups)
                fetch(next, k);
        }
        const float sum = lanes_sum<R>(acc);
        if (lane < R)
            part[turn][warp][lane] = sum;
        if (threadIdx.x == 0)
            drawn[turn] = draw;
        __syncthreads(); /* the other half of part is free: all have read it before they came here */
        if (warp == (turn ? WARPS / 2 : 0) && lane < R) {
            const int64_t row = row_of<R>(g, lane, pair);
            float s = 0.0f;
#pragma unroll
            for (int i = 0; i < WARPS; i++)
                s += part[turn][i][lane];
            s *= scale_of(p, 0);
            if (pair) {
                const float up = __shfl_down_sync((1u << R) - 1u, s, R / 2);
                s = lane < R / 2 ? swiglu_one(s, up) : s;
            }
            if (row < p.n_out && (!pair || g * (R / 2) + lane % (R / 2) < pair)) {
                p.y[row] = s;
                if (p.add)
                    p.add[row] += s;
            }
        }
        g = next;
        next = draws ? 2 * (int64_t)gridDim.x + drawn[turn] : groups;
    }
}

template <int T, int P, int R, int B> static void launch(const cuda_device *d, const mm &p, int64_t pair)
{
    const int64_t groups = pair ? (pair + R / 2 - 1) / (R / 2) : (p.n_out + R - 1) / R;
    const int64_t most = B * (int64_t)d->n_sm;
    cuda_launch(d, stream_kernel<T, P, R, B>, dim3((unsigned)(groups < most ? groups : most)), THREADS, 0, p, pair);
}

template <int T> static void by_width(const cuda_device *d, const mm &p, int64_t pair)
{
    const int64_t words = (p.n_in / 8 + THREADS - 1) / THREADS;
    if (words <= 1)
        launch<T, 1, 8, 2>(d, p, pair);
    else if (words <= 2)
        launch<T, 2, 8, 1>(d, p, pair);
    else if (words <= 3)
        launch<T, 3, 4, 1>(d, p, pair);
    else
        launch<T, 4, 4, 1>(d, p, pair);
}

typedef void stream(const cuda_device *d, const mm &p, int64_t pair);

/* NULL: no 16-bit type. */
template <int T> static stream *stream_of()
{
    if constexpr (half_wide<T>())
        return by_width<T>;
    else
        return NULL;
}

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) stream_of<WT_##sym>(),
static stream *const streams[] = {
#include "cards/lists.inc"
};
#undef CARD_WTYPE

bool cuda_gemv_streams(int type, const mm &p)
{
    return streams[type] && p.rows == 1 && !p.ids && p.w_vec && p.n_in % 8 == 0 &&
           p.n_in >= 1024 && p.n_in <= 4 * 8 * THREADS;
}

void cuda_gemv_stream(const cuda_device *d, int type, const mm &job, int64_t pair)
{
    mm p = job;
    p.draws = d->draws;
    streams[type](d, p, pair);
}
