/* gdn_front.cu: what decode sequences do before and after the gated delta rule, in its launches: conv_step, norm_l2 of
 * queries and keys and gdn_gates in one launch, gdn_step and norm_gated in the next.  Bits as of the ops one by one. */
#include "devices/cuda/gdn/gdn_front.cuh"
#include "devices/cuda/ops/row_norm.cuh"

enum { HEAD = 128, TAPS = 4, COPIES = 16 }; /* values of a head; of the convolution; blocks that copy a state */

typedef struct gdn_front_job {
    kvant_conv_args conv;
    kvant_norm_l2_args norm;
    kvant_gdn_gates_args gates;
    front_gates products;
    gdn_job g;
} gdn_front_job;

/* Returns true if sequence s exists and is one of decode. */
static __device__ __forceinline__ bool decodes(const seqs_dev &q, int s)
{
    return s < q.n_seqs && takes_part(q, s, DECODE);
}

/* A channel of one token. */
static __device__ __forceinline__ float front_tap(const float *window, const float *w, float x, float bias)
{
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < TAPS - 1; j++)
        sum += window[j] * w[j];
    sum += x * w[TAPS - 1];
    sum += bias; /* -0.0 becomes +0.0, as in the plain op */
    return sum / (1.0f + expf(-sum));
}

/* 1 / length of a head, whose values the block's threads have; summed by every warp as head_l2_kernel does. */
static __device__ __forceinline__ float head_length(float *v, float mine, float eps)
{
    __syncthreads();
    v[threadIdx.x] = mine;
    __syncthreads();
    const float length = sqrtf(warp_squares<HEAD / 32>(v));
    return 1.0f / (length < eps ? eps : length);
}

/* A head's channels, one to a thread, of all sequences, SEQS at most: all windows are read before one is written. */
template <int SEQS> static __device__ __forceinline__ void front_conv(const gdn_front_job &p)
{
    __shared__ float head[HEAD];
    const kvant_conv_args &a = p.conv;
    const seqs_dev &q = p.g.seqs;
    const int ch = blockIdx.x * HEAD + threadIdx.x;
    const bool normed = (int)blockIdx.x < p.norm.h;
    float window[SEQS][TAPS - 1], w[TAPS];
#pragma unroll
    for (int s = 0; s < SEQS; s++) {
        const int slot = decodes(q, s) ? q.slot_in[s] : -1;
#pragma unroll
        for (int j = 0; j < TAPS - 1; j++)
            window[s][j] = slot < 0 ? 0.0f : a.state[slot * a.slot_stride + (int64_t)ch * (TAPS - 1) + j];
    }
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        w[j] = a.w[(int64_t)ch * TAPS + j];
    const float bias = a.bias ? a.bias[ch] : 0.0f;
#pragma unroll
    for (int s = 0; s < SEQS; s++) {
        if (s >= q.n_seqs)
            continue;
        const bool own = decodes(q, s); /* those of prompts are there, and only normed */
        for (int t = q.q0[s]; t < q.q0[s + 1]; t++) {
            const float x = own ? a.x[(int64_t)t * a.ldx + ch] : 0.0f;
            float y = own ? front_tap(window[s], w, x, bias) : a.y[(int64_t)t * a.c + ch];
            if (normed)
                y *= head_length(head, y, p.norm.eps);
            a.y[(int64_t)t * a.c + ch] = y;
#pragma unroll
            for (int j = 0; j < TAPS - 2; j++)
                window[s][j] = window[s][j + 1];
            window[s][TAPS - 2] = x;
        }
#pragma unroll
        for (int j = 0; j < TAPS - 1 && own && q.slot_out[s] >= 0; j++)
            a.state[q.slot_out[s] * a.slot_stride + (int64_t)ch * (TAPS - 1) + j] = window[s][j];
    }
}

/* Block `part` of COPIES: the states of sequences that read another slot than they write. */
template <typename T> static __device__ __forceinline__ void front_copy(const gdn_front_job &p, int part)
{
    const kvant_gdn_args &a = p.g.a;
    const seqs_dev &q = p.g.seqs;
    const int64_t n = (int64_t)a.hv * a.dv * a.dk;
    for (int s = 0; s < q.n_seqs; s++) {
        const int slot = q.slot_in[s];
        if (!decodes(q, s) || slot < 0 || reads_in_place(slot, q.slot_out[s]))
            continue;
        for (int64_t i = part * HEAD + threadIdx.x; i < n; i += COPIES * HEAD)
            ((T *)p.g.gathered)[s * n + i] = ((const T *)a.state)[slot * a.slot_stride + i];
    }
}

/* Values of gates that a block makes: one to a warp, with its products, or one to a thread. */
static __host__ __device__ __forceinline__ int gates_each(const gdn_front_job &p)
{
    return p.products.x ? HEAD / 32 : HEAD;
}

/* The gates' block `part`. */
static __device__ __forceinline__ void front_values(const gdn_front_job &p, int part)
{
    const front_gates &m = p.products;
    const int u = part * gates_each(p) + (int)(m.x ? threadIdx.x / 32 : threadIdx.x);
    if (u >= p.gates.n * p.gates.h)
        return;
    if (m.x) {
        const float *x = m.x + u / p.gates.h * m.ldx;
        const int64_t row = (int64_t)(u % p.gates.h) * m.d;
        const float alpha = row_dot<4>(m.alpha + row, x, m.d), beta = row_dot<4>(m.beta + row, x, m.d);
        if (threadIdx.x % 32)
            return;
        p.gates.alpha[u] = alpha;
        p.gates.beta[u] = beta;
    }
    gate_values(p.gates, u);
}

static __host__ __device__ __forceinline__ int gate_blocks(const gdn_front_job &p)
{
    return (p.gates.n * p.gates.h + gates_each(p) - 1) / gates_each(p);
}

/* Blocks: heads of channels, gates, COPIES. */
template <typename T, int SEQS> static __global__ void __launch_bounds__(HEAD) front_kernel(gdn_front_job p)
{
    const int at = (int)blockIdx.x - p.conv.c / HEAD, copy = at - gate_blocks(p);
    pdl_go();
    pdl_wait();
    if (at < 0)
        front_conv<SEQS>(p);
    else if (copy < 0)
        front_values(p, at);
    else
        front_copy<T>(p, copy);
}

/* ---- gdn_step and norm_gated ---- */

typedef struct out_job {
    gdn_job g;
    kvant_norm_gated_args norm;
} out_job;

/* A head's 128 sums, one to each of the first threads, normed and gated. */
static __device__ __forceinline__ void gate_head(const kvant_norm_gated_args &a, const float *o, int64_t t, int v,
                                                 float z)
{
    const int e = threadIdx.x;
    if (e >= HEAD)
        return;
    const float scale = 1.0f / sqrtf(warp_squares<HEAD / 32>(o) / (float)HEAD + a.eps);
    a.y[(t * a.h + v) * HEAD + e] = o[e] * scale * a.w[e] * (z / (1.0f + expf(-z)));
}

/* Block: a head of a sequence; its warps as those of gdn_step_kernel.  Sums of prompts are there, and only normed. */
template <typename T> static __global__ void __launch_bounds__(4 * HEAD, 2) out_kernel(out_job p)
{
    __shared__ float sums[HEAD];
    const int s = blockIdx.y, v = blockIdx.x;
    gdn_columns<T> c;

    pdl_go();
    pdl_wait();
    const bool own = c.begin(p.g, s, v, (int)threadIdx.x / 32 * STEP_COLS);
    for (int t = c.first; t < c.end; t++) {
        const float z = threadIdx.x < HEAD ? p.norm.z[t * p.norm.ldz + v * HEAD + threadIdx.x] : 0.0f;
        const float o = own ? c.template step<false>(p.g, s, t)
                            : p.norm.o[((int64_t)t * p.norm.h + v) * HEAD + c.col + c.mine];
        __syncthreads(); /* the sums of the token before have been read */
        if (threadIdx.x % 4 == 0)
            sums[c.col + c.mine] = o;
        __syncthreads();
        gate_head(p.norm, sums, t, v, z);
    }
    if (own)
        c.end_state();
}

template <typename T> static void out_run(cuda_device *d, const gdn_job &g, const kvant_norm_gated_args *a)
{
    const out_job p = { g, *a };
    cuda_launch(d, out_kernel<T>, dim3((unsigned)g.a.hv, (unsigned)g.a.seqs.n_seqs), 4 * HEAD, 0, p);
}

void gdn_out_run(cuda_device *d, const gdn_job &g, const kvant_norm_gated_args *a)
{
    if (g.a.state_type == KVANT_STATE_BF16)
        out_run<__nv_bfloat16>(d, g, a);
    else
        out_run<float>(d, g, a);
}

template <typename T> static void front_run(cuda_device *d, const gdn_front_job &p)
{
    const dim3 blocks((unsigned)(p.conv.c / HEAD + gate_blocks(p) + COPIES));
    if (p.conv.seqs.n_seqs <= FRONT_SEQS)
        cuda_launch(d, front_kernel<T, FRONT_SEQS>, blocks, HEAD, 0, p);
    else
        cuda_launch(d, front_kernel<T, FRONT_MOST>, blocks, HEAD, 0, p);
}

bool gdn_out_fits(const kvant_gdn_args *g, const kvant_norm_gated_args *a)
{
    return gdn_step_fits(g) && g->dv == HEAD && a->dv == HEAD;
}

bool gdn_front_fits(const kvant_conv_args *c, const kvant_norm_l2_args *n)
{
    return c->k == TAPS && c->c % HEAD == 0 && c->seqs.n_seqs <= FRONT_MOST && n->d == HEAD;
}

void gdn_front_run(cuda_device *d, const kvant_conv_args *c, const kvant_norm_l2_args *n,
                   const kvant_gdn_gates_args *s, const front_gates &products, const gdn_job &g)
{
    const gdn_front_job p = { *c, *n, s ? *s : kvant_gdn_gates_args(), products, g };
    if (g.a.state_type == KVANT_STATE_BF16)
        front_run<__nv_bfloat16>(d, p);
    else
        front_run<float>(d, p);
}
