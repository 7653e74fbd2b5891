/* device.cu: the device object: probing, open and close, memory, copies, errors, the vtable.  Weights, lists of ops and
 * timing are in the files that device.cuh names; kernels in the other files, one per op family. */
#include <stdlib.h>
#include "devices/cuda/core/device.cuh"

extern const kvant_device_vt cuda_vt;

int cuda_fail(kvant_diag *diag, int code, const char *text, ...)
{
    va_list ap;
    if (diag) {
        va_start(ap, text);
        vsnprintf(diag->text, sizeof diag->text, text, ap);
        va_end(ap);
    }
    return code;
}

int cuda_check(kvant_diag *diag, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return KVANT_OK;
    cudaGetLastError(); /* an error of this call is not the next one's; a lost device stays lost */
    int code = e == cudaErrorMemoryAllocation ? KVANT_ENOMEM : KVANT_EDEVICE;
    return cuda_fail(diag, code, "device cuda: %s: %s", what, cudaGetErrorString(e));
}

bool cuda_launches_block(void)
{
    const char *on = getenv("CUDA_LAUNCH_BLOCKING");
    return on && *on && strcmp(on, "0") != 0;
}

int cuda_use(const cuda_device *d, kvant_diag *diag)
{
    return cuda_check(diag, cudaSetDevice(d->index), "selecting the GPU");
}

/* ---- open, close ---- */

static int probe(int index, cudaDeviceProp *prop, kvant_diag *diag)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    cudaGetLastError();
    if (e == cudaErrorInsufficientDriver)
        return cuda_fail(diag, KVANT_EDEVICE, "device cuda: no NVIDIA driver, or one older than CUDA %d.%d needs",
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (e != cudaSuccess || n == 0)
        return cuda_fail(diag, KVANT_EDEVICE, "device cuda: no GPU (%s)",
                         e == cudaSuccess ? "the driver reports none" : cudaGetErrorString(e));
    if (index >= n)
        return cuda_fail(diag, KVANT_EDEVICE, "device cuda:%d: this machine has %d GPU%s, numbered from 0", index, n,
                         n == 1 ? "" : "s");
    CUDA_TRY(cuda_check(diag, cudaGetDeviceProperties(prop, index), "reading the GPU's properties"));
    if (prop->major < 8)
        return cuda_fail(diag, KVANT_EDEVICE, "device cuda:%d: %.60s has compute capability %d.%d, wanted 8.0 or more",
                         index, prop->name, prop->major, prop->minor);
    return KVANT_OK;
}

/* KVANT_CUDA_ATTN: fast (the default; what its kernels do not take runs on the general one) or general. */
static int attn_kernels(bool *fast, kvant_diag *diag)
{
    const char *attn = getenv("KVANT_CUDA_ATTN");
    *fast = !attn || strcmp(attn, "general") != 0;
    if (attn && *fast && strcmp(attn, "fast") != 0)
        return cuda_fail(diag, KVANT_EINVAL, "KVANT_CUDA_ATTN: '%s' is unknown; wanted fast or general", attn);
    return KVANT_OK;
}

static void cuda_close(kvant_device *base)
{
    cuda_device *d = (cuda_device *)base;
    if (!d)
        return;
    cudaSetDevice(d->index);
    cudaStreamSynchronize(d->stream);
    cuda_upload_close(d);
    cuda_drop_graphs(d);
    cuda_relay_close(d);
    cuda_meet_close(d);
    cuda_slots_close(d);
    for (int i = 0; i < CUDA_MAX_PARAMS; i++)
        cudaFree(d->params[i].dev);
    cudaFree(d->scratch);
    cudaFree(d->draws);
    cuda_blas_close(d);
    cudaFreeHost(d->pinned);
    if (!d->stream_theirs)
        cudaStreamDestroy(d->stream);
    cudaGetLastError();
    free(d);
}

/* The caller's stream, or one that waits for nobody else's. */
static int take_stream(cuda_device *d, void *theirs, kvant_diag *diag)
{
    d->stream = (cudaStream_t)theirs;
    d->stream_theirs = theirs != NULL;
    if (theirs)
        return cuda_check(diag, cudaStreamQuery(d->stream) == cudaErrorNotReady ? cudaSuccess : cudaGetLastError(),
                          "taking the caller's stream");
    return cuda_check(diag, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "making a stream");
}

static int cuda_open(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    cudaDeviceProp prop;
    cuda_arch arch;
    bool fast;
    CUDA_TRY(attn_kernels(&fast, diag));
    CUDA_TRY(probe(cfg->index, &prop, diag));
    CUDA_TRY(cuda_arch_of(&prop, &arch, diag));
    cuda_device *d = (cuda_device *)calloc(1, sizeof *d);
    if (!d)
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: out of memory");
    d->base.vt = &cuda_vt;
    d->index = cfg->index;
    d->n_sm = prop.multiProcessorCount;
    d->arch = arch;
    d->smem_max = arch.smem_max;
    d->smem_first = prop.reservedSharedMemPerBlock;
    d->fast_attn = fast;
    snprintf(d->name, sizeof d->name, "%.127s", prop.name);
    int rc = cuda_use(d, diag);
    if (rc == KVANT_OK)
        rc = cuda_load_kernels(diag);
    if (rc == KVANT_OK)
        rc = take_stream(d, cfg->stream, diag);
    if (rc == KVANT_OK)
        rc = cuda_check(diag, cudaMalloc((void **)&d->draws, sizeof *d->draws), "allocating memory");
    if (rc == KVANT_OK)
        rc = cuda_check(diag, cudaMemsetAsync(d->draws, 0, sizeof *d->draws, d->stream), "clearing memory");
    if (rc < 0) {
        cudaFree(d->draws);
        if (d->stream && !d->stream_theirs)
            cudaStreamDestroy(d->stream);
        free(d);
        return rc;
    }
    if (cudaMallocHost((void **)&d->pinned, CUDA_PINNED) != cudaSuccess) {
        cudaGetLastError();
        d->pinned = NULL; /* copies then go the slow way */
    }
    cuda_blas_open(d);
    *out = &d->base;
    return KVANT_OK;
}

static void cuda_describe(const kvant_device *base, char *buf, int cap)
{
#ifdef KVANT_CUDA_CHECK
    const char *quick = ", kernels slow: built with KVANT_CUDA_CHECK";
#else
    const char *quick = "";
#endif
    const cuda_device *d = (const cuda_device *)base;
    size_t avail = 0, total = 0;
    int driver = 0;
    cudaSetDevice(d->index);
    cudaMemGetInfo(&avail, &total);
    cudaDriverGetVersion(&driver);
    snprintf(buf, (size_t)cap,
             "CUDA (%s, %d multiprocessors, compute capability %d.%d%s, %.0f GiB, driver for CUDA %d.%d%s)", d->name,
             d->n_sm, d->arch.major, d->arch.minor, getenv("KVANT_CUDA_MASK") ? " by KVANT_CUDA_MASK" : "",
             (double)total / 1073741824.0, driver / 1000, driver % 1000 / 10, quick);
}

static int64_t cuda_memory(const kvant_device *base)
{
    size_t avail = 0, total = 0;
    cudaSetDevice(((const cuda_device *)base)->index);
    const cudaError_t e = cudaMemGetInfo(&avail, &total);
    cudaGetLastError();
    return e == cudaSuccess ? (int64_t)avail : -1;
}

/* ---- memory ---- */

int cuda_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    void *p = NULL;
    CUDA_TRY(cuda_use(d, diag));
    cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        size_t avail = 0, total = 0;
        cudaGetLastError();
        cudaMemGetInfo(&avail, &total);
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: %.1f MiB wanted, %.1f of %.1f MiB free",
                         (double)bytes / 1048576, (double)avail / 1048576, (double)total / 1048576);
    }
    CUDA_TRY(cuda_check(diag, e, "allocating memory"));
    *addr = p;
    return KVANT_OK;
}

void cuda_free(kvant_device *base, void *addr)
{
    cuda_device *d = (cuda_device *)base;
    cudaSetDevice(d->index);
    cudaStreamSynchronize(d->stream);
    cuda_param_drop(d, addr);
    cudaFree(addr);
    cudaGetLastError();
}

/* Memory of this GPU, or managed memory, that the caller or another library allocated. */
static int cuda_adopt(kvant_device *base, void *memory, size_t bytes, void **addr, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    cudaPointerAttributes at;
    (void)bytes;
    CUDA_TRY(cuda_use(d, diag));
    CUDA_TRY(cuda_check(diag, cudaPointerGetAttributes(&at, memory), "asking whose memory it is"));
    if (at.type != cudaMemoryTypeManaged && (at.type != cudaMemoryTypeDevice || at.device != d->index))
        return cuda_fail(diag, KVANT_EINVAL, "device cuda:%d: %p is no memory of this GPU (kind %d, GPU %d)", d->index,
                         memory, (int)at.type, at.device);
    if ((uintptr_t)memory % 16)
        return cuda_fail(diag, KVANT_EINVAL, "device cuda:%d: %p, wanted memory on a boundary of 16 bytes", d->index,
                         memory);
    *addr = memory;
    return KVANT_OK;
}

int cuda_sync(kvant_device *base, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    CUDA_TRY(cuda_use(d, diag));
    CUDA_TRY(cuda_check(diag, cudaStreamSynchronize(d->stream), "waiting for the GPU"));
    d->pinned_used = 0;
    return KVANT_OK;
}

int cuda_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    if (bytes == 0)
        return KVANT_OK;
    if (cuda_param_holds(d, dst, bytes))
        return cuda_fail(diag, KVANT_EINVAL, "device cuda: a loaded parameter does not change; wanted a new one");
    CUDA_TRY(cuda_use(d, diag));
    if (d->pinned && bytes <= CUDA_PINNED / 4) { /* the caller may change src at once, and nobody waits */
        if (bytes > CUDA_PINNED - d->pinned_used)
            CUDA_TRY(cuda_sync(base, diag));
        memcpy(d->pinned + d->pinned_used, src, bytes);
        src = d->pinned + d->pinned_used;
        d->pinned_used += (bytes + 63) & ~(size_t)63;
    }
    return cuda_check(diag, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, d->stream), "copying to the GPU");
}

static int cuda_copy_out(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    if (bytes == 0)
        return KVANT_OK;
    CUDA_TRY(cuda_use(d, diag));
    const int staged = d->pinned && bytes <= CUDA_PINNED / 4;
    if (staged && bytes > CUDA_PINNED - d->pinned_used)
        CUDA_TRY(cuda_sync(base, diag));
    void *to = staged ? d->pinned + d->pinned_used : dst; /* no copy in flight uses what lies behind pinned_used */
    CUDA_TRY(
        cuda_check(diag, cudaMemcpyAsync(to, src, bytes, cudaMemcpyDeviceToHost, d->stream), "copying from the GPU"));
    CUDA_TRY(cuda_sync(base, diag));
    if (staged)
        memcpy(dst, to, bytes);
    return KVANT_OK;
}

const kvant_device_vt cuda_vt = {
    "cuda",        cuda_open,    cuda_close,    cuda_describe,    cuda_alloc,
    cuda_free,     cuda_copy_in, cuda_copy_out, cuda_weight_load, cuda_weight_free,
    cuda_supports, cuda_submit,  cuda_sync,     cuda_weight_make, cuda_time,  cuda_profile,
    cuda_kv_layout, cuda_page_read, cuda_page_write, cuda_param_load,
    cuda_replayed,
    0, /* on_caller */
    0, 0, /* pass_many, pass_experts: kvant_device_cuda's */
    cuda_memory,
    NULL, /* is_software */
    cuda_adopt,
    1, /* takes_stream */
    cuda_relay,
    NULL, /* stay_awake */
    cuda_host_ready,
    cuda_host_release,
    cuda_meet_open,
    cuda_meet,
    cuda_meet_list,
    &cuda_slots,
    1, /* streams */
};

extern "C" __attribute__((visibility("default"))) const kvant_device_vt *kvant_device_v1(const kvant_cuda_host *host)
{
    const kvant_cuda_host self = kvant_cuda_self();
    return host && memcmp(host, &self, sizeof self) == 0 ? &cuda_vt : NULL;
}
