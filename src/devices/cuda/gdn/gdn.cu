/* gdn.cu: conv_step, conv_chunk, gdn_step, gdn_chunk.
 *
 * All reads of state come before any write (state.cuh).  gdn_chunk takes gdn_chunk.cu's form where its shapes
 * allow, else it runs the same recurrence as gdn_step, token by token.
 * One warp owns one value column of the state and keeps it in registers over all tokens: columns are independent. */
#include "devices/cuda/gdn/gdn.cuh"

enum { THREADS = 256, WARPS = 4, MAX_DK = 256 };

/* ---- conv ---- */

typedef struct conv_job {
    seqs_dev seqs;
    const float *x, *w, *bias, *window; /* window f32[n_seqs][c][k-1], gathered */
    float *state, *y;
    int64_t slot_stride, ldx;
    int c, k, phase, linear;
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
    sum += p.bias ? p.bias[ch] : 0.0f; /* -0.0 becomes +0.0, as in the plain op */
    p.y[(int64_t)i * p.c + ch] = p.linear ? sum : sum / (1.0f + expf(-sum));
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
    p.bias = a->bias;
    p.linear = a->linear;
    p.window = (const float *)d->scratch;
    p.state = a->state;
    p.y = a->y;
    p.slot_stride = a->slot_stride;
    p.ldx = a->ldx;
    p.c = a->c;
    p.k = a->k;
    p.phase = phase;
    gather(d, p.seqs, (const float *)a->state, a->slot_stride, (int64_t)a->c * (a->k - 1), phase, 0);
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

/* ---- gated delta rule; T: as states are stored; CHANNELS: a gate per channel ---- */

/* N: floats of a column per lane. */
template <int N, typename T, bool CHANNELS> static __global__ void __launch_bounds__(32 * WARPS) gdn_kernel(gdn_job p)
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
    T *to = (T *)a.state + out * a.slot_stride + at;
    const T *from = in == out ? to : (const T *)p.gathered + s * n + at;
    float c[N], k[N], q[N];

#pragma unroll
    for (int i = 0; i < N; i++)
        c[i] = in >= 0 && lane + 32 * i < a.dk ? state_value(from[lane + 32 * i]) : 0.0f;
    for (int t = p.seqs.q0[s]; t < p.seqs.q0[s + 1]; t++) {
        const float *kt = a.k + t * a.ldk + (int64_t)kh * a.dk, *qt = a.q + t * a.ldq + (int64_t)kh * a.dk;
        const float *gt = a.g + ((int64_t)t * a.hv + v) * (CHANNELS ? a.dk : 1);
        const float decay = CHANNELS ? 1.0f : expf(gt[0]), beta = a.beta[(int64_t)t * a.hv + v];
        float dot = 0.0f, o = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const bool in_row = lane + 32 * i < a.dk;
            k[i] = in_row ? kt[lane + 32 * i] : 0.0f;
            q[i] = in_row ? qt[lane + 32 * i] : 0.0f;
            c[i] *= CHANNELS ? expf(in_row ? gt[lane + 32 * i] : 0.0f) : decay;
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
        if (sizeof(T) != sizeof(float) && rounds_after(p.seqs, p.phase, s, t))
#pragma unroll
            for (int i = 0; i < N; i++)
                c[i] = state_value(state_rounded<T>(c[i]));
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < a.dk)
            to[lane + 32 * i] = state_rounded<T>(c[i]);
}

/* dk = 128: a warp owns STEP_COLS columns, four values of each per lane; the sums of all columns go through one tree of
 * shuffles, after which lane 4 c holds column c. */
enum { STEP_COLS = 8, STEP_WARPS = 4 };

/* exp of the gates of a lane's four channels. */
template <bool CHANNELS>
static __device__ __forceinline__ float4 fades_of(const kvant_gdn_args &a, int t, int v, int lane)
{
    const int64_t head = (int64_t)t * a.hv + v;
    if (!CHANNELS) {
        const float decay = expf(a.g[head]);
        return make_float4(decay, decay, decay, decay);
    }
    const float4 g = *(const float4 *)(a.g + head * 128 + 4 * lane);
    return make_float4(expf(g.x), expf(g.y), expf(g.z), expf(g.w));
}

template <typename T, bool CHANNELS>
static __global__ void __launch_bounds__(32 * STEP_WARPS, CHANNELS ? 4 : 8) gdn_step_kernel(gdn_job p)
{
    const kvant_gdn_args &a = p.a;
    const int s = blockIdx.z, v = blockIdx.y, lane = threadIdx.x % 32, mine = lane / 4;
    const int col = (blockIdx.x * STEP_WARPS + threadIdx.x / 32) * STEP_COLS;
    const int kh = a.interleaved ? v / (a.hv / a.hk) : v % a.hk;
    float4 c[STEP_COLS];
    float part[STEP_COLS];

    pdl_go();
    pdl_wait();
    /* all that says where the state is, at once: one round trip before the state itself */
    const int prompt = p.seqs.prompt[s] != 0, first = p.seqs.q0[s], end = p.seqs.q0[s + 1];
    const int in = p.seqs.slot_in[s], out = p.seqs.slot_out[s];
    if (col >= a.dv || prompt != p.phase || end <= first)
        return;
    const int64_t at = ((int64_t)v * a.dv + col) * 128 + 4 * lane, n = (int64_t)a.hv * a.dv * 128;
    T *to = (T *)a.state + out * a.slot_stride + at;
    const T *from = in == out ? to : (const T *)p.gathered + s * n + at;
#pragma unroll
    for (int j = 0; j < STEP_COLS; j++)
        c[j] = in < 0 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : load_four(from + 128 * j);
    for (int t = first; t < end; t++) {
        const float4 k = *(const float4 *)(a.k + t * a.ldk + (int64_t)kh * 128 + 4 * lane);
        const float4 q = *(const float4 *)(a.q + t * a.ldq + (int64_t)kh * 128 + 4 * lane);
        const float value = a.v[t * a.ldv + (int64_t)v * a.dv + col + mine];
        const float beta = a.beta[(int64_t)t * a.hv + v];
        const float4 f = fades_of<CHANNELS>(a, t, v, lane);
#pragma unroll
        for (int j = 0; j < STEP_COLS; j++) {
            c[j] = make_float4(c[j].x * f.x, c[j].y * f.y, c[j].z * f.z, c[j].w * f.w);
            part[j] = fmaf(c[j].w, k.w, fmaf(c[j].z, k.z, fmaf(c[j].y, k.y, c[j].x * k.x)));
        }
        const float u = beta * (value - sum_lanes<STEP_COLS>(part));
#pragma unroll
        for (int j = 0; j < STEP_COLS; j++) {
            const float w = __shfl_sync(0xffffffffu, u, 4 * j);
            c[j] = make_float4(fmaf(k.x, w, c[j].x), fmaf(k.y, w, c[j].y), fmaf(k.z, w, c[j].z), fmaf(k.w, w, c[j].w));
            part[j] = fmaf(c[j].w, q.w, fmaf(c[j].z, q.z, fmaf(c[j].y, q.y, c[j].x * q.x)));
        }
        const float o = sum_lanes<STEP_COLS>(part);
        if (lane % 4 == 0)
            a.o[((int64_t)t * a.hv + v) * a.dv + col + mine] = p.scale * o;
        if (sizeof(T) != sizeof(float) && rounds_after(p.seqs, p.phase, s, t))
#pragma unroll
            for (int j = 0; j < STEP_COLS; j++)
                c[j] = rounded_four<T>(c[j]);
    }
#pragma unroll
    for (int j = 0; j < STEP_COLS; j++)
        store_four(to + 128 * j, c[j]);
}

/* The shapes of gdn_step_kernel: whole columns, words of four values. */
static bool step_fits(const kvant_gdn_args *a)
{
    const uintptr_t gates = a->per_channel ? (uintptr_t)a->g : 0;
    const uintptr_t at = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->state | gates;
    return a->dk == 128 && a->dv % STEP_COLS == 0 && (at & 15) == 0 && ((a->ldq | a->ldk | a->slot_stride) & 3) == 0;
}

static int gdn_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gdn_args *a = (const kvant_gdn_args *)args;
    (void)d;
    if (a->dk > MAX_DK)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: gated delta rule: dk %d, wanted at most %d", a->dk,
                         MAX_DK);
    return KVANT_OK;
}

static size_t gathered_bytes(const kvant_gdn_args *a)
{
    const size_t n = (size_t)a->seqs.n_seqs * (size_t)a->hv * (size_t)a->dv * (size_t)a->dk;
    return cuda_aligned(n * kvant_state_bytes(a->state_type));
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

template <typename T, bool CHANNELS> static void gdn_run_as(cuda_device *d, const kvant_gdn_args *a, int phase)
{
    gdn_job p;
    p.a = *a;
    p.seqs = cuda_seqs(&a->seqs);
    p.gathered = d->scratch;
    p.phase = phase;
    p.scale = (float)(1.0 / sqrt((double)a->dk));
    gather(d, p.seqs, (const T *)a->state, a->slot_stride, (int64_t)a->hv * a->dv * a->dk, phase, 1);
    const dim3 grid(cuda_blocks(a->dv, WARPS), (unsigned)a->hv, (unsigned)a->seqs.n_seqs);
    if (phase == PROMPT && gdn_chunk_fits(d, a))
        gdn_chunk_run(d, &p, d->scratch + gathered_bytes(a));
    else if (step_fits(a))
        cuda_launch(d, gdn_step_kernel<T, CHANNELS>, dim3(cuda_blocks(a->dv, STEP_COLS * STEP_WARPS), grid.y, grid.z),
                    32 * STEP_WARPS, 0, p);
    else if (a->dk <= 64)
        cuda_launch(d, gdn_kernel<2, T, CHANNELS>, grid, 32 * WARPS, 0, p);
    else if (a->dk <= 128)
        cuda_launch(d, gdn_kernel<4, T, CHANNELS>, grid, 32 * WARPS, 0, p);
    else
        cuda_launch(d, gdn_kernel<MAX_DK / 32, T, CHANNELS>, grid, 32 * WARPS, 0, p);
}

static void gdn_run(cuda_device *d, const kvant_gdn_args *a, int phase)
{
    if (a->seqs.n_tokens <= 0)
        return;
    if (a->state_type == KVANT_STATE_BF16 && a->per_channel)
        gdn_run_as<__nv_bfloat16, true>(d, a, phase);
    else if (a->state_type == KVANT_STATE_BF16)
        gdn_run_as<__nv_bfloat16, false>(d, a, phase);
    else if (a->per_channel)
        gdn_run_as<float, true>(d, a, phase);
    else
        gdn_run_as<float, false>(d, a, phase);
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
