/* gdn.cu: conv_step, conv_chunk, gdn_step, gdn_chunk.
 *
 * All reads of state come before any write: a first launch copies what is read from another slot (or is new) into
 * scratch; a sequence that keeps its slot reads it in place.  gdn_chunk takes gdn_chunk.cu's form where its shapes
 * allow, else it runs the same recurrence as gdn_step, token by token.
 * One warp owns one value column of the state and keeps it in registers over all tokens: columns are independent. */
#include "devices/cuda/gdn.cuh"

enum { DECODE = 0, PROMPT = 1, THREADS = 256, WARPS = 4, MAX_DK = 256 };

/* ---- state into scratch: f32[n_seqs][n]; in_place: new sequences and those that keep their slot are left out ---- */

static __global__ void gather_kernel(seqs_dev seqs, const float *state, int64_t stride, int64_t n, int phase,
                                     int in_place, float *to)
{
    pdl_go();
    pdl_wait();
    const int s = blockIdx.y, slot = seqs.slot_in[s];
    if (!takes_part(seqs, s, phase) || (in_place && (slot < 0 || slot == seqs.slot_out[s])))
        return;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        to[s * n + i] = slot < 0 ? 0.0f : state[slot * stride + i];
}

static void gather(cuda_device *d, const seqs_dev &seqs, const float *state, int64_t stride, int64_t n, int phase,
                   int in_place)
{
    const int64_t blocks = (n + THREADS - 1) / THREADS, most = in_place ? 8 : 256; /* in place: seldom any work */
    const dim3 grid((unsigned)(blocks < most ? blocks : most), (unsigned)seqs.n_seqs);
    if (n > 0)
        cuda_launch(d, gather_kernel, grid, THREADS, 0, seqs, state, stride, n, phase, in_place, (float *)d->scratch);
}

/* ---- conv ---- */

typedef struct conv_job {
    seqs_dev seqs;
    const float *x, *w, *window; /* window f32[n_seqs][c][k-1], gathered */
    float *state, *y;
    int64_t slot_stride, ldx;
    int c, k, phase;
} conv_job;

/* Input of channel ch, `back` tokens before row i of sequence s (back < k). */
static __device__ __forceinline__ float conv_input(const conv_job &p, int s, int i, int ch, int back)
{
    const int row = i - back, first = p.seqs.q0[s];
    if (row >= first)
        return p.x[(int64_t)row * p.ldx + ch];
    return p.window[((int64_t)s * p.c + ch) * (p.k - 1) + p.k - 1 + row - first];
}

/* One thread per token and channel; the thread of a sequence's last token also writes the new window. */
static __global__ void conv_kernel(conv_job p)
{
    const int ch = blockIdx.x * THREADS + threadIdx.x, i = blockIdx.y;
    pdl_go();
    pdl_wait();
    if (ch >= p.c)
        return;
    const int s = seq_of(p.seqs, i);
    if (i >= p.seqs.q0[s + 1] || !takes_part(p.seqs, s, p.phase))
        return;
    float sum = 0.0f;
    for (int j = 0; j < p.k; j++)
        sum += conv_input(p, s, i, ch, p.k - 1 - j) * p.w[(int64_t)ch * p.k + j];
    sum += 0.0f; /* -0.0 becomes +0.0, as in the plain op */
    p.y[(int64_t)i * p.c + ch] = sum / (1.0f + expf(-sum));
    if (i == p.seqs.q0[s + 1] - 1) {
        float *to = p.state + p.seqs.slot_out[s] * p.slot_stride + (int64_t)ch * (p.k - 1);
        for (int j = 0; j < p.k - 1; j++)
            to[j] = conv_input(p, s, i, ch, p.k - 2 - j);
    }
}

static size_t conv_scratch(const cuda_device *d, const void *args)
{
    const kvant_conv_args *a = (const kvant_conv_args *)args;
    (void)d;
    return (size_t)a->seqs.n_seqs * (size_t)a->c * (size_t)(a->k - 1) * sizeof(float);
}

static int conv_run(cuda_device *d, const kvant_conv_args *a, int phase)
{
    conv_job p;
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    memset(&p, 0, sizeof p);
    p.seqs = cuda_seqs(&a->seqs);
    p.x = a->x;
    p.w = a->w;
    p.window = (const float *)d->scratch;
    p.state = a->state;
    p.y = a->y;
    p.slot_stride = a->slot_stride;
    p.ldx = a->ldx;
    p.c = a->c;
    p.k = a->k;
    p.phase = phase;
    gather(d, p.seqs, a->state, a->slot_stride, (int64_t)a->c * (a->k - 1), phase, 0);
    cuda_launch(d, conv_kernel, dim3(cuda_blocks(a->c, THREADS), (unsigned)a->seqs.n_tokens), THREADS, 0, p);
    return KVANT_OK;
}

static int conv_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_conv_args *a = (const kvant_conv_args *)args;
    (void)d;
    if (a->seqs.n_tokens > 65535)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: conv: %d tokens, wanted at most 65535",
                         a->seqs.n_tokens);
    return KVANT_OK;
}

static int conv_step_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    CUDA_TRY(conv_supports(d, args, diag));
    return conv_run(d, (const kvant_conv_args *)args, DECODE);
}

static int conv_chunk_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    CUDA_TRY(conv_supports(d, args, diag));
    return conv_run(d, (const kvant_conv_args *)args, PROMPT);
}

const cuda_op cuda_op_conv_step = { conv_supports, conv_scratch, conv_step_run };
const cuda_op cuda_op_conv_chunk = { conv_supports, conv_scratch, conv_chunk_run };

/* ---- gated delta rule ---- */

/* N: floats of a column per lane. */
template <int N> static __global__ void __launch_bounds__(32 * WARPS) gdn_kernel(gdn_job p)
{
    const kvant_gdn_args &a = p.a;
    const int s = blockIdx.z, v = blockIdx.y, col = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int kh = a.interleaved ? v / (a.hv / a.hk) : v % a.hk;
    pdl_go();
    pdl_wait();
    if (col >= a.dv || !takes_part(p.seqs, s, p.phase))
        return;
    const int in = p.seqs.slot_in[s], out = p.seqs.slot_out[s];
    const int64_t at = ((int64_t)v * a.dv + col) * a.dk, n = (int64_t)a.hv * a.dv * a.dk;
    float *to = (float *)a.state + out * a.slot_stride + at;
    const float *from = in == out ? to : p.gathered + s * n + at;
    float c[N], k[N], q[N];

#pragma unroll
    for (int i = 0; i < N; i++)
        c[i] = in >= 0 && lane + 32 * i < a.dk ? from[lane + 32 * i] : 0.0f;
    for (int t = p.seqs.q0[s]; t < p.seqs.q0[s + 1]; t++) {
        const float *kt = a.k + t * a.ldk + (int64_t)kh * a.dk, *qt = a.q + t * a.ldq + (int64_t)kh * a.dk;
        const float decay = expf(a.g[(int64_t)t * a.hv + v]), beta = a.beta[(int64_t)t * a.hv + v];
        float dot = 0.0f, o = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const bool in_row = lane + 32 * i < a.dk;
            k[i] = in_row ? kt[lane + 32 * i] : 0.0f;
            q[i] = in_row ? qt[lane + 32 * i] : 0.0f;
            c[i] *= decay;
            dot = fmaf(c[i], k[i], dot);
        }
        const float u = beta * (a.v[t * a.ldv + (int64_t)v * a.dv + col] - warp_sum(dot));
#pragma unroll
        for (int i = 0; i < N; i++) {
            c[i] = fmaf(k[i], u, c[i]);
            o = fmaf(c[i], q[i], o);
        }
        o = warp_sum(o);
        if (lane == 0)
            a.o[((int64_t)t * a.hv + v) * a.dv + col] = p.scale * o;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < a.dk)
            to[lane + 32 * i] = c[i];
}

/* dk = 128: a warp owns STEP_COLS columns, four values of each per lane; the sums of all columns go through one tree of
 * shuffles, after which lane 4 c holds column c. */
enum { STEP_COLS = 8, STEP_WARPS = 8 };

static __device__ __forceinline__ float sum_columns(float *v)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = STEP_COLS / 2, bit = 16; n; n /= 2, bit /= 2)
#pragma unroll
        for (int i = 0; i < n; i++) {
            const bool high = lane & bit;
            const float mine = high ? v[i + n] : v[i], other = high ? v[i] : v[i + n];
            v[i] = mine + __shfl_xor_sync(0xffffffffu, other, bit);
        }
    float sum = v[0];
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum;
}

static __global__ void __launch_bounds__(32 * STEP_WARPS, 4) gdn_step_kernel(gdn_job p)
{
    const kvant_gdn_args &a = p.a;
    const int s = blockIdx.z, v = blockIdx.y, lane = threadIdx.x % 32, mine = lane / 4;
    const int col = (blockIdx.x * STEP_WARPS + threadIdx.x / 32) * STEP_COLS;
    const int kh = a.interleaved ? v / (a.hv / a.hk) : v % a.hk;
    float4 c[STEP_COLS];
    float part[STEP_COLS];

    pdl_go();
    pdl_wait();
    if (col >= a.dv || !takes_part(p.seqs, s, p.phase))
        return;
    const int in = p.seqs.slot_in[s], out = p.seqs.slot_out[s];
    const int64_t at = ((int64_t)v * a.dv + col) * 128 + 4 * lane, n = (int64_t)a.hv * a.dv * 128;
    float *to = (float *)a.state + out * a.slot_stride + at;
    const float *from = in == out ? to : p.gathered + s * n + at;
#pragma unroll
    for (int j = 0; j < STEP_COLS; j++)
        c[j] = in < 0 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : __ldcs((const float4 *)(from + 128 * j));
    for (int t = p.seqs.q0[s]; t < p.seqs.q0[s + 1]; t++) {
        const float4 k = *(const float4 *)(a.k + t * a.ldk + (int64_t)kh * 128 + 4 * lane);
        const float4 q = *(const float4 *)(a.q + t * a.ldq + (int64_t)kh * 128 + 4 * lane);
        const float value = a.v[t * a.ldv + (int64_t)v * a.dv + col + mine];
        const float decay = expf(a.g[(int64_t)t * a.hv + v]), beta = a.beta[(int64_t)t * a.hv + v];
#pragma unroll
        for (int j = 0; j < STEP_COLS; j++) {
            c[j] = make_float4(c[j].x * decay, c[j].y * decay, c[j].z * decay, c[j].w * decay);
            part[j] = fmaf(c[j].w, k.w, fmaf(c[j].z, k.z, fmaf(c[j].y, k.y, c[j].x * k.x)));
        }
        const float u = beta * (value - sum_columns(part));
#pragma unroll
        for (int j = 0; j < STEP_COLS; j++) {
            const float w = __shfl_sync(0xffffffffu, u, 4 * j);
            c[j] = make_float4(fmaf(k.x, w, c[j].x), fmaf(k.y, w, c[j].y), fmaf(k.z, w, c[j].z), fmaf(k.w, w, c[j].w));
            part[j] = fmaf(c[j].w, q.w, fmaf(c[j].z, q.z, fmaf(c[j].y, q.y, c[j].x * q.x)));
        }
        const float o = sum_columns(part);
        if (lane % 4 == 0)
            a.o[((int64_t)t * a.hv + v) * a.dv + col + mine] = p.scale * o;
    }
#pragma unroll
    for (int j = 0; j < STEP_COLS; j++)
        __stcs((float4 *)(to + 128 * j), c[j]);
}

/* The shapes of gdn_step_kernel: whole columns, 16-byte words. */
static bool step_fits(const kvant_gdn_args *a)
{
    const uintptr_t at = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->state;
    return a->dk == 128 && a->dv % STEP_COLS == 0 &&
           ((at | (uintptr_t)(4 * (a->ldq | a->ldk | a->slot_stride))) & 15) == 0;
}

static int gdn_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gdn_args *a = (const kvant_gdn_args *)args;
    (void)d;
    if (a->state_type != KVANT_STATE_F32)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: gated delta rule: state_type bf16, wanted f32");
    if (a->dk > MAX_DK)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: gated delta rule: dk %d, wanted at most %d", a->dk,
                         MAX_DK);
    return KVANT_OK;
}

static size_t gathered_bytes(const kvant_gdn_args *a)
{
    const size_t n = (size_t)a->seqs.n_seqs * (size_t)a->hv * (size_t)a->dv * (size_t)a->dk * sizeof(float);
    return cuda_aligned(n);
}

static size_t gdn_scratch(const cuda_device *d, const void *args)
{
    (void)d;
    return gathered_bytes((const kvant_gdn_args *)args);
}

static size_t chunk_scratch(const cuda_device *d, const void *args)
{
    const kvant_gdn_args *a = (const kvant_gdn_args *)args;
    return gathered_bytes(a) + (gdn_chunk_fits(d, a) ? gdn_chunk_scratch(a) : 0);
}

static void gdn_run(cuda_device *d, const kvant_gdn_args *a, int phase)
{
    gdn_job p;
    if (a->seqs.n_tokens <= 0)
        return;
    p.a = *a;
    p.seqs = cuda_seqs(&a->seqs);
    p.gathered = (const float *)d->scratch;
    p.phase = phase;
    p.scale = (float)(1.0 / sqrt((double)a->dk));
    gather(d, p.seqs, (const float *)a->state, a->slot_stride, (int64_t)a->hv * a->dv * a->dk, phase, 1);
    const dim3 grid(cuda_blocks(a->dv, WARPS), (unsigned)a->hv, (unsigned)a->seqs.n_seqs);
    if (phase == PROMPT && gdn_chunk_fits(d, a))
        gdn_chunk_run(d, &p, d->scratch + gathered_bytes(a));
    else if (step_fits(a))
        cuda_launch(d, gdn_step_kernel, dim3(cuda_blocks(a->dv, STEP_COLS * STEP_WARPS), grid.y, grid.z),
                    32 * STEP_WARPS, 0, p);
    else if (a->dk <= 64)
        cuda_launch(d, gdn_kernel<2>, grid, 32 * WARPS, 0, p);
    else if (a->dk <= 128)
        cuda_launch(d, gdn_kernel<4>, grid, 32 * WARPS, 0, p);
    else
        cuda_launch(d, gdn_kernel<MAX_DK / 32>, grid, 32 * WARPS, 0, p);
}

static int gdn_step_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    CUDA_TRY(gdn_supports(d, args, diag));
    gdn_run(d, (const kvant_gdn_args *)args, DECODE);
    return KVANT_OK;
}

static int chunk_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    CUDA_TRY(gdn_supports(d, args, diag));
    gdn_run(d, (const kvant_gdn_args *)args, PROMPT);
    return KVANT_OK;
}

const cuda_op cuda_op_gdn_step = { gdn_supports, gdn_scratch, gdn_step_run };
const cuda_op cuda_op_gdn_chunk = { gdn_supports, chunk_scratch, chunk_run };
