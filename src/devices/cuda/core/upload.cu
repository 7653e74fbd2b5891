/* upload.cu: large copies to the GPU.  The driver copies pageable memory with one thread, and a mapped file's pages are
 * mapped by whoever touches them first: 1.4 GB/s.  Here several threads each fill blocks of pinned memory of their own
 * and queue their copies, so that reading, mapping and the link are at work together. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include "devices/cuda/core/device.cuh"

enum { UPLOAD_BLOCKS = 2, UPLOAD_THREADS = 8 };

/* One thread's blocks; the event says that the last copy out of a block is over. */
struct cuda_uploader {
    int n_threads;
    unsigned char *pinned;
    cudaEvent_t over[UPLOAD_THREADS][UPLOAD_BLOCKS];
};

namespace {

struct upload {
    const cuda_device *d;
    cuda_uploader *by;
    cudaStream_t stream;
    unsigned char *base;
    const copy_piece *list;
    int n, next, lane;                     /* the last two are taken one by one */
    cudaError_t error;                     /* the first */
};

void fail(upload *u, cudaError_t e)
{
    cudaError_t none = cudaSuccess;
    if (e != cudaSuccess)
        __atomic_compare_exchange_n(&u->error, &none, e, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

cudaError_t copy_block(const upload *u, const copy_piece *piece, unsigned char *through, cudaEvent_t over)
{
    if (piece->bytes > CUDA_UPLOAD_BLOCK)
        return cudaErrorInvalidValue;      /* it would end in another thread's block */
    cudaError_t e = cudaEventSynchronize(over);
    if (e != cudaSuccess)
        return e;
    memcpy(through, piece->from, piece->bytes);
    e = cudaMemcpyAsync(u->base + (uintptr_t)piece->to, through, piece->bytes, cudaMemcpyHostToDevice, u->stream);
    return e == cudaSuccess ? cudaEventRecord(over, u->stream) : e;
}

void *lane(void *user)
{
    upload *u = (upload *)user;
    cuda_uploader *p = u->by;
    const int me = __atomic_fetch_add(&u->lane, 1, __ATOMIC_RELAXED);
    fail(u, cudaSetDevice(u->d->index));
    for (int turn = 0;; turn = (turn + 1) % UPLOAD_BLOCKS) {
        const int i = __atomic_fetch_add(&u->next, 1, __ATOMIC_RELAXED);
        if (i >= u->n || __atomic_load_n(&u->error, __ATOMIC_RELAXED) != cudaSuccess)
            return NULL;
        unsigned char *through = p->pinned + (size_t)(me * UPLOAD_BLOCKS + turn) * CUDA_UPLOAD_BLOCK;
        fail(u, copy_block(u, &u->list[i], through, p->over[me][turn]));
    }
}

int cpus_of_this_process(void)
{
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < UPLOAD_THREADS ? n : (int)UPLOAD_THREADS;
}

bool uploader_fill(cuda_uploader *p)
{
    p->n_threads = cpus_of_this_process();
    if (cudaMallocHost((void **)&p->pinned, (size_t)p->n_threads * UPLOAD_BLOCKS * CUDA_UPLOAD_BLOCK) != cudaSuccess)
        return false;
    for (int i = 0; i < p->n_threads; i++)
        for (int k = 0; k < UPLOAD_BLOCKS; k++)
            if (cudaEventCreateWithFlags(&p->over[i][k], cudaEventDisableTiming) != cudaSuccess)
                return false;
    return true;
}

} // namespace

void cuda_uploader_free(cuda_uploader *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_threads; i++)
        for (int k = 0; k < UPLOAD_BLOCKS; k++)
            if (p->over[i][k])
                cudaEventDestroy(p->over[i][k]);
    cudaFreeHost(p->pinned);
    cudaGetLastError();
    free(p);
}

void cuda_upload_close(cuda_device *d)
{
    if (!d->uploader)
        return;
    cudaStreamSynchronize(d->stream);
    cuda_uploader_free(d->uploader);
    d->uploader = NULL;
}

/* Pinned memory is scarce on some systems: without it the driver copies (copy_by_driver). */
static bool uploader_open(cuda_uploader **p)
{
    if (*p)
        return true;
    *p = (cuda_uploader *)calloc(1, sizeof **p);
    if (*p && uploader_fill(*p))
        return true;
    cuda_uploader_free(*p);
    *p = NULL;
    return false;
}

/* The caller may change its rows afterwards; of pinned ones the driver reads until the stream is there. */
static cudaError_t copy_by_driver(const upload *u)
{
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < u->n && e == cudaSuccess; i++)
        e = cudaMemcpyAsync(u->base + (uintptr_t)u->list[i].to, u->list[i].from, u->list[i].bytes,
                            cudaMemcpyHostToDevice, u->stream);
    return e == cudaSuccess ? cudaStreamSynchronize(u->stream) : e;
}

int cuda_upload_pieces(cuda_device *d, cuda_uploader **p, cudaStream_t stream, void *base, const copy_piece *list,
                       int n, kvant_diag *diag)
{
    pthread_t thread[UPLOAD_THREADS];
    int threads = 0;
    const bool own = uploader_open(p);
    upload u = { d, *p, stream, (unsigned char *)base, list, n, 0, 0, cudaSuccess };
    if (!own)
        return cuda_check(diag, copy_by_driver(&u), "copying to the GPU");
    while (threads < u.by->n_threads - 1 && threads < n - 1 && pthread_create(&thread[threads], NULL, lane, &u) == 0)
        threads++;
    lane(&u);
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
    return cuda_check(diag, u.error, "copying to the GPU");
}

int cuda_upload(cuda_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    const size_t block = CUDA_UPLOAD_BLOCK, n = (bytes + block - 1) / block;
    if (bytes < 2 * block)
        return cuda_copy_in(&d->base, dst, src, bytes, diag);
    copy_piece *list = (copy_piece *)calloc(n, sizeof *list);
    if (!list)
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: out of memory");
    for (size_t i = 0; i < n; i++)
        list[i] = { (void *)(i * block), (const char *)src + i * block, i + 1 < n ? block : bytes - i * block };
    const int rc = cuda_upload_pieces(d, &d->uploader, d->stream, dst, list, (int)n, diag);
    free(list);
    return rc;
}
