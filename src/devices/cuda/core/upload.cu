/* upload.cu: large copies to the GPU.  The driver copies pageable memory with one thread, and a mapped file's pages are
 * mapped by whoever touches them first: 1.4 GB/s.  Here several threads each fill blocks of pinned memory of their own
 * and queue their copies, so that reading, mapping and the link are at work together. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include "devices/cuda/core/device.cuh"

enum { UPLOAD_BLOCK = 4 << 20, UPLOAD_BLOCKS = 2, UPLOAD_THREADS = 8 };

/* One thread's blocks; the event says that the last copy out of a block is over. */
struct cuda_uploader {
    int n_threads;
    unsigned char *pinned;
    cudaEvent_t over[UPLOAD_THREADS][UPLOAD_BLOCKS];
};

namespace {

struct upload {
    cuda_device *d;
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
    int next, lane;                        /* both are taken one by one */
    cudaError_t error;                     /* the first */
};

void fail(upload *u, cudaError_t e)
{
    cudaError_t none = cudaSuccess;
    if (e != cudaSuccess)
        __atomic_compare_exchange_n(&u->error, &none, e, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

cudaError_t copy_block(const upload *u, int block, unsigned char *through, cudaEvent_t over)
{
    const size_t at = (size_t)block * UPLOAD_BLOCK, left = u->bytes - at;
    const size_t n = left < UPLOAD_BLOCK ? left : (size_t)UPLOAD_BLOCK;
    cudaError_t e = cudaEventSynchronize(over);
    if (e != cudaSuccess)
        return e;
    memcpy(through, u->src + at, n);
    e = cudaMemcpyAsync(u->dst + at, through, n, cudaMemcpyHostToDevice, u->d->stream);
    return e == cudaSuccess ? cudaEventRecord(over, u->d->stream) : e;
}

void *lane(void *user)
{
    upload *u = (upload *)user;
    cuda_uploader *p = u->d->uploader;
    const int me = __atomic_fetch_add(&u->lane, 1, __ATOMIC_RELAXED);
    const int n = (int)((u->bytes + UPLOAD_BLOCK - 1) / UPLOAD_BLOCK);
    fail(u, cudaSetDevice(u->d->index));
    for (int turn = 0;; turn = (turn + 1) % UPLOAD_BLOCKS) {
        const int block = __atomic_fetch_add(&u->next, 1, __ATOMIC_RELAXED);
        if (block >= n || __atomic_load_n(&u->error, __ATOMIC_RELAXED) != cudaSuccess)
            return NULL;
        unsigned char *through = p->pinned + (size_t)(me * UPLOAD_BLOCKS + turn) * UPLOAD_BLOCK;
        fail(u, copy_block(u, block, through, p->over[me][turn]));
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
    if (cudaMallocHost((void **)&p->pinned, (size_t)p->n_threads * UPLOAD_BLOCKS * UPLOAD_BLOCK) != cudaSuccess)
        return false;
    for (int i = 0; i < p->n_threads; i++)
        for (int k = 0; k < UPLOAD_BLOCKS; k++)
            if (cudaEventCreateWithFlags(&p->over[i][k], cudaEventDisableTiming) != cudaSuccess)
                return false;
    return true;
}

} // namespace

void cuda_upload_close(cuda_device *d)
{
    cuda_uploader *p = d->uploader;
    if (!p)
        return;
    cudaStreamSynchronize(d->stream);
    for (int i = 0; i < p->n_threads; i++)
        for (int k = 0; k < UPLOAD_BLOCKS; k++)
            if (p->over[i][k])
                cudaEventDestroy(p->over[i][k]);
    cudaFreeHost(p->pinned);
    cudaGetLastError();
    free(p);
    d->uploader = NULL;
}

/* Pinned memory is scarce on some systems: without it the driver copies. */
static bool upload_open(cuda_device *d)
{
    if (d->uploader)
        return true;
    d->uploader = (cuda_uploader *)calloc(1, sizeof *d->uploader);
    if (d->uploader && uploader_fill(d->uploader))
        return true;
    cuda_upload_close(d);
    return false;
}

int cuda_upload(cuda_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    upload u = { d, (unsigned char *)dst, (const unsigned char *)src, bytes, 0, 0, cudaSuccess };
    pthread_t thread[UPLOAD_THREADS];
    int n = 0;
    if (bytes < 2 * (size_t)UPLOAD_BLOCK || !upload_open(d))
        return cuda_copy_in(&d->base, dst, src, bytes, diag);
    while (n < d->uploader->n_threads - 1 && pthread_create(&thread[n], NULL, lane, &u) == 0)
        n++;
    lane(&u);
    while (n > 0)
        pthread_join(thread[--n], NULL);
    return cuda_check(diag, u.error, "copying to the GPU");
}
