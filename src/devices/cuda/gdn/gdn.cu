/* gdn.cu: conv_step, conv_chunk, gdn_step, gdn_chunk.
 *
 * All reads of state come before any write (state.cuh).  gdn_chunk takes gdn_chunk.cu's form where its shapes
 * allow, else it runs the same recurrence as gdn_step, token by token.
 * One warp owns one value column of the state and keeps it in registers over all tokens: columns are independent. */
#include "devices/cuda/gdn/gdn_front.cuh"
#include "devices/cuda/matmul/mm.cuh"

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
    if (i == p.seqs.q0[s + 1] - 1 && p.seqs.slot_out[s] >= 0) {
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
    const T *from = reads_in_place(in, out) ? (const T *)a.state + in * a.slot_stride + at
                                            : (const T *)p.gathered + s * n + at;
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
    if (out < 0)
        return;
    T *to = (T *)a.state + out * a.slot_stride + at;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < a.dk)
            to[lane + 32 * i] = state_rounded<T>(c[i]);
}

/* dk = 128: gdn_step.cuh's columns. */
template <typename T, bool CHANNELS>
static __global__ void __launch_bounds__(32 * STEP_WARPS, CHANNELS ? 4 : 8) gdn_step_kernel(gdn_job p)
{
    const int s = blockIdx.z, v = blockIdx.y;
    gdn_columns<T> c;

    pdl_go();
    pdl_wait();
    if (!c.begin(p, s, v, (int)(blockIdx.x * STEP_WARPS + threadIdx.x / 32) * STEP_COLS))
        return;
    for (int t = c.first; t < c.end; t++) {
        const float o = c.template step<CHANNELS>(p, s, t);
        if (threadIdx.x % 4 == 0)
            p.a.o[((int64_t)t * p.a.hv + v) * p.a.dv + c.col + c.mine] = o;
    }
    c.end_state();
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

static gdn_job job_of(const cuda_device *d, const kvant_gdn_args *a, int phase)
{
    gdn_job p;
    p.a = *a;
    p.seqs = cuda_seqs(&a->seqs);
    p.gathered = d->scratch;
    p.phase = phase;
    p.scale = (float)(1.0 / sqrt((double)a->dk));
    return p;
}

/* The states that a job reads from another slot, to its scratch. */
template <typename T> static void gather_states(cuda_device *d, const gdn_job &p)
{
    gather(d, p.seqs, (const T *)p.a.state, p.a.slot_stride, (int64_t)p.a.hv * p.a.dv * p.a.dk, p.phase, 1);
}

/* made: states are gathered. */
template <typename T, bool CHANNELS>
static void gdn_run_as(cuda_device *d, const kvant_gdn_args *a, int phase, bool made)
{
    const gdn_job p = job_of(d, a, phase);
    if (!made)
        gather_states<T>(d, p);
    const dim3 grid(cuda_blocks(a->dv, WARPS), (unsigned)a->hv, (unsigned)a->seqs.n_seqs);
    if (phase == PROMPT && gdn_chunk_fits(d, a))
        gdn_chunk_run(d, &p, d->scratch + gathered_bytes(a));
    else if (gdn_step_fits(a))
        cuda_launch(d, gdn_step_kernel<T, CHANNELS>, dim3(cuda_blocks(a->dv, STEP_COLS * STEP_WARPS), grid.y, grid.z),
                    32 * STEP_WARPS, 0, p);
    else if (a->dk <= 64)
        cuda_launch(d, gdn_kernel<2, T, CHANNELS>, grid, 32 * WARPS, 0, p);
    else if (a->dk <= 128)
        cuda_launch(d, gdn_kernel<4, T, CHANNELS>, grid, 32 * WARPS, 0, p);
    else
        cuda_launch(d, gdn_kernel<MAX_DK / 32, T, CHANNELS>, grid, 32 * WARPS, 0, p);
}

static void gdn_run(cuda_device *d, const kvant_gdn_args *a, int phase, bool made)
{
    if (a->seqs.n_tokens <= 0)
        return;
    if (a->state_type == KVANT_STATE_BF16 && a->per_channel)
        gdn_run_as<__nv_bfloat16, true>(d, a, phase, made);
    else if (a->state_type == KVANT_STATE_BF16)
        gdn_run_as<__nv_bfloat16, false>(d, a, phase, made);
    else if (a->per_channel)
        gdn_run_as<float, true>(d, a, phase, made);
    else
        gdn_run_as<float, false>(d, a, phase, made);
}

static int gdn_step_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    CUDA_TRY(gdn_supports(d, args, diag));
    gdn_run(d, (const kvant_gdn_args *)args, DECODE, false);
    return KVANT_OK;
}

/* ---- forms ---- */

static bool out_takes(cuda_device *, const kvant_op *ops)
{
    return gdn_out_fits(OP_ARGS(gdn, 0), OP_ARGS(norm_gated, 1));
}

static int out_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    const gdn_job p = job_of(d, OP_ARGS(gdn, 0), DECODE);
    if (p.a.state_type == KVANT_STATE_BF16)
        gather_states<__nv_bfloat16>(d, p);
    else
        gather_states<float>(d, p);
    gdn_out_run(d, p, OP_ARGS(norm_gated, 1));
    return KVANT_OK;
}

/* conv_step, norm_l2, gdn_gates, gdn_step, norm_gated. */
static bool delta_takes(cuda_device *, const kvant_op *ops)
{
    return gdn_front_fits(OP_ARGS(conv, 0), OP_ARGS(norm_l2, 1)) &&
           gdn_out_fits(OP_ARGS(gdn, 3), OP_ARGS(norm_gated, 4));
}

/* products: those of the gates, if they are this launch's. */
static void delta_run_with(cuda_device *d, const kvant_op *ops, const front_gates &products)
{
    const gdn_job p = job_of(d, OP_ARGS(gdn, 3), DECODE);
    gdn_front_run(d, OP_ARGS(conv, 0), OP_ARGS(norm_l2, 1), OP_ARGS(gdn_gates, 2), products, p);
    gdn_out_run(d, p, OP_ARGS(norm_gated, 4));
}

static int delta_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    delta_run_with(d, ops, front_gates());
    return KVANT_OK;
}

/* conv_step, norm_l2, gdn_step, where gates are there: rows that go into the states. */
static bool fold_takes(cuda_device *, const kvant_op *ops)
{
    return gdn_front_fits(OP_ARGS(conv, 0), OP_ARGS(norm_l2, 1)) && gdn_step_fits(OP_ARGS(gdn, 2));
}

static int fold_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    const kvant_gdn_args *g = OP_ARGS(gdn, 2);
    gdn_front_run(d, OP_ARGS(conv, 0), OP_ARGS(norm_l2, 1), NULL, front_gates(), job_of(d, g, DECODE));
    gdn_run(d, g, DECODE, true);
    return KVANT_OK;
}

/* The rows of a product in f32 that gives every token's gates; NULL: it is another. */
static const float *gate_rows(const kvant_matmul_args *a)
{
    const bool fits = a->w->n_in % 8 == 0 && (((uintptr_t)a->x | (uintptr_t)(4 * a->ldx)) & 15) == 0;
    return fits ? cuda_f32_rows(a->w) : NULL;
}

static bool gates_takes(cuda_device *d, const kvant_op *ops)
{
    return gate_rows(OP_ARGS(matmul, 0)) && gate_rows(OP_ARGS(matmul, 1)) && delta_takes(d, ops + 2);
}

static int gates_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *)
{
    const kvant_matmul_args *b = OP_ARGS(matmul, 0), *a = OP_ARGS(matmul, 1);
    delta_run_with(d, ops + 2, { gate_rows(a), gate_rows(b), a->x, a->ldx, (int)a->w->n_in });
    return KVANT_OK;
}

static int chunk_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    CUDA_TRY(gdn_supports(d, args, diag));
    gdn_run(d, (const kvant_gdn_args *)args, PROMPT, false);
    return KVANT_OK;
}

const cuda_op cuda_op_gdn_step = { gdn_supports, gdn_scratch, gdn_step_run };
const cuda_op cuda_op_gdn_chunk = { gdn_supports, chunk_scratch, chunk_run };
const cuda_op cuda_op_conv_step = { conv_supports, conv_scratch, conv_step_run };
const cuda_op cuda_op_conv_chunk = { conv_supports, conv_scratch, conv_chunk_run };
const cuda_form cuda_fused_gates_delta = { gates_takes, gates_run };
const cuda_form cuda_fused_delta_step = { delta_takes, delta_run };
const cuda_form cuda_fused_delta_fold = { fold_takes, fold_run };
const cuda_form cuda_fused_delta_out = { out_takes, out_run };
