/* stopwatch.cu: the device's own clock, for `bench-kernels`: a list as one recorded program, caches cold. */
#include "devices/cuda/core/device.cuh"

enum { FLUSH = 256 << 20 }; /* bytes: several times the largest L2 */

typedef struct stopwatch {
    unsigned char *flush, *copy; /* memory to pass over; two halves to copy between */
    cudaEvent_t from, to;
    cuda_graph program;
} stopwatch;

/* Reads all of it: caches then hold lines that need not go back to memory.  Writes nothing that is read (the sum is
 * never that number, as far as the compiler knows). */
static __global__ void pass_over_kernel(const uint4 *from, size_t n, uint32_t *never)
{
    uint32_t sum = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        sum += from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
    if (sum == 0x9e3779b9u)
        *never = sum;
}

static int stopwatch_open(cuda_device *d, const kvant_op *ops, int n, stopwatch *w, kvant_diag *diag)
{
    memset(w, 0, sizeof *w);
    CUDA_TRY(cuda_check(diag, cudaMalloc((void **)&w->flush, FLUSH), "memory for timing"));
    CUDA_TRY(cuda_check(diag, cudaMemsetAsync(w->flush, 1, FLUSH, d->stream), "memory for timing"));
    CUDA_TRY(cuda_check(diag, cudaEventCreate(&w->from), "making an event"));
    CUDA_TRY(cuda_check(diag, cudaEventCreate(&w->to), "making an event"));
    if (n == 0)
        return cuda_check(diag, cudaMalloc((void **)&w->copy, 2 * (size_t)KVANT_TIME_COPY), "memory for timing");
    CUDA_TRY(cuda_reserve_scratch(d, ops, n, diag));
    CUDA_TRY(cuda_launch_list(d, ops, n, diag)); /* loads the kernels, which a recording must not do */
    return cuda_record(d, &w->program, ops, n, diag);
}

static void stopwatch_close(cuda_device *d, stopwatch *w)
{
    cudaStreamSynchronize(d->stream);
    if (w->program.exec)
        cudaGraphExecDestroy(w->program.exec);
    if (w->from)
        cudaEventDestroy(w->from);
    if (w->to)
        cudaEventDestroy(w->to);
    cudaFree(w->flush);
    cudaFree(w->copy);
    cudaGetLastError();
}

static int time_once(cuda_device *d, stopwatch *w, double *us, kvant_diag *diag)
{
    float ms = 0.0f;
    pass_over_kernel<<<8 * d->n_sm, 256, 0, d->stream>>>((const uint4 *)w->flush, FLUSH / 16, (uint32_t *)w->flush);
    CUDA_TRY(cuda_check(diag, cudaGetLastError(), "passing over memory"));
    CUDA_TRY(cuda_check(diag, cudaEventRecord(w->from, d->stream), "timing"));
    if (w->program.exec)
        CUDA_TRY(cuda_check(diag, cudaGraphLaunch(w->program.exec, d->stream), "running a recorded step"));
    else
        CUDA_TRY(cuda_check(
            diag,
            cudaMemcpyAsync(w->copy, w->copy + KVANT_TIME_COPY, KVANT_TIME_COPY, cudaMemcpyDeviceToDevice, d->stream),
            "copying"));
    CUDA_TRY(cuda_check(diag, cudaEventRecord(w->to, d->stream), "timing"));
    CUDA_TRY(cuda_check(diag, cudaEventSynchronize(w->to), "waiting for the GPU"));
    CUDA_TRY(cuda_check(diag, cudaEventElapsedTime(&ms, w->from, w->to), "timing"));
    *us = 1e3 * (double)ms;
    return KVANT_OK;
}

int cuda_time(kvant_device *base, const kvant_op *ops, int n, int reps, double *us, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    stopwatch w;
    CUDA_TRY(cuda_use(d, diag));
    int rc = stopwatch_open(d, ops, n, &w, diag);
    for (int i = 0; rc == KVANT_OK && i < reps; i++)
        rc = time_once(d, &w, &us[i], diag);
    stopwatch_close(d, &w);
    return rc;
}
