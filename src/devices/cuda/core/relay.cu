/* relay.cu: a list over the GPU and the thread that calls (device.h, relay): a step whose experts are the CPU's.
 *
 * A list that comes back under its key is one graph: between its ops one block writes rows to pinned memory and raises
 * a flag, another waits for the thread's flag and fetches what it wrote (relay.h).  The thread enqueues the step once
 * and nobody waits for a stream; what stands between the two blocks, such as the shared expert, runs while the thread
 * is at work.  Kernels do the waiting because they are plain nodes of a graph on every driver.
 *
 * The first time of a key, and lists without one, go piece by piece: kernels are loaded and scratch grows then, which
 * must not happen behind a block that waits for this thread; and prompts would hold a GPU that also draws a screen for
 * longer than its watchdog allows.  So do all lists where a launch returns when it has run, and where the system pins
 * no memory.
 *
 * Both sides wait for a minute at most.  A thread that gives up raises a third flag, at which blocks that wait go on
 * with the rows that are there; nobody reads what comes of them. */
#include <stdlib.h>
#include "devices/cuda/core/device.cuh"
#include "devices/relay.h"

enum { THREADS = 1024, SIDE_BYTES = 256 << 10 };   /* more rows than that go by the copy engine */
constexpr size_t FLAG_BYTES = 3 * (size_t)RELAY_LINE;

/* Pinned memory and what else relays need; kept until the device is closed. */
struct cuda_relay_room {
    relay_side side;
    unsigned char *pinned;         /* flags, rows out, rows in; NULL: none */
    uint32_t *stop;                /* 1: the thread has given up */
    size_t out_room, in_room;
    size_t refused;                /* so many bytes could not be pinned; 0: all could */
    bool pieces;                   /* every list goes piece by piece: launches block */
    int ended;                     /* questions in a row at which the stream was at its end */
    cudaEvent_t taken;             /* the last copy from the caller's own memory is over */
    bool taking;
};

namespace {

/* Three parts of words, and the flag. */
struct rows_job {
    const uint32_t *src[KVANT_RELAY_PARTS];
    uint32_t *dst[KVANT_RELAY_PARTS];
    uint32_t words[KVANT_RELAY_PARTS];
    uint32_t *flag;
    const uint32_t *stop;
};

/* Returns false when the host has given up. */
static __device__ __noinline__ bool flag_may_come(const uint32_t *stop, unsigned long long begin)
{
    if (*(const volatile uint32_t *)stop)
        return false;
    if (cuda_now_ns() - begin > CUDA_LOST_NS)
        __trap();
    return true;
}

/* The block sees all that the host wrote before the flag. */
static __device__ __forceinline__ void flag_wait(const uint32_t *flag, uint32_t v, const uint32_t *stop)
{
    if (threadIdx.x == 0) {
        const unsigned long long begin = cuda_now_ns();
        for (uint32_t looks = 1; *(const volatile uint32_t *)flag != v; looks++)
            if (looks % CUDA_LOOKS == 0 && !flag_may_come(stop, begin))
                break;
    }
    __threadfence_system();
    __syncthreads();
}

/* All that the block has read and written comes before the flag. */
static __device__ __forceinline__ void flag_set(uint32_t *flag, uint32_t v)
{
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        *(volatile uint32_t *)flag = v;
}

/* Past the caches: the host wrote it while this kernel ran. */
static __device__ __forceinline__ void copy_words(uint32_t *dst, const uint32_t *src, uint32_t n)
{
    const uint32_t wide = ((uintptr_t)dst | (uintptr_t)src) % 16 == 0 ? n / 4 : 0;
    for (uint32_t i = threadIdx.x; i < wide; i += THREADS)
        ((uint4 *)dst)[i] = __ldcv((const uint4 *)src + i);
    for (uint32_t i = 4 * wide + threadIdx.x; i < n; i += THREADS)
        dst[i] = __ldcv(src + i);
}

static __device__ __forceinline__ void copy_parts(const rows_job &j)
{
#pragma unroll
    for (int p = 0; p < KVANT_RELAY_PARTS; p++)
        copy_words(j.dst[p], j.src[p], j.words[p]);
}

/* The thread has taken the rows of before; these are there; now it may look. */
static __global__ void __launch_bounds__(THREADS) out_kernel(rows_job j)
{
    flag_wait(j.flag, 0, j.stop);
    copy_parts(j);
    flag_set(j.flag, 1);
}

static __global__ void __launch_bounds__(THREADS) in_kernel(rows_job j)
{
    flag_wait(j.flag, 1, j.stop);
    copy_parts(j);
    flag_set(j.flag, 0);
}

/* Around copies of the copy engine: one waits for a value of the flag, one sets it. */
static __global__ void wait_kernel(uint32_t *flag, uint32_t v, const uint32_t *stop)
{
    flag_wait(flag, v, stop);
}

static __global__ void set_kernel(uint32_t *flag, uint32_t v)
{
    flag_set(flag, v);
}

int alive(void *device, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)device;
    const cudaError_t e = cudaStreamQuery(d->stream);
    d->relay->ended = e == cudaSuccess ? d->relay->ended + 1 : 0;
    if (d->relay->ended > 8)
        return cuda_fail(diag, KVANT_EINTERNAL, "device cuda: a step ended without the rows that it owes");
    return e == cudaErrorNotReady ? KVANT_OK : cuda_check(diag, e, "waiting for rows of the GPU");
}

/* ---- memory ---- */

/* The flags and `stop`, a line each, then rows.  Returns 1, or 0 where a system pins no more memory. */
int side_alloc(cuda_relay_room *r, size_t out, size_t in)
{
    if (cudaHostAlloc((void **)&r->pinned, FLAG_BYTES + out + in, cudaHostAllocMapped) != cudaSuccess) {
        cudaGetLastError();
        r->pinned = NULL;
        r->refused = out + in;
        return 0;
    }
    memset(r->pinned, 0, FLAG_BYTES);
    r->side.out = (uint32_t *)r->pinned;
    r->side.in = (uint32_t *)(r->pinned + RELAY_LINE);
    r->stop = (uint32_t *)(r->pinned + 2 * RELAY_LINE);
    r->side.out_rows = r->pinned + FLAG_BYTES;
    r->side.in_rows = r->side.out_rows + out;
    r->out_room = out;
    r->in_room = in;
    return 1;
}

/* Room for the largest entries of a list; larger room drops the graphs, which hold the old one's addresses.  Returns 1,
 * 0 where it cannot be had, or an error. */
int room_grow(cuda_device *d, const kvant_relay *list, int n, kvant_diag *diag)
{
    const size_t out = relay_most(list, n, KVANT_RELAY_OUT), in = relay_most(list, n, KVANT_RELAY_IN);
    cuda_relay_room *r = d->relay;
    if (r->pinned && out <= r->out_room && in <= r->in_room)
        return 1;
    const size_t more_out = out > r->out_room ? out : r->out_room, more_in = in > r->in_room ? in : r->in_room;
    if (r->refused && more_out + more_in >= r->refused)
        return 0;
    CUDA_TRY(cuda_sync(&d->base, diag));
    cuda_drop_graphs(d);
    cudaFreeHost(r->pinned);
    r->pinned = NULL;
    r->out_room = r->in_room = 0;
    return side_alloc(r, more_out, more_in);
}

int room_open(cuda_device *d, kvant_diag *diag)
{
    if (d->relay)
        return KVANT_OK;
    d->relay = (cuda_relay_room *)calloc(1, sizeof *d->relay);
    if (!d->relay)
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: out of memory");
    d->relay->side.alive = alive;
    d->relay->side.device = d;
    d->relay->side.limit_ns = (int64_t)CUDA_LOST_NS;
    d->relay->pieces = cuda_launches_block();
    const cudaError_t e = cudaEventCreateWithFlags(&d->relay->taken, cudaEventDisableTiming);
    if (e != cudaSuccess)
        cuda_relay_close(d);
    return cuda_check(diag, e, "making an event");
}

/* ---- piece by piece ---- */

int copy_now(cuda_device *d, const kvant_relay *r, kvant_diag *diag)
{
    for (int i = 0; i < KVANT_RELAY_PARTS; i++) {
        if (r->bytes[i] == 0)
            continue;
        cudaError_t e = cudaMemcpyAsync(r->dst[i], r->src[i], r->bytes[i], cudaMemcpyDefault, d->stream);
        CUDA_TRY(cuda_check(diag, e, "copying rows"));
    }
    return KVANT_OK;
}

int out_now(cuda_device *d, const kvant_relay *r, kvant_diag *diag)
{
    CUDA_TRY(copy_now(d, r, diag));
    return cuda_sync(&d->base, diag);
}

/* The caller's memory may be pinned: it is read until the event. */
int in_now(cuda_device *d, const kvant_relay *r, kvant_diag *diag)
{
    CUDA_TRY(copy_now(d, r, diag));
    d->relay->taking = true;
    return cuda_check(diag, cudaEventRecord(d->relay->taken, d->stream), "marking a copy");
}

/* From now on the caller may change its rows. */
int taken_wait(cuda_device *d, kvant_diag *diag)
{
    if (!d->relay->taking)
        return KVANT_OK;
    d->relay->taking = false;
    return cuda_check(diag, cudaEventSynchronize(d->relay->taken), "waiting for a copy to the GPU");
}

int host_now(cuda_device *d, int number, kvant_relay_fn run, void *user, kvant_diag *diag)
{
    CUDA_TRY(taken_wait(d, diag));
    return run(user, number, diag);
}

int each_piece(cuda_device *d, const kvant_relay *list, int n, kvant_relay_fn run, void *user, kvant_diag *diag)
{
    for (int i = 0; i < n; i++) {
        if (list[i].kind == KVANT_RELAY_OPS)
            CUDA_TRY(cuda_launch_list(d, list[i].ops, list[i].n, diag));
        else if (list[i].kind == KVANT_RELAY_HOST)
            CUDA_TRY(host_now(d, list[i].n, run, user, diag));
        else
            CUDA_TRY(list[i].kind == KVANT_RELAY_OUT ? out_now(d, &list[i], diag) : in_now(d, &list[i], diag));
    }
    return KVANT_OK;
}

int relay_pieces(cuda_device *d, const kvant_relay *list, int n, kvant_relay_fn run, void *user, kvant_diag *diag)
{
    const int rc = each_piece(d, list, n, run, user, diag), taken = taken_wait(d, rc < 0 ? NULL : diag);
    return rc < 0 ? rc : taken;
}

/* ---- recorded ---- */

/* One message, its parts on the host's side in the pinned memory. */
rows_job job_of(const cuda_relay_room *room, const kvant_relay *r)
{
    const bool out = r->kind == KVANT_RELAY_OUT;
    unsigned char *at = out ? room->side.out_rows : room->side.in_rows;
    rows_job j = {};
    j.flag = out ? room->side.out : room->side.in;
    j.stop = room->stop;
    for (int i = 0; i < KVANT_RELAY_PARTS; at += relay_part_room(r->bytes[i++])) {
        j.words[i] = (uint32_t)(r->bytes[i] / sizeof(uint32_t));
        j.src[i] = (const uint32_t *)(out ? r->src[i] : at);
        j.dst[i] = (uint32_t *)(out ? (void *)at : r->dst[i]);
    }
    return j;
}

int record_copies(cuda_device *d, const rows_job &j, uint32_t before, kvant_diag *diag)
{
    wait_kernel<<<1, 1, 0, d->stream>>>(j.flag, before, j.stop);
    for (int i = 0; i < KVANT_RELAY_PARTS; i++) {
        if (j.words[i] == 0)
            continue;
        const size_t bytes = j.words[i] * sizeof(uint32_t);
        cudaError_t e = cudaMemcpyAsync(j.dst[i], j.src[i], bytes, cudaMemcpyDefault, d->stream);
        CUDA_TRY(cuda_check(diag, e, "recording a copy of rows"));
    }
    set_kernel<<<1, 1, 0, d->stream>>>(j.flag, 1 - before);
    return KVANT_OK;
}

int record_rows(cuda_device *d, const kvant_relay *r, kvant_diag *diag)
{
    const rows_job j = job_of(d->relay, r);
    if (relay_room(r) > SIDE_BYTES)
        CUDA_TRY(record_copies(d, j, r->kind == KVANT_RELAY_IN, diag));
    else if (r->kind == KVANT_RELAY_OUT)
        out_kernel<<<1, THREADS, 0, d->stream>>>(j);
    else
        in_kernel<<<1, THREADS, 0, d->stream>>>(j);
    return cuda_check(diag, cudaGetLastError(), "recording rows");
}

struct whole_list {
    const kvant_relay *list;
    int n;
};

int record_all(cuda_device *d, const void *what, kvant_diag *diag)
{
    const whole_list *w = (const whole_list *)what;
    for (int i = 0; i < w->n; i++) {
        const kvant_relay *r = &w->list[i];
        if (r->kind == KVANT_RELAY_OPS)
            CUDA_TRY(cuda_launch_list(d, r->ops, r->n, diag));
        else if (r->kind != KVANT_RELAY_HOST)
            CUDA_TRY(record_rows(d, r, diag));
    }
    return KVANT_OK;
}

/* After an error the flags are as they were: the stream comes to its end, and the next list finds all as at first. */
void relay_recover(cuda_device *d)
{
    cuda_relay_room *r = d->relay;
    __atomic_store_n(r->stop, 1u, __ATOMIC_RELEASE);
    cudaStreamSynchronize(d->stream);
    cudaGetLastError();
    memset(r->pinned, 0, FLAG_BYTES);
    cuda_drop_graphs(d);
}

int relay_recorded(cuda_device *d, cuda_graph *g, const kvant_relay *list, int n, kvant_relay_fn run, void *user,
                   kvant_diag *diag)
{
    const whole_list all = { list, n };
    if (!g->exec)
        CUDA_TRY(cuda_record_with(d, g, record_all, &all, diag));
    d->replayed++;
    d->relay->ended = 0;
    CUDA_TRY(cuda_check(diag, cudaGraphLaunch(g->exec, d->stream), "running a recorded step"));
    const int rc = relay_attend(&d->relay->side, list, n, run, user, diag);
    if (rc < 0)
        relay_recover(d);
    return rc;
}

} // namespace

int cuda_relay(kvant_device *base, const kvant_relay *list, int n, uint64_t key, kvant_relay_fn run, void *user,
               kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    bool seen = false;
    CUDA_TRY(cuda_use(d, diag));
    cuda_upload_close(d);
    CUDA_TRY(room_open(d, diag));
    for (int i = 0; i < n; i++)
        if (list[i].kind == KVANT_RELAY_OPS)
            CUDA_TRY(cuda_reserve_scratch(d, list[i].ops, list[i].n, diag));
    const int whole = key && !d->relay->pieces ? room_grow(d, list, n, diag) : 0;
    CUDA_TRY(whole);
    cuda_graph *g = whole ? cuda_graph_of(d, key, &seen) : NULL;
    if (seen)
        return relay_recorded(d, g, list, n, run, user, diag);
    return relay_pieces(d, list, n, run, user, diag);
}

void cuda_relay_close(cuda_device *d)
{
    if (!d->relay)
        return;
    if (d->relay->taken)
        cudaEventDestroy(d->relay->taken);
    cudaFreeHost(d->relay->pinned);
    free(d->relay);
    d->relay = NULL;
}

/* A system that pins no more memory copies as it can. */
void cuda_host_ready(kvant_device *base, void *host, size_t bytes)
{
    cudaSetDevice(((cuda_device *)base)->index);
    cudaHostRegister(host, bytes, cudaHostRegisterDefault);
    cudaGetLastError();
}

void cuda_host_release(kvant_device *base, void *host)
{
    cuda_device *d = (cuda_device *)base;
    cudaSetDevice(d->index);
    cudaStreamSynchronize(d->stream);
    cudaHostUnregister(host);
    cudaGetLastError();
}
