/* lists.cu: lists of ops: what is supported, the scratch block they need, running them, fused where the table of fused
 * forms says so, or as a recorded graph.  A list that comes back under its key is one launch. */
#include "devices/cuda/core/device.cuh"

struct op_line {
    int id;
    const char *name;
    const cuda_op *op;
};
#define KVANT_OP(ID, name, args, tol, fused, text) { KVANT_OP_##ID, #name, &cuda_op_##name },
static const op_line op_lines[] = {
#include "kvant/ops.def"
};
#undef KVANT_OP

static const op_line *find_op(int id)
{
    for (size_t i = 0; i < sizeof op_lines / sizeof op_lines[0]; i++)
        if (op_lines[i].id == id)
            return &op_lines[i];
    return NULL;
}

struct form_line {
    int id;
    const cuda_form *form;
};
#define FUSED(ID, name, on, ins, links, where) CUDA_HAS_##on({ FUSED_##ID, &cuda_fused_##name },)
static const form_line form_lines[] = {
#include "ops/fuse/fused.def"
};

/* The form of a fused op; NULL: it is none, or another device's. */
static const cuda_form *find_form(int id)
{
    for (size_t i = 0; i < sizeof form_lines / sizeof form_lines[0]; i++)
        if (form_lines[i].id == fuse_id(id))
            return form_lines[i].form;
    return NULL;
}

static int takes_form(void *device, const kvant_op *op)
{
    const cuda_form *form = find_form(op->id);
    return form && form->takes((cuda_device *)device, (const kvant_op *)op->args);
}

int cuda_supports(kvant_device *base, const kvant_op *op, kvant_diag *diag)
{
    const op_line *line = find_op(op->id);
    if (find_form(op->id))
        return takes_form(base, op) ? KVANT_OK
                                    : cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s: not these shapes",
                                                fuse_get(op->id)->name);
    if (!line)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: op %d has no kernel", op->id);
    return line->op->supports ? line->op->supports((cuda_device *)base, op->args, diag) : KVANT_OK;
}

void cuda_drop_graphs(cuda_device *d)
{
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++) {
        if (d->graphs[i].exec)
            cudaGraphExecDestroy(d->graphs[i].exec);
        memset(&d->graphs[i], 0, sizeof d->graphs[i]);
    }
}

/* The most that an op of the list wants, and that one wants behind it (page_seal: an attention's queries may be there
 * already, cuda_attn_front).  Every op has a kernel. */
static size_t scratch_wanted(const cuda_device *d, const kvant_op *ops, int n)
{
    size_t want[2] = { 0, 0 };
    for (int i = 0; i < n; i++) {
        const cuda_op *op = find_op(ops[i].id)->op;
        const size_t s = op->scratch ? op->scratch(d, ops[i].args) : 0;
        size_t *most = &want[op->behind];
        *most = s > *most ? s : *most;
    }
    return want[0] + want[1];
}

/* A new block, where the one there is is too small. */
static int scratch_grow(cuda_device *d, size_t want, kvant_diag *diag)
{
    void *p = NULL;
    if (want <= d->scratch_bytes)
        return KVANT_OK;
    cudaStreamSynchronize(d->stream);
    cuda_drop_graphs(d);
    cudaFree(d->scratch);
    d->scratch = NULL;
    d->scratch_bytes = 0;
    want = (want + want / 4 + 0xfffff) & ~(size_t)0xfffff;
    CUDA_TRY(cuda_alloc(&d->base, want, &p, diag));
    d->scratch = (unsigned char *)p;
    d->scratch_bytes = want;
    return KVANT_OK;
}

int cuda_reserve_scratch(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    for (int i = 0; i < n; i++)
        if (!find_op(ops[i].id))
            return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: op %d has no kernel", ops[i].id);
    const int rc = scratch_grow(d, scratch_wanted(d, ops, n), diag);
    if (rc != KVANT_ENOMEM || d->scarce)
        return rc;
    d->scarce = true;
    return scratch_grow(d, scratch_wanted(d, ops, n), diag);
}

int cuda_launch_next(cuda_device *d, const kvant_op *ops, int n, int *id, kvant_diag *diag)
{
    kvant_op op;
    const int took = fuse_next(ops, n, fuse_passes(*id), takes_form, d, &op);
    if (took == 0)
        return cuda_fail(diag, KVANT_EINTERNAL, "device cuda: op %s does not take what the form before it left",
                         find_op(ops[0].id)->name);
    const cuda_form *form = find_form(op.id);
    const char *name = form ? fuse_get(op.id)->name : find_op(op.id)->name;
    CUDA_TRY(form ? form->run(d, (const kvant_op *)op.args, fuse_passes(op.id), diag)
                  : find_op(op.id)->op->run(d, op.args, diag));
    const cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess)
        return cuda_fail(diag, KVANT_EDEVICE, "device cuda: op %s: %s", name, cudaGetErrorString(e));
    *id = op.id;
    return took;
}

int cuda_launch_list(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag)
{
    for (int i = 0, id = 0; i < n;) {
        const int took = cuda_launch_next(d, ops + i, n - i, &id, diag);
        if (took < 0)
            return took;
        i += took;
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

/* The graph of a key, and whether lists came under it before: the first is never recorded, as it loads the kernels and
 * grows the scratch block, which a recording must not do. */
cuda_graph *cuda_graph_of(cuda_device *d, uint64_t key, bool *seen)
{
    cuda_graph *g = graph_slot(d, key);
    *seen = g->key == key;
    g->key = key;
    g->used = ++d->clock;
    return g;
}

/* Records what launch enqueues and keeps it; it then runs as one launch. */
int cuda_record_with(cuda_device *d, cuda_graph *g, cuda_launcher launch, const void *what, kvant_diag *diag)
{
    cudaGraph_t graph = NULL;
    CUDA_TRY(cuda_check(diag, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "recording"));
    int rc = launch(d, what, diag);
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

struct op_list {
    const kvant_op *ops;
    int n;
};

static int launch_ops(cuda_device *d, const void *what, kvant_diag *diag)
{
    const op_list *l = (const op_list *)what;
    return cuda_launch_list(d, l->ops, l->n, diag);
}

int cuda_record(cuda_device *d, cuda_graph *g, const kvant_op *ops, int n, kvant_diag *diag)
{
    const op_list l = { ops, n };
    return cuda_record_with(d, g, launch_ops, &l, diag);
}

int cuda_submit(kvant_device *base, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    bool seen = false;
    if (n <= 0)
        return KVANT_OK;
    CUDA_TRY(cuda_use(d, diag));
    cuda_upload_close(d);
    CUDA_TRY(cuda_reserve_scratch(d, ops, n, diag));
    cuda_graph *g = key ? cuda_graph_of(d, key, &seen) : NULL;
    if (!seen)
        return cuda_launch_list(d, ops, n, diag);
    if (!g->exec)
        CUDA_TRY(cuda_record(d, g, ops, n, diag));
    d->replayed++;
    return cuda_check(diag, cudaGraphLaunch(g->exec, d->stream), "running a recorded step");
}

uint64_t cuda_replayed(const kvant_device *base)
{
    return ((const cuda_device *)base)->replayed;
}
