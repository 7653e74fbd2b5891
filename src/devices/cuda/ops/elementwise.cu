/* elementwise.cu: element-wise ops, made of their cards (tools/ops/elements.py); gates of the delta rule, rope, argmax,
 * slots. */
#include "devices/cuda/ops/gates.cuh"
#include "devices/cuda/ops/qk.cuh"
#include "devices/cuda/ops/rope.cuh"

enum { THREADS = 256 };

static unsigned grid_of(int64_t n)
{
    int64_t b = (n + THREADS - 1) / THREADS;
    return (unsigned)(b < 65535 ? b : 65535);
}

#include "ops/elements.cuh"

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

const cuda_op cuda_op_gdn_gates = { NULL, NULL, gdn_gates_run };
const cuda_op cuda_op_rope = { NULL, NULL, rope_run };
const cuda_op cuda_op_argmax = { NULL, NULL, argmax_run };
const cuda_op cuda_op_slot_copy = { NULL, slot_copy_scratch, slot_copy_run };
const cuda_op cuda_op_slot_zero = { NULL, NULL, slot_zero_run };
