/* ssm.cu: ssm_step and ssm_chunk: Mamba2, token by token; the states stay in registers over all tokens of a sequence.
 * Rows of a head's state are independent, so the bits do not depend on how a prompt was cut.
 *
 * ssm_kernel (n = 128 or 256): a warp owns ROWS rows of n values, four or eight of each per lane.  Tokens come in tiles
 * that the block copies to shared memory while it works on the tile before; GROUP tokens at once, whose sums over the
 * lanes go through one tree of shuffles.  Decode: tiles and groups of one token, so the time is that of the states.
 * ssm_any_kernel: a warp owns a row of any n. */
#include "devices/cuda/gdn/state.cuh"

enum { ROWS = 8, WARPS = 4, BLOCK_ROWS = ROWS * WARPS };

typedef struct ssm_job {
    kvant_ssm_args a;
    seqs_dev seqs;
    const void *gathered;              /* [n_seqs][h][p][n]: states read from another slot, as they are stored */
    int phase;
} ssm_job;

/* log1p keeps small arguments exact where f32 log(1 + e) would not. */
static __device__ __forceinline__ float softplus_dev(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* ---- n = 128 V ---- */

/* Inputs of up to TOKENS tokens for the rows of a block.  Behind the last token: zeros, but for dt. */
template <int V, int TOKENS> struct ssm_tile {
    float4 b[TOKENS][32 * V], c[TOKENS][32 * V], x[TOKENS][BLOCK_ROWS / 4];
    float dt[TOKENS];
};

template <int V, int TOKENS>
static __device__ __forceinline__ void tile_fetch(ssm_tile<V, TOKENS> *to, const ssm_job &p, int first, int end)
{
    const kvant_ssm_args &a = p.a;
    const int head = blockIdx.y, row = blockIdx.x * BLOCK_ROWS;
    const int64_t group = (int64_t)(head / (a.h / a.g)) * a.n;

    for (int u = threadIdx.x; u < TOKENS * 32 * V; u += 32 * WARPS) {
        const int t = u / (32 * V), w = u % (32 * V);
        const bool live = first + t < end;
        const int64_t at = (live ? first + t : first) * a.ldb + group + 4 * w;
        async_copy16(shared_at(&to->b[t][w]), a.b + at, live);
        async_copy16(shared_at(&to->c[t][w]), a.c + at, live);
    }
    for (int u = threadIdx.x; u < TOKENS * BLOCK_ROWS / 4; u += 32 * WARPS) {
        const int t = u / (BLOCK_ROWS / 4), w = u % (BLOCK_ROWS / 4);
        const bool live = first + t < end && row + 4 * w < a.p;
        async_copy16(shared_at(&to->x[t][w]),
                     a.x + (live ? first + t : first) * a.ldx + (int64_t)head * a.p + (live ? row + 4 * w : 0), live);
    }
    if (threadIdx.x < TOKENS && first + (int)threadIdx.x < end)
        async_copy4(shared_at(&to->dt[threadIdx.x]), a.dt + (first + (int)threadIdx.x) * a.lddt + head);
}

/* One token of a warp's rows: c is their states, x their inputs; sum: per row, this lane's part of the product. */
template <int V>
static __device__ __forceinline__ void ssm_token(float4 (*c)[V], const float4 *b, const float4 *q, const float *x,
                                                 float decay, float step, float *sum)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float u = step * x[r];
        sum[r] = 0.0f;
#pragma unroll
        for (int v = 0; v < V; v++) {
            float4 *s = &c[r][v];
            *s = make_float4(fmaf(u, b[v].x, s->x * decay), fmaf(u, b[v].y, s->y * decay),
                             fmaf(u, b[v].z, s->z * decay), fmaf(u, b[v].w, s->w * decay));
            sum[r] = fmaf(s->w, q[v].w, fmaf(s->z, q[v].z, fmaf(s->y, q[v].y, fmaf(s->x, q[v].x, sum[r]))));
        }
    }
}

/* GROUP tokens from `at` of the tile, whose first is token row `first`: steps of the states, outputs.  skip: a.d. */
template <int V, int TOKENS, int GROUP, typename T>
static __device__ __forceinline__ void ssm_group(const ssm_job &p, float4 (*c)[V], const ssm_tile<V, TOKENS> *tile,
                                                 const float2 *pace, int first, int at, int end, float skip)
{
    constexpr int EACH = 32 / (GROUP * ROWS);              /* lanes that have one sum */
    const kvant_ssm_args &a = p.a;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, s = blockIdx.z, head = blockIdx.y;
    float sum[GROUP * ROWS];

#pragma unroll
    for (int t = 0; t < GROUP; t++) {
        float4 b[V], q[V];
        float x[ROWS];
#pragma unroll
        for (int v = 0; v < V; v++) {
            b[v] = tile->b[at + t][lane + 32 * v];
            q[v] = tile->c[at + t][lane + 32 * v];
        }
#pragma unroll
        for (int r = 0; r < ROWS / 4; r++)
            *(float4 *)(x + 4 * r) = tile->x[at + t][warp * (ROWS / 4) + r];
        ssm_token<V>(c, b, q, x, pace[at + t].x, pace[at + t].y, sum + t * ROWS);
        if (sizeof(T) != sizeof(float) && rounds_after(p.seqs, p.phase, s, first + at + t))
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int v = 0; v < V; v++)
                    c[r][v] = rounded_four<T>(c[r][v]);
    }
    const float y = sum_lanes<GROUP * ROWS>(sum);
    const int t = at + lane / EACH / ROWS, r = warp * ROWS + lane / EACH % ROWS, row = blockIdx.x * BLOCK_ROWS + r;
    if (lane % EACH == 0 && first + t < end && row < a.p)
        a.y[((int64_t)(first + t) * a.h + head) * a.p + row] = fmaf(skip, ((const float *)tile->x[t])[r], y);
}

template <int V, int TOKENS, int GROUP, typename T>
static __global__ void __launch_bounds__(32 * WARPS, GROUP == 1 ? 6 / V : 1) ssm_kernel(ssm_job p)
{
    __shared__ __align__(16) ssm_tile<V, TOKENS> tile[2];
    __shared__ float2 pace[TOKENS];                        /* of a token: exp(dt a), dt */
    const kvant_ssm_args &a = p.a;
    const int s = blockIdx.z, head = blockIdx.y, lane = threadIdx.x % 32, t = threadIdx.x;
    const int row = blockIdx.x * BLOCK_ROWS + threadIdx.x / 32 * ROWS;
    float4 c[ROWS][V];

    pdl_go();
    pdl_wait();
    const int prompt = p.seqs.prompt[s] != 0, begin = p.seqs.q0[s], end = p.seqs.q0[s + 1];
    const int in = p.seqs.slot_in[s], out = p.seqs.slot_out[s];
    if (prompt != p.phase || end <= begin)
        return;
    const int64_t at = ((int64_t)head * a.p + row) * a.n + 4 * lane, n = (int64_t)a.h * a.p * a.n;
    const T *from = reads_in_place(in, out) ? (const T *)a.state + in * a.slot_stride + at
                                            : (const T *)p.gathered + s * n + at;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int v = 0; v < V; v++)
            c[r][v] = in < 0 || row >= a.p ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : load_four(from + r * a.n + 128 * v);
    tile_fetch(&tile[0], p, begin, end);
    async_commit();
    const float skip = a.d[head], rate = a.a[head], bias = a.dt_bias[head];
    for (int first = begin, k = 0; first < end; first += TOKENS, k ^= 1) {
        if (first + TOKENS < end)
            tile_fetch(&tile[k ^ 1], p, first + TOKENS, end);
        async_commit();
        async_wait<1>();
        __syncthreads();
        if (t < TOKENS) {                                  /* behind the last token the states stay as they are */
            const float dt = first + t < end ? softplus_dev(tile[k].dt[t] + bias) : 0.0f;
            pace[t] = make_float2(expf(dt * rate), dt);
        }
        __syncthreads();
        for (int g = 0; g < TOKENS && first + g < end; g += GROUP)
            ssm_group<V, TOKENS, GROUP, T>(p, c, &tile[k], pace, first, g, end, skip);
        __syncthreads();
    }
    if (out < 0)
        return;
    T *to = (T *)a.state + out * a.slot_stride + at;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int v = 0; v < V; v++)
            if (row < a.p)
                store_four(to + r * a.n + 128 * v, c[r][v]);
}

/* ---- any n; N: floats of a row per lane ---- */

template <int N, typename T> static __global__ void __launch_bounds__(32 * WARPS) ssm_any_kernel(ssm_job p)
{
    const kvant_ssm_args &a = p.a;
    const int s = blockIdx.z, head = blockIdx.y, row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    pdl_go();
    pdl_wait();
    if (row >= a.p || !takes_part(p.seqs, s, p.phase))
        return;
    const int in = p.seqs.slot_in[s], out = p.seqs.slot_out[s];
    const int64_t at = ((int64_t)head * a.p + row) * a.n, n = (int64_t)a.h * a.p * a.n;
    const int64_t group = (int64_t)(head / (a.h / a.g)) * a.n;
    const T *from = reads_in_place(in, out) ? (const T *)a.state + in * a.slot_stride + at
                                            : (const T *)p.gathered + s * n + at;
    float c[N];

#pragma unroll
    for (int i = 0; i < N; i++)
        c[i] = in >= 0 && lane + 32 * i < a.n ? state_value(from[lane + 32 * i]) : 0.0f;
    for (int t = p.seqs.q0[s]; t < p.seqs.q0[s + 1]; t++) {
        const float *b = a.b + t * a.ldb + group, *q = a.c + t * a.ldb + group;
        const float x = a.x[t * a.ldx + (int64_t)head * a.p + row];
        const float dt = softplus_dev(a.dt[t * a.lddt + head] + a.dt_bias[head]), decay = expf(dt * a.a[head]);
        float y = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const bool in_row = lane + 32 * i < a.n;
            c[i] = in_row ? fmaf(dt * x, b[lane + 32 * i], c[i] * decay) : 0.0f;
            y = in_row ? fmaf(c[i], q[lane + 32 * i], y) : y;
        }
        y = warp_sum(y);
        if (lane == 0)
            a.y[((int64_t)t * a.h + head) * a.p + row] = fmaf(a.d[head], x, y);
        if (sizeof(T) != sizeof(float) && rounds_after(p.seqs, p.phase, s, t))
#pragma unroll
            for (int i = 0; i < N; i++)
                c[i] = state_value(state_rounded<T>(c[i]));
    }
    if (out < 0)
        return;
    T *to = (T *)a.state + out * a.slot_stride + at;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < a.n)
            to[lane + 32 * i] = state_rounded<T>(c[i]);
}

/* ---- ops ---- */

/* The shapes of ssm_kernel: whole warps of rows, words of four values. */
static bool tiles_fit(const kvant_ssm_args *a)
{
    const uintptr_t at = (uintptr_t)a->x | (uintptr_t)a->b | (uintptr_t)a->c | (uintptr_t)a->state;
    return (a->n == 128 || a->n == 256) && a->p % ROWS == 0 && (at & 15) == 0 &&
           ((a->ldx | a->ldb | a->slot_stride) & 3) == 0;
}

template <int V, int TOKENS, typename T> static void run_tiles(cuda_device *d, const ssm_job &p, dim3 grid)
{
    if (p.phase == DECODE)
        cuda_launch(d, ssm_kernel<V, 1, 1, T>, grid, 32 * WARPS, 0, p);
    else
        cuda_launch(d, ssm_kernel<V, TOKENS, 4, T>, grid, 32 * WARPS, 0, p);
}

template <typename T> static void ssm_run_as(cuda_device *d, const kvant_ssm_args *a, int phase)
{
    const ssm_job p = { *a, cuda_seqs(&a->seqs), d->scratch, phase };
    const dim3 tiles(cuda_blocks(a->p, BLOCK_ROWS), (unsigned)a->h, (unsigned)a->seqs.n_seqs);
    const dim3 rows(cuda_blocks(a->p, WARPS), tiles.y, tiles.z);

    gather(d, p.seqs, (const T *)a->state, a->slot_stride, (int64_t)a->h * a->p * a->n, phase, 1);
    if (tiles_fit(a) && a->n == 128)
        run_tiles<1, 16, T>(d, p, tiles);
    else if (tiles_fit(a))
        run_tiles<2, 8, T>(d, p, tiles);
    else if (a->n <= 32)
        cuda_launch(d, ssm_any_kernel<1, T>, rows, 32 * WARPS, 0, p);
    else if (a->n <= 128)
        cuda_launch(d, ssm_any_kernel<4, T>, rows, 32 * WARPS, 0, p);
    else
        cuda_launch(d, ssm_any_kernel<KVANT_MAX_HEAD_DIM / 32, T>, rows, 32 * WARPS, 0, p);
}

static int ssm_run(cuda_device *d, const kvant_ssm_args *a, int phase)
{
    if (a->seqs.n_tokens > 0 && a->state_type == KVANT_STATE_BF16)
        ssm_run_as<__nv_bfloat16>(d, a, phase);
    else if (a->seqs.n_tokens > 0)
        ssm_run_as<float>(d, a, phase);
    return KVANT_OK;
}

static size_t ssm_scratch(const cuda_device *d, const void *args)
{
    const kvant_ssm_args *a = (const kvant_ssm_args *)args;
    (void)d;
    return (size_t)a->seqs.n_seqs * (size_t)a->h * (size_t)a->p * (size_t)a->n * kvant_state_bytes(a->state_type);
}

static int ssm_step_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    (void)diag;
    return ssm_run(d, (const kvant_ssm_args *)args, DECODE);
}

static int ssm_chunk_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    (void)diag;
    return ssm_run(d, (const kvant_ssm_args *)args, PROMPT);
}

const cuda_op cuda_op_ssm_step = { NULL, ssm_scratch, ssm_step_run };
const cuda_op cuda_op_ssm_chunk = { NULL, ssm_scratch, ssm_chunk_run };
