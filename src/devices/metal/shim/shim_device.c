/* shim_device.c: the device "metal-shim": host memory, and the Metal kernels run by the shim.  For checking kernels: it
 * is slow.  Owns its allocations and one program for each kernel and defines. */
#include "devices/metal/shim/shim.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "devices/portable/core/port_dev.h"

enum { POISON = 0xFF };

extern const kvant_device_vt kvant_device_metal_shim;

typedef struct shim_block { unsigned char *addr; size_t bytes; } shim_block;

typedef struct shim_loaded {
    int kernel;
    char *defines;
    const shim_program *program;
} shim_loaded;

typedef struct shim_device {
    port_device port;
    shim_block *blocks;
    int n_blocks;
    shim_loaded *loaded;
    int n_loaded;
} shim_device;

/* ---- memory ---- */

static int grow(void **list, int n, size_t each, kvant_diag *diag)
{
    void *more = kvant_realloc(*list, (size_t)n * each, (size_t)(n + 1) * each);

    if (!more)
        return kvant_fail(diag, KVANT_ENOMEM, "metal-shim: out of memory");
    *list = more;
    return KVANT_OK;
}

static int alloc_block(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag)
{
    shim_device *d = (shim_device *)base;

    KVANT_TRY(grow((void **)&d->blocks, d->n_blocks, sizeof *d->blocks, diag));
    unsigned char *p = kvant_alloc(bytes ? bytes : 1);
    if (!p)
        return kvant_fail(diag, KVANT_ENOMEM, "metal-shim: out of memory for %zu bytes", bytes);
    memset(p, POISON, bytes);
    d->blocks[d->n_blocks++] = (shim_block){ p, bytes };
    *addr = p;
    return KVANT_OK;
}

static void free_block(kvant_device *base, void *addr)
{
    shim_device *d = (shim_device *)base;

    for (int i = 0; i < d->n_blocks; i++)
        if (d->blocks[i].addr == addr) {
            kvant_free(addr);
            d->blocks[i] = d->blocks[--d->n_blocks];
            return;
        }
}

static size_t rest(const port_device *base, const void *addr)
{
    const shim_device *d = (const shim_device *)base;
    const unsigned char *p = addr;

    for (int i = 0; i < d->n_blocks; i++)
        if (p >= d->blocks[i].addr && p < d->blocks[i].addr + d->blocks[i].bytes)
            return (size_t)(d->blocks[i].addr + d->blocks[i].bytes - p);
    return 0;
}

static int check_range(kvant_device *base, const void *addr, size_t bytes, kvant_diag *diag)
{
    if (rest((port_device *)base, addr) >= bytes)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "metal-shim: %zu bytes outside of an allocation", bytes);
}

static int copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    if (bytes == 0)
        return KVANT_OK;
    KVANT_TRY(check_range(base, dst, bytes, diag));
    memcpy(dst, src, bytes);
    return KVANT_OK;
}

static int copy_out(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    if (bytes == 0)
        return KVANT_OK;
    KVANT_TRY(check_range(base, src, bytes, diag));
    memcpy(dst, src, bytes);
    return KVANT_OK;
}

/* ---- programs ---- */

static void unload(shim_loaded *l)
{
    if (l->program)
        shim_program_drop(l->program);
    kvant_free(l->defines);
}

static int load(shim_device *d, const port_call *c, const shim_program **out, kvant_diag *diag)
{
    const port_kernel *k = &port_kernels[c->kernel];
    shim_loaded new = { .kernel = c->kernel, .defines = kvant_strdup(c->defines) };
    char *text = NULL;

    int code = new.defines ? grow((void **)&d->loaded, d->n_loaded, sizeof *d->loaded, diag)
                           : kvant_fail(diag, KVANT_ENOMEM, "metal-shim: out of memory");
    if (code == KVANT_OK)
        code = port_source(k->file, c->defines, &text, diag);
    if (code == KVANT_OK)
        code = shim_program_get(&new.program, k->name, text, diag);
    kvant_free(text);
    if (code != KVANT_OK) {
        unload(&new);
        return code;
    }
    d->loaded[d->n_loaded] = new;
    *out = d->loaded[d->n_loaded++].program;
    return KVANT_OK;
}

static int program_of(shim_device *d, const port_call *c, const shim_program **out, kvant_diag *diag)
{
    for (int i = 0; i < d->n_loaded; i++)
        if (d->loaded[i].kernel == c->kernel && strcmp(d->loaded[i].defines, c->defines) == 0) {
            *out = d->loaded[i].program;
            return KVANT_OK;
        }
    return load(d, c, out, diag);
}

static int dispatch(port_device *base, const port_call *c, int64_t x, int64_t y, int64_t z, kvant_diag *diag)
{
    shim_launch l = { .kernel = port_kernels[c->kernel].name, .threads = PORT_THREADS,
                      .groups = { (uint32_t)x, (uint32_t)y, (uint32_t)z }, .n_buffers = c->n_buffers + 1 };

    for (int i = 0; i < c->n_buffers; i++) {
        const port_buffer *b = &c->buffer[i];
        if (b->addr && rest(base, b->addr) < b->bytes)
            return kvant_fail(diag, KVANT_EINVAL, "metal-shim: %s: buffer %d: %zu bytes, of which its allocation has %zu",
                              l.kernel, i, b->bytes, rest(base, b->addr));
        l.buffers[i] = (shim_buffer){ (void *)b->addr, b->addr ? b->bytes : 0, b->write };
    }
    l.buffers[c->n_buffers] = (shim_buffer){ (void *)c->params, c->params_bytes, 0 };
    KVANT_TRY(program_of((shim_device *)base, c, &l.program, diag));
    return shim_run(&l, diag);
}

/* ---- the device ---- */

static int sync_device(kvant_device *base, kvant_diag *diag)
{
    (void)base, (void)diag;                        /* dispatch returns when the kernel has ended */
    return KVANT_OK;
}

static void close_device(kvant_device *base)
{
    shim_device *d = (shim_device *)base;

    port_close(&d->port);
    for (int i = 0; i < d->n_loaded; i++)
        unload(&d->loaded[i]);
    for (int i = 0; i < d->n_blocks; i++)
        kvant_free(d->blocks[i].addr);
    kvant_free(d->loaded);
    kvant_free(d->blocks);
    kvant_free(d);
}

static void describe(const kvant_device *d, char *buf, int cap)
{
    (void)d;
    snprintf(buf, (size_t)cap, "Metal kernels on the CPU, every access checked");
}

/* A compiler that cannot make a kernel is found here, not in the middle of a model. */
static int try_compiler(kvant_diag *diag)
{
    shim_program p;
    const int code = shim_program_load(&p, "probe", "#include <metal_stdlib>\nkernel void k_probe(uint3 a, uint3 b, uint c) {}\n", diag);

    if (code == KVANT_OK)
        shim_program_free(&p);
    return code;
}

static int open_device(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    if (cfg->index != 0)
        return kvant_fail(diag, KVANT_EDEVICE, "metal-shim: no device %d; the only one is 0", cfg->index);
    KVANT_TRY(try_compiler(diag));
    shim_device *d = kvant_calloc(1, sizeof *d);
    if (!d)
        return kvant_fail(diag, KVANT_ENOMEM, "metal-shim: out of memory");
    d->port = (port_device){ .base.vt = &kvant_device_metal_shim, .dispatch = dispatch, .rest = rest,
                             .matrices = 1, .max_alloc = (size_t)1 << 40 };
    *out = &d->port.base;
    return KVANT_OK;
}

static int is_software(const kvant_device *d)
{
    (void)d;
    return 1;
}

const kvant_device_vt kvant_device_metal_shim = {
    .name = "metal-shim", .open = open_device, .close = close_device, .describe = describe,
    .is_software = is_software, .alloc = alloc_block, .free = free_block, .copy_in = copy_in, .copy_out = copy_out,
    .weight_load = port_weight_load, .weight_free = port_weight_free,
    .supports = port_supports, .submit = port_submit, .sync = sync_device, .on_caller = 1,
};
