/* stopwatch.cu: the device's own clock.  `bench-kernels`: a list as one recorded program, caches cold.  `bench
 * --profile`: a list as one recorded program that has an event behind every launch. */
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

/* ---- microseconds by op ---- */

/* Events around a list's launches: [0] before the first. */
typedef struct marks {
    cudaEvent_t *at;
    int n;
} marks;

static int marks_open(marks *m, int n, kvant_diag *diag)
{
    m->at = (cudaEvent_t *)calloc((size_t)n, sizeof *m->at);
    if (!m->at)
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: no memory for %d events", n);
    for (; m->n < n; m->n++)
        CUDA_TRY(cuda_check(diag, cudaEventCreate(&m->at[m->n]), "making an event"));
    return KVANT_OK;
}

static void marks_close(marks *m)
{
    for (int i = 0; i < m->n; i++)
        cudaEventDestroy(m->at[i]);
    free(m->at);
}

/* A record that belongs to the recorded program: each run of it sets the event anew. */
static int mark(cuda_device *d, cudaEvent_t event, kvant_diag *diag)
{
    return cuda_check(diag, cudaEventRecordWithFlags(event, d->stream, cudaEventRecordExternal), "timing");
}

/* us: 0 where a launch begins, -1 for the other ops that it does. */
static int launch_marked(cuda_device *d, const kvant_op *ops, int n, const marks *m, double *us, kvant_diag *diag)
{
    int done = 0, id = 0;
    CUDA_TRY(mark(d, m->at[done++], diag));
    for (int i = 0; i < n;) {
        const int took = cuda_launch_next(d, ops + i, n - i, &id, diag);
        if (took < 0)
            return took;
        for (int j = 0; j < took; j++)
            us[i + j] = j ? -1.0 : 0.0;
        i += took;
        CUDA_TRY(mark(d, m->at[done++], diag));
    }
    return KVANT_OK;
}

static int record_marked(cuda_device *d, const kvant_op *ops, int n, const marks *m, double *us, cudaGraphExec_t *exec,
                         kvant_diag *diag)
{
    cudaGraph_t graph = NULL;
    CUDA_TRY(cuda_check(diag, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "recording"));
    int rc = launch_marked(d, ops, n, m, us, diag);
    const cudaError_t e = cudaStreamEndCapture(d->stream, &graph);
    if (rc == KVANT_OK)
        rc = cuda_check(diag, e, "recording");
    if (rc == KVANT_OK)
        rc = cuda_check(diag, cudaGraphInstantiate(exec, graph, 0), "preparing a recorded step");
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    return rc;
}

static int run_marked(cuda_device *d, cudaGraphExec_t exec, const marks *m, int n, double *us, kvant_diag *diag)
{
    float ms = 0.0f;
    CUDA_TRY(cuda_check(diag, cudaGraphLaunch(exec, d->stream), "running a recorded step"));
    CUDA_TRY(cuda_check(diag, cudaStreamSynchronize(d->stream), "waiting for the GPU"));
    for (int i = 0, k = 0; i < n; i++) {
        if (us[i] < 0.0)
            continue;
        CUDA_TRY(cuda_check(diag, cudaEventElapsedTime(&ms, m->at[k], m->at[k + 1]), "timing"));
        us[i] = 1e3 * (double)ms;
        k++;
    }
    return KVANT_OK;
}

/* Kernels are loaded when the device opens (kernels.cu), so that the first run of a list may be a recording. */
int cuda_profile(kvant_device *base, const kvant_op *ops, int n, double *us, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    cudaGraphExec_t exec = NULL;
    marks m = { NULL, 0 };
    if (n <= 0)
        return KVANT_OK;
    CUDA_TRY(cuda_use(d, diag));
    cuda_upload_close(d);
    CUDA_TRY(cuda_reserve_scratch(d, ops, n, diag));
    int rc = marks_open(&m, n + 1, diag);
    if (rc == KVANT_OK)
        rc = record_marked(d, ops, n, &m, us, &exec, diag);
    if (rc == KVANT_OK)
        rc = run_marked(d, exec, &m, n, us, diag);
    if (exec)
        cudaGraphExecDestroy(exec);
    marks_close(&m);
    return rc;
}
