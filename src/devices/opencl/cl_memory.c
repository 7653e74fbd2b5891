/* cl_memory.c: allocations and copies.  The queue keeps order, so a blocking copy waits for what is before it. */
#include "devices/opencl/cl_dev.h"

#include "base/mem.h"

static const uint64_t OFFSET = ((uint64_t)1 << CL_BLOCK_SHIFT) - 1;

const cl_block *cl_block_of(const cl_device *d, const void *addr, size_t *at)
{
    const uint64_t a = (uint64_t)(uintptr_t)addr, n = a >> CL_BLOCK_SHIFT;
    const cl_block *b = n >= 1 && n <= (uint64_t)d->n_blocks ? &d->blocks[n - 1] : NULL;
    *at = (size_t)(a & OFFSET);
    return b && b->mem && *at < b->bytes ? b : NULL;
}

size_t cl_rest(const port_device *base, const void *addr)
{
    size_t at;
    const cl_block *b = cl_block_of((const cl_device *)base, addr, &at);
    return b ? b->bytes - at : 0;
}

static int free_block(cl_device *d, kvant_diag *diag)
{
    int i = 0;
    while (i < d->n_blocks && d->blocks[i].mem)
        i++;
    if (i < d->n_blocks)
        return i;
    void *more = cl_grow(d->blocks, d->n_blocks, &d->cap_blocks, sizeof *d->blocks);
    if (!more)
        return kvant_fail(diag, KVANT_ENOMEM, "device opencl: out of memory");
    d->blocks = more;
    d->blocks[d->n_blocks++] = (cl_block){ 0 };
    return i;
}

int cl_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag)
{
    cl_device *d = (cl_device *)base;
    const size_t size = bytes ? bytes : 1;
    const int i = free_block(d, diag);
    int32_t rc;

    KVANT_TRY(i);
    if (size > d->port.max_alloc)
        return kvant_fail(diag, KVANT_ENOMEM, "device opencl: %.1f MiB wanted in one piece, %.60s allocates at most %.1f MiB",
                          (double)size / 1048576, d->name, (double)d->port.max_alloc / 1048576);
    cl_mem mem = d->api.CreateBuffer(d->context, CL_MEM_READ_WRITE, size, NULL, &rc);
    KVANT_TRY(cl_check(d, rc, "allocating memory", diag));
    d->blocks[i] = (cl_block){ mem, size };
    *addr = (void *)(uintptr_t)((uint64_t)(i + 1) << CL_BLOCK_SHIFT);
    return KVANT_OK;
}

void cl_free(kvant_device *base, void *addr)
{
    cl_device *d = (cl_device *)base;
    size_t at;
    const cl_block *b = addr ? cl_block_of(d, addr, &at) : NULL;
    if (!b)
        return;
    d->api.Finish(d->queue);
    d->api.ReleaseMemObject(b->mem);
    d->blocks[b - d->blocks] = (cl_block){ 0 };
}

static int range_of(const cl_device *d, const void *addr, size_t bytes, const cl_block **b, size_t *at,
                    kvant_diag *diag)
{
    *b = cl_block_of(d, addr, at);
    if (*b && bytes <= (*b)->bytes - *at)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "device opencl: a copy of %zu bytes, wanted inside one allocation", bytes);
}

int cl_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    cl_device *d = (cl_device *)base;
    const cl_block *b;
    size_t at;
    if (!bytes)
        return KVANT_OK;
    KVANT_TRY(range_of(d, dst, bytes, &b, &at, diag));
    return cl_check(d, d->api.EnqueueWriteBuffer(d->queue, b->mem, 1, at, bytes, src, 0, NULL, NULL),
                    "copying to the device", diag);
}

int cl_copy_out(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    cl_device *d = (cl_device *)base;
    const cl_block *b;
    size_t at;
    if (!bytes)
        return KVANT_OK;
    KVANT_TRY(range_of(d, src, bytes, &b, &at, diag));
    return cl_check(d, d->api.EnqueueReadBuffer(d->queue, b->mem, 1, at, bytes, dst, 0, NULL, NULL),
                    "copying from the device", diag);
}

void cl_memory_drop(cl_device *d)
{
    for (int i = 0; i < d->n_blocks; i++)
        if (d->blocks[i].mem)
            d->api.ReleaseMemObject(d->blocks[i].mem);
    kvant_free(d->blocks);
}
