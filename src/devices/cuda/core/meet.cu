/* meet.cu: several GPUs of one process that have parts of every layer (device.h, meet): rows go from each straight into
 * the others' memory, and kernels wait for each other, so that a recorded step never waits for the host.
 *
 * Every GPU counts its meetings.  At one it writes its columns to all, then its count into a flag of each other GPU's
 * memory, and waits until all of theirs are as high.  Old rows of the buffer were read before the meeting before this
 * one; where the caller cannot say so it asks for a meeting without rows first
 * (m->wait).  Host threads enqueue, and never wait for a stream between two meetings.
 *
 * No GPU has run this: it is taken with KVANT_CUDA_MEET=1 alone (docs/howto-cuda.md). */
#include <stdlib.h>
#include "devices/cuda/core/device.cuh"

enum { THREADS = 256, FEW = 32 << 10, FLAG_LINE = 32 };   /* floats that one block writes; words from flag to flag */

struct cuda_meet_room {
    int n, self;
    uint32_t *words;                           /* own memory: the count, then a flag of each GPU, a line each */
    uint32_t *theirs[KVANT_MEET_MOST];         /* my flag in their memory */
};

namespace {

constexpr long long LOST = 120000000000ll;

struct meet_job {
    kvant_meet m;
    int n, self;
    uint32_t *words;
    uint32_t *theirs[KVANT_MEET_MOST];
};

/* A GPU that stays away for a minute (at 2 GHz) is lost: the step ends with an error. */
static __device__ __forceinline__ void await(const uint32_t *flag, uint32_t v)
{
    const long long begin = clock64();
    while ((int32_t)(*(const volatile uint32_t *)flag - v) < 0)
        if (clock64() - begin > LOST)
            __trap();
}

/* Columns of one stretch to the whole rows of every GPU, four values at a time where all is on 16 bytes. */
static __device__ __forceinline__ void push_part(const meet_job &j, const kvant_meet_part &p, uint32_t at,
                                                 uint32_t step)
{
    const uint32_t rows = (uint32_t)j.m.rows, cols = (uint32_t)p.cols;
    uintptr_t all = (uintptr_t)p.src | (uintptr_t)(p.ld_src * 4) | (uintptr_t)(j.m.ld * 4) | (uintptr_t)(cols * 4);
    for (int i = 0; i < j.n; i++)
        all |= (uintptr_t)p.dst[i];
    const uint32_t wide = all % 16 == 0 ? 4 : 1, each = cols / wide;
    for (uint64_t k = at; k < (uint64_t)rows * each; k += step) {
        const uint32_t row = (uint32_t)(k / each), col = (uint32_t)(k % each) * wide;
        const float *src = p.src + (int64_t)row * p.ld_src + col;
        const int64_t to = (int64_t)row * j.m.ld + col;
        const float4 v = wide == 4 ? *(const float4 *)src : make_float4(*src, 0, 0, 0);
        for (int i = 0; i < j.n; i++)
            if (p.dst[i] && wide == 4)
                *(float4 *)(p.dst[i] + to) = v;
            else if (p.dst[i])
                p.dst[i][to] = v.x;
    }
}

static __device__ __forceinline__ void push(const meet_job &j, uint32_t at, uint32_t step)
{
    for (int k = 0; k < j.m.n_parts; k++)
        push_part(j, j.m.part[k], at, step);
}

/* All threads of the block come; what they and kernels before this one wrote is seen before the flag. */
static __device__ __forceinline__ void wait_all(const meet_job &j)
{
    __shared__ uint32_t count;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        count = ++j.words[0];
    __syncthreads();
    const uint32_t v = count, i = threadIdx.x;
    if (i < (uint32_t)j.n && i != (uint32_t)j.self) {
        *(volatile uint32_t *)j.theirs[i] = v;
        await(j.words + FLAG_LINE * (i + 1), v);
        __threadfence_system();
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(THREADS) push_kernel(meet_job j)
{
    push(j, blockIdx.x * THREADS + threadIdx.x, gridDim.x * THREADS);
}

/* rows 1: they are few, and go first. */
static __global__ void __launch_bounds__(THREADS) meet_kernel(meet_job j, int rows)
{
    if (rows)
        push(j, threadIdx.x, THREADS);
    wait_all(j);
}

int launched(kvant_diag *diag)
{
    return cuda_check(diag, cudaGetLastError(), "meeting the other GPUs");
}

int enqueue(cuda_device *d, const kvant_meet *m, kvant_diag *diag)
{
    const cuda_meet_room *r = d->meet;
    meet_job j = {};
    int64_t floats = 0;
    j.m = *m;
    j.n = r->n;
    j.self = r->self;
    j.words = r->words;
    for (int i = 0; i < r->n; i++)
        j.theirs[i] = r->theirs[i];
    for (int k = 0; k < m->n_parts; k++)
        floats += (int64_t)m->rows * m->part[k].cols;
    if (m->wait)
        meet_kernel<<<1, THREADS, 0, d->stream>>>(j, 0);
    if (floats > FEW) {
        const int64_t blocks = (floats / 4 + THREADS - 1) / THREADS;
        push_kernel<<<(unsigned)(blocks < 2 * d->n_sm ? blocks : 2 * d->n_sm), THREADS, 0, d->stream>>>(j);
    }
    meet_kernel<<<1, THREADS, 0, d->stream>>>(j, floats > 0 && floats <= FEW);
    return launched(diag);
}

struct meet_list {
    const kvant_meet_piece *list;
    int n;
};

int record_all(cuda_device *d, const void *what, kvant_diag *diag)
{
    const meet_list *w = (const meet_list *)what;
    for (int i = 0; i < w->n; i++) {
        if (w->list[i].n > 0)
            CUDA_TRY(cuda_launch_list(d, w->list[i].ops, w->list[i].n, diag));
        if (w->list[i].meet)
            CUDA_TRY(enqueue(d, w->list[i].meet, diag));
    }
    return KVANT_OK;
}

/* d may write into other's memory. */
int reach(cuda_device *d, const cuda_device *other, kvant_diag *diag)
{
    int can = 0;
    if (d->index == other->index)
        return KVANT_OK;
    CUDA_TRY(cuda_use(d, diag));
    CUDA_TRY(cuda_check(diag, cudaDeviceCanAccessPeer(&can, d->index, other->index), "asking for peer memory"));
    if (!can)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda:%d: cannot write into the memory of cuda:%d", d->index,
                         other->index);
    const cudaError_t e = cudaDeviceEnablePeerAccess(other->index, 0);
    cudaGetLastError();
    return e == cudaErrorPeerAccessAlreadyEnabled ? KVANT_OK : cuda_check(diag, e, "opening peer memory");
}

int room_open(cuda_device *d, int n, int self, kvant_diag *diag)
{
    const size_t bytes = (KVANT_MEET_MOST + 1) * FLAG_LINE * sizeof(uint32_t);
    cuda_meet_room *r = (cuda_meet_room *)calloc(1, sizeof *r);
    if (!r)
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: out of memory");
    cuda_meet_close(d);
    d->meet = r;
    r->n = n;
    r->self = self;
    CUDA_TRY(cuda_use(d, diag));
    CUDA_TRY(cuda_check(diag, cudaMalloc((void **)&r->words, bytes), "allocating flags"));
    CUDA_TRY(cuda_check(diag, cudaMemset(r->words, 0, bytes), "clearing flags"));
    return cuda_check(diag, cudaDeviceSynchronize(), "clearing flags");
}

} // namespace

int cuda_meet_open(kvant_device *const *devs, int n, kvant_diag *diag)
{
    const char *on = getenv("KVANT_CUDA_MEET");
    if (!on || strcmp(on, "1") != 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: GPUs write into each other's memory with "
                         "KVANT_CUDA_MEET=1 alone");
    if (n > KVANT_MEET_MOST)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %d GPUs meet, at most %d can", n, KVANT_MEET_MOST);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            CUDA_TRY(reach((cuda_device *)devs[i], (const cuda_device *)devs[k], diag));
    for (int i = 0; i < n; i++)
        CUDA_TRY(room_open((cuda_device *)devs[i], n, i, diag));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            ((cuda_device *)devs[i])->meet->theirs[k] =
                ((cuda_device *)devs[k])->meet->words + FLAG_LINE * (i + 1);
    return KVANT_OK;
}

int cuda_meet(kvant_device *base, const kvant_meet *m, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    CUDA_TRY(cuda_use(d, diag));
    return enqueue(d, m, diag);
}

int cuda_meet_list(kvant_device *base, const kvant_meet_piece *list, int n, uint64_t key, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    const meet_list all = { list, n };
    bool seen = false;
    CUDA_TRY(cuda_use(d, diag));
    cuda_upload_close(d);
    for (int i = 0; i < n; i++)
        if (list[i].n > 0)
            CUDA_TRY(cuda_reserve_scratch(d, list[i].ops, list[i].n, diag));
    cuda_graph *g = key ? cuda_graph_of(d, key, &seen) : NULL;
    if (!seen)
        return 0;
    if (!g->exec)
        CUDA_TRY(cuda_record_with(d, g, record_all, &all, diag));
    d->replayed++;
    CUDA_TRY(cuda_check(diag, cudaGraphLaunch(g->exec, d->stream), "running a recorded step"));
    return 1;
}

void cuda_meet_close(cuda_device *d)
{
    if (!d->meet)
        return;
    cudaFree(d->meet->words);
    free(d->meet);
    d->meet = NULL;
}
