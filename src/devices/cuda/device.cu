/* device.cu: the device itself: probing, memory, copies, weights (from a file or made), lists of ops, CUDA graphs.
 * Owns the stream, the scratch block and the recorded graphs.  Kernels live in the other files, one per op family. */
#include <stdlib.h>
#include "base/pick.h"
#include "devices/cuda/cuda_dev.cuh"

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

static int use(const cuda_device *d, kvant_diag *diag)
{
    return cuda_check(diag, cudaSetDevice(d->index), "selecting the GPU");
}

/* ---- lists ---- */

#define CUDA_FORMAT(name, space, cls, codes) { #name, SPACE_##space },
static const struct {
    const char *name;
    int space;
} formats[] = {
#include "devices/cuda/cuda_formats.def"
};
#undef CUDA_FORMAT

#define CUDA_WTYPE(sym, name) name,
static const char *const wtypes[] = {
#include "devices/cuda/cuda_wtypes.def"
};
#undef CUDA_WTYPE

struct op_line {
    int id;
    const char *name;
    const cuda_op *op;
};
#define CUDA_OP(ID, name) { KVANT_OP_##ID, #name, &cuda_op_##name },
static const op_line op_lines[] = {
#include "devices/cuda/cuda_ops.def"
};
#undef CUDA_OP

static const op_line *find_op(int id)
{
    for (size_t i = 0; i < sizeof op_lines / sizeof op_lines[0]; i++)
        if (op_lines[i].id == id)
            return &op_lines[i];
    return NULL;
}

int cuda_format_find(const kvant_format *f)
{
    for (int i = 0; i < FMT_COUNT; i++)
        if (strcmp(formats[i].name, f->name) == 0)
            return i;
    return -1;
}

int cuda_format_space(int id)
{
    return formats[id].space;
}

int cuda_wtype_find(const kvant_wtype *t)
{
    for (int i = 0; i < WT_COUNT; i++)
        if (strcmp(wtypes[i], t->name) == 0)
            return i;
    return -1;
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

/* KVANT_CUDA_ATTN: hopper (the default; other GPUs and what it does not take run on the general kernel) or general. */
static int attn_kernels(bool *hopper, kvant_diag *diag)
{
    const char *attn = getenv("KVANT_CUDA_ATTN");
    *hopper = !attn || strcmp(attn, "general") != 0;
    if (attn && *hopper && strcmp(attn, "hopper") != 0)
        return cuda_fail(diag, KVANT_EINVAL, "KVANT_CUDA_ATTN: '%s' is unknown; wanted general or hopper", attn);
    return KVANT_OK;
}

static void drop_graphs(cuda_device *d)
{
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++) {
        if (d->graphs[i].exec)
            cudaGraphExecDestroy(d->graphs[i].exec);
        memset(&d->graphs[i], 0, sizeof d->graphs[i]);
    }
}

static void cuda_close(kvant_device *base)
{
    cuda_device *d = (cuda_device *)base;
    if (!d)
        return;
    cudaSetDevice(d->index);
    cudaStreamSynchronize(d->stream);
    drop_graphs(d);
    for (int i = 0; i < CUDA_MAX_PARAMS; i++)
        cudaFree(d->params[i].dev);
    cudaFree(d->scratch);
    cuda_blas_close(d);
    cudaFreeHost(d->pinned);
    cudaStreamDestroy(d->stream);
    cudaGetLastError();
    free(d);
}

static int cuda_open(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    cudaDeviceProp prop;
    bool hopper;
    CUDA_TRY(attn_kernels(&hopper, diag));
    CUDA_TRY(probe(cfg->index, &prop, diag));
    cuda_device *d = (cuda_device *)calloc(1, sizeof *d);
    if (!d)
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: out of memory");
    d->base.vt = &cuda_vt;
    d->index = cfg->index;
    d->n_sm = prop.multiProcessorCount;
    d->major = prop.major;
    d->minor = prop.minor;
    d->smem_max = prop.sharedMemPerBlockOptin;
    d->hopper_attn = hopper;
    snprintf(d->name, sizeof d->name, "%.127s", prop.name);
    int rc = use(d, diag);
    if (rc == KVANT_OK)
        rc = cuda_check(diag, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "making a stream");
    if (rc < 0) {
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
    const cuda_device *d = (const cuda_device *)base;
    size_t avail = 0, total = 0;
    int driver = 0;
    cudaSetDevice(d->index);
    cudaMemGetInfo(&avail, &total);
    cudaDriverGetVersion(&driver);
    snprintf(buf, (size_t)cap,
             "CUDA (%s, %d multiprocessors, compute capability %d.%d, %.0f GiB, driver for CUDA %d.%d)", d->name,
             d->n_sm, d->major, d->minor, (double)total / 1073741824.0, driver / 1000, driver % 1000 / 10);
}

/* ---- memory ---- */

static int cuda_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    void *p = NULL;
    CUDA_TRY(use(d, diag));
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

static void cuda_free(kvant_device *base, void *addr)
{
    cuda_device *d = (cuda_device *)base;
    cudaSetDevice(d->index);
    cudaStreamSynchronize(d->stream);
    cudaFree(addr);
    cudaGetLastError();
}

static int cuda_sync(kvant_device *base, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    CUDA_TRY(use(d, diag));
    CUDA_TRY(cuda_check(diag, cudaStreamSynchronize(d->stream), "waiting for the GPU"));
    d->pinned_used = 0;
    return KVANT_OK;
}

static int cuda_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    if (bytes == 0)
        return KVANT_OK;
    CUDA_TRY(use(d, diag));
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
    CUDA_TRY(use(d, diag));
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

int cuda_param(cuda_device *d, const void *param, size_t bytes, const float **out, kvant_diag *diag)
{
    cudaPointerAttributes at;
    *out = (const float *)param;
    if (!param)
        return KVANT_OK;
    for (int i = 0; i < CUDA_MAX_PARAMS; i++)
        if (d->params[i].host == param) {
            *out = d->params[i].dev;
            return KVANT_OK;
        }
    cudaError_t e = cudaPointerGetAttributes(&at, param);
    cudaGetLastError();
    if (e == cudaSuccess && (at.type == cudaMemoryTypeDevice || at.type == cudaMemoryTypeManaged))
        return KVANT_OK;
    for (int i = 0; i < CUDA_MAX_PARAMS; i++) {
        if (d->params[i].host)
            continue;
        CUDA_TRY(cuda_check(diag, cudaMalloc((void **)&d->params[i].dev, bytes), "allocating a format's parameter"));
        CUDA_TRY(cuda_check(diag, cudaMemcpy(d->params[i].dev, param, bytes, cudaMemcpyHostToDevice),
                            "copying a format's parameter"));
        d->params[i].host = param;
        *out = d->params[i].dev;
        return KVANT_OK;
    }
    return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: more than %d different format parameters",
                     CUDA_MAX_PARAMS);
}

int cuda_side_supports(cuda_device *d, const kvant_kv_side *s, int head_dim, kvant_diag *diag)
{
    (void)d;
    if (!s->fmt || cuda_format_find(s->fmt) < 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: cache format %s has no kernels here",
                         s->fmt ? s->fmt->name : "(none)");
    if (head_dim < 1 || head_dim > KVANT_MAX_HEAD_DIM)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: head_dim %d, wanted 1 to %d", head_dim,
                         KVANT_MAX_HEAD_DIM);
    const int id = cuda_format_find(s->fmt);
    const size_t align = id == FMT_f32 ? 4 : id == FMT_f8_e4m3 ? 1 : 2; /* of the loads in fmt.cuh */
    if ((s->page_bytes | s->head_bytes | s->row_bytes) % align)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s pages of %zu bytes, wanted a multiple of %zu",
                         s->fmt->name, s->page_bytes, align);
    return KVANT_OK;
}

int cuda_side(cuda_device *d, const kvant_kv_side *s, int head_dim, side_dev *out, kvant_diag *diag)
{
    const kvant_format *f = s->fmt;
    side_dev o;
    memset(&o, 0, sizeof o);
    CUDA_TRY(cuda_side_supports(d, s, head_dim, diag));
    o.fmt = cuda_format_find(f);
    o.space = cuda_format_space(o.fmt);
    o.pages = s->pages;
    o.tail = s->tail;
    o.page_bytes = s->page_bytes;
    o.head_bytes = s->head_bytes;
    o.row_bytes = s->row_bytes;
    o.group = f->group;
    o.group_bytes = f->group_bytes;
    o.group_sdim = f->group_sdim;
    o.d = head_dim;
    o.dp = (head_dim + f->group - 1) / f->group * f->group;
    o.sdim = o.dp / f->group * f->group_sdim;
    o.encoder = s->encoder;
    o.layout = s->layout;
    CUDA_TRY(
        cuda_param(d, s->param, o.space == SPACE_SKETCH ? 128 * 256 * sizeof(float) : sizeof(float), &o.param, diag));
    *out = o;
    return KVANT_OK;
}

/* ---- weights ---- */

static int weight_new(cuda_device *d, kvant_weight *w, cuda_weight **out, kvant_diag *diag)
{
    const char *name = w->name ? w->name : "weight";
    const int type = cuda_wtype_find(w->type);
    void *p = NULL;

    if (type < 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %.64s: weight type %s has no kernels here", name,
                         w->type->name);
    cuda_weight *c = (cuda_weight *)calloc(1, sizeof *c);
    if (!c)
        return cuda_fail(diag, KVANT_ENOMEM, "%.64s: out of memory", name);
    c->type = type;
    c->row_bytes = (size_t)(w->n_in / w->type->block) * (size_t)w->type->bytes;
    c->bytes = c->row_bytes * (size_t)w->n_out * (size_t)w->n_expert;
    int rc = cuda_alloc(&d->base, c->bytes, &p, diag);
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->data = (uint8_t *)p;
    *out = c;
    return KVANT_OK;
}

static void weight_drop(cuda_weight *c)
{
    cudaFree(c->data);
    cudaFree(c->scale);
    cudaGetLastError();
    free(c);
}

static int load_scale(cuda_device *d, const kvant_weight *w, cuda_weight *c, kvant_diag *diag)
{
    void *p = NULL;
    if (!w->scale)
        return KVANT_OK;
    CUDA_TRY(cuda_alloc(&d->base, (size_t)w->n_scale * sizeof(float), &p, diag));
    c->scale = (float *)p;
    return cuda_copy_in(&d->base, c->scale, w->scale, (size_t)w->n_scale * sizeof(float), diag);
}

static int cuda_weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    cuda_weight *c = NULL;
    (void)compute; /* one layout, the file's, serves both modes */
    CUDA_TRY(weight_new(d, w, &c, diag));
    int rc = cuda_copy_in(base, c->data, w->data, c->bytes, diag);
    if (rc == KVANT_OK)
        rc = load_scale(d, w, c, diag);
    if (rc == KVANT_OK)
        rc = cuda_sync(base, diag); /* the caller may drop its rows now */
    if (rc < 0) {
        weight_drop(c);
        return rc;
    }
    w->packed = c;
    w->data = NULL;
    return KVANT_OK;
}

/* Two bytes per turn, one where a block's size is odd. */
template <typename U>
static __global__ void make_kernel(U *to, uint64_t units, const U *table, uint32_t n, uint32_t per_block, uint64_t seed)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t u = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; u < units; u += step) {
        const uint64_t b = u / per_block;
        to[u] = table[(uint64_t)pick_block(seed, b, n) * per_block + (uint32_t)(u - b * per_block)];
    }
}

static int cuda_weight_make(kvant_device *base, kvant_weight *w, int compute, const void *table, int n, uint64_t seed,
                            kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    cuda_weight *c = NULL;
    void *t = NULL;
    const uint32_t block = (uint32_t)w->type->bytes;
    (void)compute;
    CUDA_TRY(weight_new(d, w, &c, diag));
    int rc = cuda_alloc(base, (size_t)n * block, &t, diag);
    if (rc == KVANT_OK)
        rc = cuda_copy_in(base, t, table, (size_t)n * block, diag);
    if (rc == KVANT_OK) {
        if (block % 2)
            make_kernel<<<4096, 256, 0, d->stream>>>(c->data, c->bytes, (const uint8_t *)t, (uint32_t)n, block, seed);
        else
            make_kernel<<<4096, 256, 0, d->stream>>>((uint16_t *)c->data, c->bytes / 2, (const uint16_t *)t,
                                                     (uint32_t)n, block / 2, seed);
        rc = cuda_check(diag, cudaGetLastError(), "making a weight");
    }
    if (rc == KVANT_OK)
        rc = cuda_sync(base, diag);
    cudaFree(t);
    if (rc < 0) {
        weight_drop(c);
        return rc;
    }
    w->packed = c;
    w->data = NULL;
    return KVANT_OK;
}

static void cuda_weight_free(kvant_device *base, kvant_weight *w)
{
    cuda_weight *c = (cuda_weight *)w->packed;
    if (!c)
        return;
    cuda_free(base, c->data);
    cuda_free(base, c->scale);
    free(c);
    w->packed = NULL;
}

/* ---- lists of ops ---- */

static int cuda_supports(kvant_device *base, const kvant_op *op, kvant_diag *diag)
{
    const op_line *line = find_op(op->id);
    if (!line)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: op %d has no kernel", op->id);
    return line->op->supports ? line->op->supports((cuda_device *)base, op->args, diag) : KVANT_OK;
}

static int reserve_scratch(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    size_t want = 0;
    for (int i = 0; i < n; i++) {
        const op_line *line = find_op(ops[i].id);
        if (!line)
            return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: op %d has no kernel", ops[i].id);
        size_t s = line->op->scratch ? line->op->scratch(d, ops[i].args) : 0;
        want = s > want ? s : want;
    }
    if (want <= d->scratch_bytes)
        return KVANT_OK;
    void *p = NULL;
    cudaStreamSynchronize(d->stream);
    drop_graphs(d);
    cudaFree(d->scratch);
    d->scratch = NULL;
    d->scratch_bytes = 0;
    want = (want + want / 4 + 0xfffff) & ~(size_t)0xfffff;
    CUDA_TRY(cuda_alloc(&d->base, want, &p, diag));
    d->scratch = (unsigned char *)p;
    d->scratch_bytes = want;
    d->generation++;
    return KVANT_OK;
}

static int launch_list(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    for (int i = 0, took; i < n; i += took) {
        const op_line *line = find_op(ops[i].id);
        took = line->op->fuse ? line->op->fuse(d, ops + i, n - i) : 0;
        if (took == 0) {
            CUDA_TRY(line->op->run(d, ops[i].args, diag));
            took = 1;
        }
        cudaError_t e = cudaGetLastError();
        if (e != cudaSuccess)
            return cuda_fail(diag, KVANT_EDEVICE, "device cuda: op %s: %s", line->name, cudaGetErrorString(e));
    }
    return KVANT_OK;
}

static cuda_graph *graph_slot(cuda_device *d, uint64_t key)
{
    cuda_graph *old = &d->graphs[0];
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++) {
        if (d->graphs[i].key == key)
            return &d->graphs[i];
        if (d->graphs[i].used < old->used)
            old = &d->graphs[i];
    }
    if (old->exec)
        cudaGraphExecDestroy(old->exec);
    memset(old, 0, sizeof *old);
    return old;
}

/* Records the list and keeps it; the list then runs as one launch.  The first run of a key is never recorded: it loads
 * the kernels and grows the scratch block, which a recording must not do. */
static int record(cuda_device *d, cuda_graph *g, const kvant_op *ops, int n, kvant_diag *diag)
{
    cudaGraph_t graph = NULL;
    CUDA_TRY(cuda_check(diag, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "recording"));
    int rc = launch_list(d, ops, n, diag);
    cudaError_t e = cudaStreamEndCapture(d->stream, &graph);
    if (rc == KVANT_OK)
        rc = cuda_check(diag, e, "recording");
    if (rc == KVANT_OK)
        rc = cuda_check(diag, cudaGraphInstantiate(&g->exec, graph, 0), "preparing a recorded step");
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    return rc;
}

static int cuda_submit(kvant_device *base, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    if (n <= 0)
        return KVANT_OK;
    CUDA_TRY(use(d, diag));
    CUDA_TRY(reserve_scratch(d, ops, n, diag));
    if (key == 0)
        return launch_list(d, ops, n, diag);
    cuda_graph *g = graph_slot(d, key);
    g->used = ++d->clock;
    if (g->key != key) {
        g->key = key;
        return launch_list(d, ops, n, diag);
    }
    if (!g->exec)
        CUDA_TRY(record(d, g, ops, n, diag));
    return cuda_check(diag, cudaGraphLaunch(g->exec, d->stream), "running a recorded step");
}

/* ---- timing ---- */

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
    CUDA_TRY(reserve_scratch(d, ops, n, diag));
    CUDA_TRY(launch_list(d, ops, n, diag)); /* loads the kernels, which a recording must not do */
    return record(d, &w->program, ops, n, diag);
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

static int time_once(cuda_device *d, stopwatch *w, int i, double *us, kvant_diag *diag)
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

static int cuda_time(kvant_device *base, const kvant_op *ops, int n, int reps, double *us, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    stopwatch w;
    CUDA_TRY(use(d, diag));
    int rc = stopwatch_open(d, ops, n, &w, diag);
    for (int i = 0; rc == KVANT_OK && i < reps; i++)
        rc = time_once(d, &w, i, &us[i], diag);
    stopwatch_close(d, &w);
    return rc;
}

const kvant_device_vt cuda_vt = {
    "cuda",        cuda_open,    cuda_close,    cuda_describe,    cuda_alloc,
    cuda_free,     cuda_copy_in, cuda_copy_out, cuda_weight_load, cuda_weight_free,
    cuda_supports, cuda_submit,  cuda_sync,     cuda_weight_make, cuda_time,
    cuda_kv_layout, cuda_page_read, cuda_page_write,
};

extern "C" __attribute__((visibility("default"))) const kvant_device_vt *kvant_device_v1(const kvant_cuda_host *host)
{
    const kvant_cuda_host self = kvant_cuda_self();
    return host && memcmp(host, &self, sizeof self) == 0 ? &cuda_vt : NULL;
}
