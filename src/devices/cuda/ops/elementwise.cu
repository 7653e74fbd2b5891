/* elementwise.cu: mul, add, bias, rows_copy, scale, attn_temp, swiglu, gates, gdn, rows_gather, rope, argmax, slots. */
#include "devices/cuda/ops/gates.cuh"
#include "devices/cuda/ops/qk.cuh"
#include "devices/cuda/ops/rope.cuh"
#include "devices/cuda/ops/swiglu.cuh"

enum { THREADS = 256 };

static __global__ void add_kernel(float *x, const float *y, int64_t n)
{
    pdl_go();
    pdl_wait();
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        x[i] += y[i];
}

static unsigned grid_of(int64_t n)
{
    int64_t b = (n + THREADS - 1) / THREADS;
    return (unsigned)(b < 65535 ? b : 65535);
}

static int add_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_add_args *a = (const kvant_add_args *)args;
    int64_t n = (int64_t)a->n * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, add_kernel, dim3(grid_of(n)), THREADS, 0, a->x, a->y, n);
    return KVANT_OK;
}

static __global__ void bias_kernel(kvant_bias_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.d;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS)
        a.y[u / a.d * a.ldy + u % a.d] += a.b[(a.ids ? (int64_t)a.ids[u / a.d] * a.d : 0) + u % a.d];
}

static int bias_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_bias_args *a = (const kvant_bias_args *)args;
    int64_t n = (int64_t)a->n * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, bias_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void rows_copy_kernel(kvant_rows_copy_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t width = (int64_t)a.h * a.d, n = a.n * width;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS) {
        const int64_t i = u / width, j = u % width / a.d, e = u % a.d;
        a.y[i * a.ldy + j * a.gy + e] = a.x[i * a.ldx + j * a.gx + e];
    }
}

static int rows_copy_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_rows_copy_args *a = (const kvant_rows_copy_args *)args;
    int64_t n = (int64_t)a->n * a->h * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, rows_copy_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void scale_kernel(float *x, float s, int64_t n)
{
    pdl_go();
    pdl_wait();
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        x[i] *= s;
}

static int scale_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_scale_args *a = (const kvant_scale_args *)args;
    int64_t n = (int64_t)a->n * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, scale_kernel, dim3(grid_of(n)), THREADS, 0, a->x, a->s, n);
    return KVANT_OK;
}

static __global__ void softcap_kernel(float *x, float cap, int64_t n)
{
    pdl_go();
    pdl_wait();
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        x[i] = cap * tanhf(x[i] / cap);
}

static int softcap_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_softcap_args *a = (const kvant_softcap_args *)args;
    int64_t n = (int64_t)a->n * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, softcap_kernel, dim3(grid_of(n)), THREADS, 0, a->x, a->cap, n);
    return KVANT_OK;
}

static __global__ void attn_temp_kernel(kvant_attn_temp_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.d;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS) {
        const int64_t i = u / a.d;
        a.x[i * a.ldx + u % a.d] *= 1.0f + a.beta * logf(1.0f + (float)(a.pos[i] / a.length));
    }
}

static int attn_temp_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_temp_args *a = (const kvant_attn_temp_args *)args;
    int64_t n = (int64_t)a->n * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, attn_temp_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void mul_kernel(kvant_mul_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.d;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS) {
        const int64_t i = u / a.d, j = u % a.d;
        a.y[i * a.ldy + j] *= a.x[i * a.ldx + j];
    }
}

static int mul_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_mul_args *a = (const kvant_mul_args *)args;
    const int64_t n = (int64_t)a->n * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, mul_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void swiglu_kernel(kvant_swiglu_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.f;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS) {
        const int64_t i = u / a.f, j = u % a.f;
        const float g = a.gate[i * a.ldg + j];
        a.y[i * a.ldy + j] = swiglu_one(g, a.up[i * a.ldu + j]);
    }
}

/* Rows of whole float4 words, one row per blockIdx.y and turn. */
static __global__ void __launch_bounds__(THREADS) swiglu4_kernel(kvant_swiglu_args a)
{
    const int j = (blockIdx.x * THREADS + threadIdx.x) * 4;
    pdl_go();
    pdl_wait();
    for (int i = blockIdx.y; j < a.f && i < a.n; i += gridDim.y) {
        const float4 g = *(const float4 *)(a.gate + i * a.ldg + j), u = *(const float4 *)(a.up + i * a.ldu + j);
        *(float4 *)(a.y + i * a.ldy + j) =
            make_float4(swiglu_one(g.x, u.x), swiglu_one(g.y, u.y), swiglu_one(g.z, u.z), swiglu_one(g.w, u.w));
    }
}

static int swiglu_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_swiglu_args *a = (const kvant_swiglu_args *)args;
    int64_t n = (int64_t)a->n * a->f;
    const uintptr_t at = (uintptr_t)a->gate | (uintptr_t)a->up | (uintptr_t)a->y;
    (void)diag;
    if (n > 0 && ((at | (uintptr_t)(4 * (a->ldg | a->ldu | a->ldy | a->f))) & 15) == 0)
        cuda_launch(d, swiglu4_kernel, dim3(cuda_blocks(a->f, 4 * THREADS), (unsigned)(a->n < 4096 ? a->n : 4096)),
                    THREADS, 0, *a);
    else if (n > 0)
        cuda_launch(d, swiglu_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __device__ __forceinline__ float glu_one(const kvant_glu_args &a, float g, float u)
{
    if (a.kind == KVANT_GLU_GELU || a.kind == KVANT_GLU_GELU_ALONE)
        return g * sigmoid_dev(0x1.988454p+0f * (g + 0.044715f * g * g * g)) * /* 2 sqrt(2/pi) */
               (a.kind == KVANT_GLU_GELU ? u : 1.0f);
    if (a.kind == KVANT_GLU_RELU)
        return g > 0.0f ? g * u : 0.0f;
    g = g > a.limit ? a.limit : g;
    u = u > a.limit ? a.limit : u < -a.limit ? -a.limit : u;
    return g * sigmoid_dev(a.alpha * g) * (u + 1.0f);
}

static __global__ void glu_kernel(kvant_glu_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.f;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS) {
        const int64_t i = u / a.f, j = u % a.f;
        a.y[i * a.ldy + j] = glu_one(a, a.gate[i * a.ldg + j], a.up[i * a.ldu + j]);
    }
}

static int glu_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_glu_args *a = (const kvant_glu_args *)args;
    int64_t n = (int64_t)a->n * a->f;
    (void)diag;
    if (n > 0)
        cuda_launch(d, glu_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void gate_mul_kernel(kvant_gate_mul_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.h * a.d;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS) {
        const int64_t e = u % a.d, j = u / a.d % a.h, i = u / a.d / a.h;
        a.y[i * a.ldy + j * a.gy + e] *= sigmoid_dev(a.gate[i * a.ldg + j * a.gg + e]);
    }
}

static int gate_mul_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gate_mul_args *a = (const kvant_gate_mul_args *)args;
    int64_t n = (int64_t)a->n * a->h * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, gate_mul_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void gate_add_kernel(kvant_gate_add_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.d;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS)
        a.y[u] += a.x[u] * sigmoid_dev(a.gate[u / a.d]);
}

static int gate_add_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gate_add_args *a = (const kvant_gate_add_args *)args;
    int64_t n = (int64_t)a->n * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, gate_add_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void gdn_gates_kernel(kvant_gdn_gates_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.h * (a.channels > 0 ? a.channels : 1);
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS)
        gate_values(a, u);
}

static int gdn_gates_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gdn_gates_args *a = (const kvant_gdn_gates_args *)args;
    int64_t n = (int64_t)a->n * a->h * (a->channels > 0 ? a->channels : 1);
    (void)diag;
    if (n > 0)
        cuda_launch(d, gdn_gates_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void rows_gather_kernel(kvant_rows_gather_args a)
{
    pdl_go();
    pdl_wait();
    const int64_t n = (int64_t)a.n * a.d;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS)
        a.y[u] = a.x[(int64_t)a.idx[u / a.d] * a.d + u % a.d];
}

static int rows_gather_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_rows_gather_args *a = (const kvant_rows_gather_args *)args;
    int64_t n = (int64_t)a->n * a->d;
    (void)diag;
    if (n > 0)
        cuda_launch(d, rows_gather_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

static __global__ void rope_kernel(kvant_rope_args a)
{
    pdl_go();
    pdl_wait();
    const int half = a.n_rot / 2;
    const int64_t n = (int64_t)a.n * a.h * half;
    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS) {
        const int64_t e = u % half, j = u / half % a.h, i = u / half / a.h;
        float *x = a.x + i * a.ldx + j * a.gx;
        rope_pair(a.neox ? &x[e] : &x[2 * e], a.neox ? &x[e + half] : &x[2 * e + 1],
                  (float)a.pos[i] * a.inv_freq[e], a.mscale);
    }
}

static int rope_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_rope_args *a = (const kvant_rope_args *)args;
    int64_t n = (int64_t)a->n * a->h * (a->n_rot / 2);
    (void)diag;
    if (n > 0)
        cuda_launch(d, rope_kernel, dim3(grid_of(n)), THREADS, 0, *a);
    return KVANT_OK;
}

/* ---- argmax: one block per row ---- */

enum { ARG_THREADS = 1024 };

/* Larger first, then lower id. */
static __device__ __forceinline__ void better(float &v, int &id, float w, int j)
{
    if (w > v || (w == v && j < id)) {
        v = w;
        id = j;
    }
}

static __global__ void __launch_bounds__(ARG_THREADS) argmax_kernel(kvant_argmax_args a)
{
    __shared__ float top[32];
    __shared__ int at[32];
    const float *x = a.x + (int64_t)blockIdx.x * a.d;
    float best = -INFINITY, zero = 0.0f;
    int id = a.d;

    pdl_go();
    pdl_wait();
    for (int j = threadIdx.x; j < a.d; j += ARG_THREADS) {
        const float v = x[j];
        zero += v * 0.0f;              /* NaN and Inf give NaN */
        better(best, id, v, j);
    }
    const int bad = __syncthreads_or(!(zero == 0.0f));
    for (int m = 16; m; m >>= 1)
        better(best, id, __shfl_xor_sync(0xffffffffu, best, m), __shfl_xor_sync(0xffffffffu, id, m));
    if (threadIdx.x % 32 == 0) {
        top[threadIdx.x / 32] = best;
        at[threadIdx.x / 32] = id;
    }
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    best = top[threadIdx.x];
    id = at[threadIdx.x];
    for (int m = 16; m; m >>= 1)
        better(best, id, __shfl_xor_sync(0xffffffffu, best, m), __shfl_xor_sync(0xffffffffu, id, m));
    if (threadIdx.x == 0)
        a.ids[blockIdx.x] = bad ? -1 : id;
}

static int argmax_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_argmax_args *a = (const kvant_argmax_args *)args;
    (void)diag;
    if (a->n > 0)
        cuda_launch(d, argmax_kernel, dim3((unsigned)a->n), ARG_THREADS, 0, *a);
    return KVANT_OK;
}

/* ---- slots: all reads before any write, so the rows pass through scratch ---- */

static __device__ void copy_bytes(uint8_t *dst, const uint8_t *src, size_t n)
{
    if ((((uintptr_t)dst | (uintptr_t)src | n) & 15) == 0) {
        for (size_t i = threadIdx.x; i < n / 16; i += THREADS)
            ((uint4 *)dst)[i] = ((const uint4 *)src)[i];
        return;
    }
    for (size_t i = threadIdx.x; i < n; i += THREADS)
        dst[i] = src[i];
}

enum { PIECE = 16384 };            /* bytes of one block */

static __device__ size_t piece_of(size_t bytes, size_t *at)
{
    *at = (size_t)blockIdx.x * PIECE;
    return bytes - *at < PIECE ? bytes - *at : PIECE;
}

static __global__ void slot_gather_kernel(kvant_slot_copy_args a, uint8_t *copy)
{
    size_t at, n = piece_of(a.bytes, &at);
    copy_bytes(copy + (size_t)blockIdx.y * a.bytes + at, a.base + (size_t)a.src[blockIdx.y] * a.stride + at, n);
}

static __global__ void slot_scatter_kernel(kvant_slot_copy_args a, const uint8_t *copy)
{
    size_t at, n = piece_of(a.bytes, &at);
    copy_bytes(a.base + (size_t)a.dst[blockIdx.y] * a.stride + at, copy + (size_t)blockIdx.y * a.bytes + at, n);
}

static __global__ void slot_zero_kernel(kvant_slot_zero_args a)
{
    size_t at, n = piece_of(a.bytes, &at);
    uint8_t *dst = a.base + (size_t)a.dst[blockIdx.y] * a.stride + at;
    for (size_t i = threadIdx.x; i < n; i += THREADS)
        dst[i] = 0;
}

static size_t slot_copy_scratch(const cuda_device *d, const void *args)
{
    const kvant_slot_copy_args *a = (const kvant_slot_copy_args *)args;
    (void)d;
    return (size_t)a->n * a->bytes;
}

static int slot_copy_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_slot_copy_args *a = (const kvant_slot_copy_args *)args;
    (void)diag;
    if (a->n > 0 && a->bytes > 0) {
        const dim3 grid(cuda_blocks((int64_t)a->bytes, PIECE), (unsigned)a->n);
        slot_gather_kernel<<<grid, THREADS, 0, d->stream>>>(*a, d->scratch);
        slot_scatter_kernel<<<grid, THREADS, 0, d->stream>>>(*a, d->scratch);
    }
    return KVANT_OK;
}

static int slot_zero_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_slot_zero_args *a = (const kvant_slot_zero_args *)args;
    (void)diag;
    if (a->n > 0 && a->bytes > 0)
        slot_zero_kernel<<<dim3(cuda_blocks((int64_t)a->bytes, PIECE), (unsigned)a->n), THREADS, 0, d->stream>>>(*a);
    return KVANT_OK;
}

const cuda_op cuda_op_add = { NULL, NULL, add_run };
const cuda_op cuda_op_bias = { NULL, NULL, bias_run };
const cuda_op cuda_op_rows_copy = { NULL, NULL, rows_copy_run };
const cuda_op cuda_op_scale = { NULL, NULL, scale_run };
const cuda_op cuda_op_attn_temp = { NULL, NULL, attn_temp_run };
const cuda_op cuda_op_softcap = { NULL, NULL, softcap_run };
const cuda_op cuda_op_mul = { NULL, NULL, mul_run };
const cuda_op cuda_op_swiglu = { NULL, NULL, swiglu_run };
const cuda_op cuda_op_glu = { NULL, NULL, glu_run };
const cuda_op cuda_op_gate_mul = { NULL, NULL, gate_mul_run };
const cuda_op cuda_op_gate_add = { NULL, NULL, gate_add_run };
const cuda_op cuda_op_gdn_gates = { NULL, NULL, gdn_gates_run };
const cuda_op cuda_op_rows_gather = { NULL, NULL, rows_gather_run };
const cuda_op cuda_op_rope = { NULL, NULL, rope_run, cuda_qk_fuse };
const cuda_op cuda_op_argmax = { NULL, NULL, argmax_run };
const cuda_op cuda_op_slot_copy = { NULL, slot_copy_scratch, slot_copy_run };
const cuda_op cuda_op_slot_zero = { NULL, NULL, slot_zero_run };
