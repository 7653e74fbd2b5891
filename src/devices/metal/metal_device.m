/* metal_device.m: the device "metal" on Apple's systems: memory, programs and a queue under the shared host side
 * (devices/portable/core/port_dev.h).  Compiled on Apple only; docs/metal.md says what was run.
 *
 * Every allocation is one MTLBuffer in shared storage, so an address is the CPU's own and copies are memcpy after a wait.
 * One command buffer with one serial encoder takes dispatches until sync: they run in order. */
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include "base/mem.h"
#include "devices/portable/core/port_dev.h"

extern const kvant_device_vt kvant_device_metal;          /* at the end; named in devices.def */

typedef struct metal_block {
    unsigned char *addr;
    size_t bytes;
    __strong id<MTLBuffer> buffer;
} metal_block;

typedef struct metal_program {
    int kernel;
    char *defines;
    __strong id<MTLComputePipelineState> pipeline;
} metal_program;

typedef struct metal_device {
    port_device port;
    __strong id<MTLDevice> gpu;
    __strong id<MTLCommandQueue> queue;
    __strong id<MTLCommandBuffer> commands;               /* being filled; nil: none */
    __strong id<MTLComputeCommandEncoder> encoder;
    metal_block *blocks;
    int n_blocks, cap_blocks;
    metal_program *programs;
    int n_programs, cap_programs;
} metal_device;

static const char *text_of(NSError *error)
{
    return error ? error.localizedDescription.UTF8String : "no reason given";
}

/* Room for one more of n elements; what is new is zero, as strong pointers have to be. */
static int more(void **list, int n, int *cap, size_t each, kvant_diag *diag)
{
    if (n < *cap)
        return KVANT_OK;
    const int want = *cap ? 2 * *cap : 64;
    void *grown = kvant_calloc((size_t)want, each);
    if (!grown)
        return kvant_fail(diag, KVANT_ENOMEM, "device metal: out of memory");
    if (n)
        memcpy(grown, *list, (size_t)n * each);
    kvant_free(*list);
    *list = grown;
    *cap = want;
    return KVANT_OK;
}

/* ---- the queue ---- */

static int metal_sync(kvant_device *base, kvant_diag *diag)
{
    metal_device *d = (metal_device *)base;
    if (!d->commands)
        return KVANT_OK;
    @autoreleasepool {
        id<MTLCommandBuffer> commands = d->commands;
        [d->encoder endEncoding];
        [commands commit];
        d->encoder = nil;
        d->commands = nil;
        [commands waitUntilCompleted];
        if (commands.status == MTLCommandBufferStatusError)
            return kvant_fail(diag, KVANT_EDEVICE, "device metal: %.160s", text_of(commands.error));
    }
    return KVANT_OK;
}

static int open_encoder(metal_device *d, kvant_diag *diag)
{
    if (d->encoder)
        return KVANT_OK;
    d->commands = [d->queue commandBuffer];
    d->encoder = [d->commands computeCommandEncoder];
    if (!d->encoder)
        return kvant_fail(diag, KVANT_EDEVICE, "device metal: no command encoder");
    return KVANT_OK;
}

/* ---- memory ---- */

static metal_block *block_of(const metal_device *d, const void *addr)
{
    const unsigned char *p = addr;
    for (int i = 0; i < d->n_blocks; i++)
        if (p >= d->blocks[i].addr && p < d->blocks[i].addr + d->blocks[i].bytes)
            return &d->blocks[i];
    return NULL;
}

static size_t metal_rest(const port_device *base, const void *addr)
{
    const metal_block *b = block_of((const metal_device *)base, addr);
    return b ? b->bytes - (size_t)((const unsigned char *)addr - b->addr) : 0;
}

static int metal_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag)
{
    metal_device *d = (metal_device *)base;
    const size_t want = bytes ? bytes : 1;
    if (want > d->port.max_alloc)
        return kvant_fail(diag, KVANT_ENOMEM, "device metal: %zu bytes wanted, the largest allocation has %zu", bytes,
                          d->port.max_alloc);
    KVANT_TRY(more((void **)&d->blocks, d->n_blocks, &d->cap_blocks, sizeof *d->blocks, diag));
    id<MTLBuffer> buffer = [d->gpu newBufferWithLength:want options:MTLResourceStorageModeShared];
    if (!buffer)
        return kvant_fail(diag, KVANT_ENOMEM, "device metal: no memory for %zu bytes", bytes);
    metal_block *b = &d->blocks[d->n_blocks++];
    b->addr = buffer.contents;
    b->bytes = want;
    b->buffer = buffer;
    *addr = b->addr;
    return KVANT_OK;
}

static void metal_free(kvant_device *base, void *addr)
{
    metal_device *d = (metal_device *)base;
    metal_block *b = addr ? block_of(d, addr) : NULL;
    if (!b)
        return;
    metal_sync(base, NULL);                               /* what is queued may read it */
    *b = d->blocks[--d->n_blocks];
    d->blocks[d->n_blocks] = (metal_block){ 0 };
}

static int metal_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    KVANT_TRY(metal_sync(base, diag));
    memcpy(dst, src, bytes);
    return KVANT_OK;
}

static int metal_copy_out(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    KVANT_TRY(metal_sync(base, diag));
    memcpy(dst, src, bytes);
    return KVANT_OK;
}

/* ---- programs ---- */

static int compile(metal_device *d, const port_kernel *k, const char *text, metal_program *out, kvant_diag *diag)
{
    @autoreleasepool {
        NSError *error = nil;
        MTLCompileOptions *options = [MTLCompileOptions new];
        options.languageVersion = MTLLanguageVersion3_0;
        options.fastMathEnabled = NO;                     /* NaN and infinity are values of the kernels */
        id<MTLLibrary> library = [d->gpu newLibraryWithSource:@(text) options:options error:&error];
        if (!library)
            return kvant_fail(diag, KVANT_EDEVICE, "device metal: %s: %.160s", k->name, text_of(error));
        id<MTLFunction> function = [library newFunctionWithName:[@"k_" stringByAppendingString:@(k->name)]];
        out->pipeline = function ? [d->gpu newComputePipelineStateWithFunction:function error:&error] : nil;
        if (!out->pipeline)
            return kvant_fail(diag, KVANT_EDEVICE, "device metal: %s: %.160s", k->name, text_of(error));
        if (out->pipeline.maxTotalThreadsPerThreadgroup < PORT_THREADS)
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "device metal: %s: %zu threads a group, wanted %d", k->name,
                              (size_t)out->pipeline.maxTotalThreadsPerThreadgroup, PORT_THREADS);
        if (d->port.matrices && out->pipeline.threadExecutionWidth != 32)
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "device metal: %s: simdgroups of %zu threads, wanted 32", k->name,
                              (size_t)out->pipeline.threadExecutionWidth);
    }
    return KVANT_OK;
}

static int make_program(metal_device *d, const port_call *c, metal_program **out, kvant_diag *diag)
{
    const port_kernel *k = &port_kernels[c->kernel];
    char *text = NULL;
    KVANT_TRY(more((void **)&d->programs, d->n_programs, &d->cap_programs, sizeof *d->programs, diag));
    KVANT_TRY(port_source(k->file, c->defines, &text, diag));
    metal_program *p = &d->programs[d->n_programs];
    const int code = compile(d, k, text, p, diag);
    kvant_free(text);
    if (code != KVANT_OK)
        return code;
    p->kernel = c->kernel;
    p->defines = kvant_strdup(c->defines);
    if (!p->defines)
        return kvant_fail(diag, KVANT_ENOMEM, "device metal: out of memory");
    d->n_programs++;
    *out = p;
    return KVANT_OK;
}

static int program_of(metal_device *d, const port_call *c, metal_program **out, kvant_diag *diag)
{
    for (int i = 0; i < d->n_programs; i++)
        if (d->programs[i].kernel == c->kernel && strcmp(d->programs[i].defines, c->defines) == 0) {
            *out = &d->programs[i];
            return KVANT_OK;
        }
    return make_program(d, c, out, diag);
}

static int bind(metal_device *d, const port_call *c, kvant_diag *diag)
{
    for (int i = 0; i < c->n_buffers; i++) {
        const port_buffer *from = &c->buffer[i];
        const metal_block *b = from->addr ? block_of(d, from->addr) : NULL;
        if (from->addr && !b)
            return kvant_fail(diag, KVANT_EINVAL, "device metal: %s: buffer %d is not memory of this device",
                              port_kernels[c->kernel].name, i);
        const NSUInteger at = b ? (NSUInteger)((const unsigned char *)from->addr - b->addr) : 0;
        [d->encoder setBuffer:b ? b->buffer : nil offset:at atIndex:(NSUInteger)i];
    }
    [d->encoder setBytes:c->params length:c->params_bytes atIndex:(NSUInteger)c->n_buffers];
    return KVANT_OK;
}

static int metal_dispatch(port_device *base, const port_call *c, int64_t x, int64_t y, int64_t z, kvant_diag *diag)
{
    metal_device *d = (metal_device *)base;
    metal_program *p;
    @autoreleasepool {
        KVANT_TRY(program_of(d, c, &p, diag));
        KVANT_TRY(open_encoder(d, diag));
        [d->encoder setComputePipelineState:p->pipeline];
        KVANT_TRY(bind(d, c, diag));
        [d->encoder dispatchThreadgroups:MTLSizeMake((NSUInteger)x, (NSUInteger)y, (NSUInteger)z)
                   threadsPerThreadgroup:MTLSizeMake(PORT_THREADS, 1, 1)];
    }
    return KVANT_OK;
}

/* ---- the device ---- */

static void metal_close(kvant_device *base)
{
    metal_device *d = (metal_device *)base;
    if (d->queue)
        metal_sync(base, NULL);
    port_close(&d->port);
    for (int i = 0; i < d->n_programs; i++) {
        kvant_free(d->programs[i].defines);
        d->programs[i].pipeline = nil;
    }
    for (int i = 0; i < d->n_blocks; i++)
        d->blocks[i].buffer = nil;
    kvant_free(d->programs);
    kvant_free(d->blocks);
    d->queue = nil;
    d->gpu = nil;
    kvant_free(d);
}

static int open_gpu(metal_device *d, int index, kvant_diag *diag)
{
    @autoreleasepool {
        NSArray<id<MTLDevice>> *all = MTLCopyAllDevices();
        if ((NSUInteger)index >= all.count)
            return kvant_fail(diag, KVANT_EDEVICE, "device metal: no GPU %d; this machine has %d", index, (int)all.count);
        d->gpu = all[(NSUInteger)index];
        if (![d->gpu supportsFamily:MTLGPUFamilyMetal3])
            return kvant_fail(diag, KVANT_EDEVICE, "device metal: %.60s has no Metal 3", d->gpu.name.UTF8String);
        d->queue = [d->gpu newCommandQueue];
        d->port.matrices = [d->gpu supportsFamily:MTLGPUFamilyApple7];         /* an M1 or newer */
        d->port.max_alloc = d->gpu.maxBufferLength;
    }
    return d->queue ? KVANT_OK : kvant_fail(diag, KVANT_EDEVICE, "device metal: no command queue");
}

static int metal_open(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    metal_device *d = kvant_calloc(1, sizeof *d);
    if (!d)
        return kvant_fail(diag, KVANT_ENOMEM, "device metal: out of memory");
    d->port.base.vt = &kvant_device_metal;
    d->port.dispatch = metal_dispatch;
    d->port.rest = metal_rest;
    const int code = open_gpu(d, cfg->index, diag);
    if (code != KVANT_OK) {
        metal_close(&d->port.base);
        return code;
    }
    *out = &d->port.base;
    return KVANT_OK;
}

static void metal_describe(const kvant_device *base, char *buf, int cap)
{
    const metal_device *d = (const metal_device *)base;
    snprintf(buf, (size_t)cap, "Metal (%.100s)", d->gpu.name.UTF8String);
}

const kvant_device_vt kvant_device_metal = {
    .name = "metal",
    .open = metal_open,
    .close = metal_close,
    .describe = metal_describe,
    .alloc = metal_alloc,
    .free = metal_free,
    .copy_in = metal_copy_in,
    .copy_out = metal_copy_out,
    .weight_load = port_weight_load,
    .weight_free = port_weight_free,
    .supports = port_supports,
    .submit = port_submit,
    .sync = metal_sync,
};
