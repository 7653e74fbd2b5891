/* cl_queue.c: one dispatch: the kernel's arguments (for every buffer a cl_mem and where it begins), then its groups. */
#include "devices/opencl/cl_dev.h"

static int set_buffer(cl_device *d, cl_kernel k, const port_call *c, int i, kvant_diag *diag)
{
    const port_buffer *want = &c->buffer[i];
    cl_mem mem = NULL;
    int64_t from = 0;
    size_t at = 0;
    const cl_block *b = want->addr ? cl_block_of(d, want->addr, &at) : NULL;
    if (want->addr && (!b || want->bytes > b->bytes - at))
        return kvant_fail(diag, KVANT_EINVAL, "device opencl: %s: buffer %d of %zu bytes, wanted inside one allocation (%zu)",
                          port_kernels[c->kernel].name, i, want->bytes, b ? b->bytes - at : 0);
    if (b) {
        mem = b->mem;
        from = (int64_t)at;
    }
    KVANT_TRY(cl_check(d, d->api.SetKernelArg(k, (uint32_t)(2 * i), sizeof mem, &mem), "passing a buffer", diag));
    return cl_check(d, d->api.SetKernelArg(k, (uint32_t)(2 * i + 1), sizeof from, &from), "passing an offset", diag);
}

int cl_dispatch(port_device *base, const port_call *c, int64_t x, int64_t y, int64_t z, kvant_diag *diag)
{
    cl_device *d = (cl_device *)base;
    const size_t size[3] = { (size_t)x * PORT_THREADS, (size_t)y, (size_t)z }, group[3] = { PORT_THREADS, 1, 1 };
    cl_kernel k;

    KVANT_TRY(cl_kernel_get(d, c, &k, diag));
    for (int i = 0; i < c->n_buffers; i++)
        KVANT_TRY(set_buffer(d, k, c, i, diag));
    KVANT_TRY(cl_check(d, d->api.SetKernelArg(k, (uint32_t)(2 * c->n_buffers), c->params_bytes, c->params),
                       port_kernels[c->kernel].name, diag));
    return cl_check(d, d->api.EnqueueNDRangeKernel(d->queue, k, 3, NULL, size, group, 0, NULL, NULL),
                    port_kernels[c->kernel].name, diag);
}

int cl_sync(kvant_device *base, kvant_diag *diag)
{
    cl_device *d = (cl_device *)base;
    return cl_check(d, d->api.Finish(d->queue), "waiting", diag);
}
