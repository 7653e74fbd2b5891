/* hip_device.c: the device "hip", AMD's GPUs: memory, programs compiled by hiprtc when an op first needs them, and
 * one stream under the shared host side (devices/portable/core/port_dev.h).  No AMD GPU has run it: docs/hip.md. */
#include <stdio.h>
#include "base/mem.h"
#include "devices/hip/hip_api.h"
#include "devices/portable/core/port_side.h"

typedef struct hip_kernel {
    int kernel;
    char *defines;                         /* with the kernel's file they name the program */
    hip_module module;
    hip_function function;
} hip_kernel;

typedef struct hip_device {
    port_device port;
    hip_api api;
    hip_stream stream;
    hip_kernel *kernels;
    int n_kernels, cap_kernels;
    int index, version;
    char name[128];
} hip_device;

extern const kvant_device_vt kvant_device_hip;             /* at the end; named in devices.def */

static int hip_check(const hip_device *d, int code, const char *action, kvant_diag *diag)
{
    if (code == HIP_SUCCESS)
        return KVANT_OK;
    return kvant_fail(diag, code == HIP_OUT_OF_MEMORY ? KVANT_ENOMEM : KVANT_EDEVICE, "device hip: %s: %.80s (%.60s)",
                      action, d->api.hipGetErrorString(code), d->name);
}

/* HIP keeps the current device by thread, and a device object may change its owner. */
static int enter(const hip_device *d, kvant_diag *diag)
{
    return hip_check(d, d->api.hipSetDevice(d->index), "choosing the device", diag);
}

/* ---- memory ---- */

static size_t hip_rest(const port_device *base, const void *addr)
{
    const hip_device *d = (const hip_device *)base;
    void *from = NULL;
    size_t bytes = 0;
    if (enter(d, NULL) < 0 || d->api.hipMemGetAddressRange(&from, &bytes, (void *)(uintptr_t)addr) != HIP_SUCCESS)
        return 0;
    return bytes - (size_t)((uintptr_t)addr - (uintptr_t)from);
}

static int hip_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag)
{
    hip_device *d = (hip_device *)base;
    char action[64];
    snprintf(action, sizeof action, "allocating %zu bytes", bytes);
    KVANT_TRY(enter(d, diag));
    return hip_check(d, d->api.hipMalloc(addr, bytes ? bytes : 1), action, diag);
}

static int hip_sync(kvant_device *base, kvant_diag *diag)
{
    hip_device *d = (hip_device *)base;
    KVANT_TRY(enter(d, diag));
    return hip_check(d, d->api.hipStreamSynchronize(d->stream), "waiting", diag);
}

static void hip_free(kvant_device *base, void *addr)
{
    if (addr && hip_sync(base, NULL) == KVANT_OK)
        ((hip_device *)base)->api.hipFree(addr);
}

/* Host memory is the caller's again when this returns. */
static int hip_copy(kvant_device *base, void *to, const void *from, size_t bytes, int kind, kvant_diag *diag)
{
    hip_device *d = (hip_device *)base;
    const void *there = kind == HIP_COPY_TO_DEVICE ? to : from;
    if (!bytes)
        return KVANT_OK;
    if (bytes > hip_rest(&d->port, there))
        return kvant_fail(diag, KVANT_EINVAL, "device hip: a copy of %zu bytes, wanted inside one allocation", bytes);
    KVANT_TRY(hip_check(d, d->api.hipMemcpyAsync(to, from, bytes, kind, d->stream), "copying", diag));
    return hip_sync(base, diag);
}

static int hip_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    return hip_copy(base, dst, src, bytes, HIP_COPY_TO_DEVICE, diag);
}

static int hip_copy_out(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    return hip_copy(base, dst, src, bytes, HIP_COPY_TO_HOST, diag);
}

/* ---- programs ---- */

/* Says the compiler's log from its first error on, as one line. */
static int built_wrong(const hip_device *d, hiprtc_program p, const port_call *c, int code, kvant_diag *diag)
{
    size_t bytes = 0;
    d->api.hiprtcGetProgramLogSize(p, &bytes);
    char *log = kvant_calloc(bytes + 1, 1);
    if (log)
        d->api.hiprtcGetProgramLog(p, log);
    const char *found = log ? strstr(log, "error:") : NULL;
    kvant_fail(diag, KVANT_EDEVICE, "device hip: %.40s does not compile here (code %d): %.200s; %.160s",
               port_kernels[c->kernel].file, code, found ? found : log ? log : "", c->defines);
    for (char *at = diag ? diag->text : NULL; at && *at; at++)
        if (*at == '\n')
            *at = ' ';
    kvant_free(log);
    return KVANT_EDEVICE;
}

static int load_code(const hip_device *d, hiprtc_program p, hip_kernel *k, kvant_diag *diag)
{
    char name[64] = "k_";
    size_t bytes = 0;
    KVANT_TRY(hip_check(d, d->api.hiprtcGetCodeSize(p, &bytes), "reading compiled code", diag));
    char *code = kvant_alloc(bytes);
    if (!code)
        return kvant_fail(diag, KVANT_ENOMEM, "device hip: out of memory");
    d->api.hiprtcGetCode(p, code);
    const int rc = hip_check(d, d->api.hipModuleLoadData(&k->module, code), "loading a program", diag);
    kvant_free(code);
    KVANT_TRY(rc);
    strncat(name, port_kernels[k->kernel].name, sizeof name - 3);
    return hip_check(d, d->api.hipModuleGetFunction(&k->function, k->module, name), name, diag);
}

static int compile(const hip_device *d, const port_call *c, hip_kernel *k, kvant_diag *diag)
{
    static const char *const options[] = { "-O3", "-ffp-contract=off", "-std=c++14" };
    hiprtc_program p = NULL;
    char *text = NULL;
    KVANT_TRY(port_source(port_kernels[c->kernel].file, c->defines, &text, diag));
    int rc = hip_check(d, d->api.hiprtcCreateProgram(&p, text, port_kernels[c->kernel].file, 0, NULL, NULL),
                       "making a program", diag);
    kvant_free(text);
    KVANT_TRY(rc);
    rc = d->api.hiprtcCompileProgram(p, sizeof options / sizeof options[0], (const char **)(uintptr_t)options);
    rc = rc != HIP_SUCCESS ? built_wrong(d, p, c, rc, diag) : load_code(d, p, k, diag);
    d->api.hiprtcDestroyProgram(&p);
    return rc;
}

static void kernel_drop(const hip_device *d, hip_kernel *k)
{
    if (k->module)
        d->api.hipModuleUnload(k->module);
    kvant_free(k->defines);
}

static int kernel_make(hip_device *d, const port_call *c, const hip_kernel **out, kvant_diag *diag)
{
    hip_kernel k = { .kernel = c->kernel, .defines = kvant_strdup(c->defines) };
    if (d->n_kernels == d->cap_kernels) {
        const int more = d->cap_kernels ? 2 * d->cap_kernels : 64;
        void *list = kvant_realloc(d->kernels, (size_t)d->cap_kernels * sizeof k, (size_t)more * sizeof k);
        d->kernels = list ? list : d->kernels;
        d->cap_kernels = list ? more : d->cap_kernels;
    }
    int rc = k.defines && d->n_kernels < d->cap_kernels ? compile(d, c, &k, diag)
                                                        : kvant_fail(diag, KVANT_ENOMEM, "device hip: out of memory");
    if (rc < 0) {
        kernel_drop(d, &k);
        return rc;
    }
    d->kernels[d->n_kernels] = k;
    *out = &d->kernels[d->n_kernels++];
    return KVANT_OK;
}

static int kernel_get(hip_device *d, const port_call *c, const hip_kernel **out, kvant_diag *diag)
{
    for (int i = 0; i < d->n_kernels; i++)
        if (d->kernels[i].kernel == c->kernel && strcmp(d->kernels[i].defines, c->defines) == 0) {
            *out = &d->kernels[i];
            return KVANT_OK;
        }
    return kernel_make(d, c, out, diag);
}

/* ---- one dispatch ---- */

static int hip_dispatch(port_device *base, const port_call *c, int64_t x, int64_t y, int64_t z, kvant_diag *diag)
{
    hip_device *d = (hip_device *)base;
    const hip_kernel *k;
    const void *addr[PORT_MAX_BUFFERS];
    void *args[PORT_MAX_BUFFERS + 1];
    KVANT_TRY(enter(d, diag));
    KVANT_TRY(kernel_get(d, c, &k, diag));
    for (int i = 0; i < c->n_buffers; i++) {
        const port_buffer *b = &c->buffer[i];
        if (b->addr && b->bytes > hip_rest(base, b->addr))
            return kvant_fail(diag, KVANT_EINVAL, "device hip: %s: buffer %d of %zu bytes, wanted inside one "
                              "allocation (%zu)", port_kernels[c->kernel].name, i, b->bytes, hip_rest(base, b->addr));
        addr[i] = b->addr;
        args[i] = &addr[i];
    }
    args[c->n_buffers] = (void *)(uintptr_t)c->params;
    const int rc = d->api.hipModuleLaunchKernel(k->function, (unsigned)x, (unsigned)y, (unsigned)z, PORT_THREADS, 1, 1,
                                                0, d->stream, args, NULL);
    return hip_check(d, rc, port_kernels[c->kernel].name, diag);
}

/* ---- the device ---- */

static void hip_close(kvant_device *base)
{
    hip_device *d = (hip_device *)base;
    if (d->stream) {
        hip_sync(base, NULL);
        port_params_drop(&d->port);
        port_close(&d->port);
    }
    for (int i = 0; i < d->n_kernels; i++)
        kernel_drop(d, &d->kernels[i]);
    if (d->stream)
        d->api.hipStreamDestroy(d->stream);
    kvant_free(d->kernels);
    kvant_free(d);
}

static int open_steps(hip_device *d, kvant_diag *diag)
{
    size_t free_bytes;
    int n = 0;
    KVANT_TRY(hip_api_open(&d->api, diag));
    if (d->api.hipInit(0) != HIP_SUCCESS || d->api.hipGetDeviceCount(&n) != HIP_SUCCESS || n == 0)
        return kvant_fail(diag, KVANT_EDEVICE, "device hip: no AMD GPU on this machine");
    if (d->index >= n)
        return kvant_fail(diag, KVANT_EDEVICE, "device hip:%d: this machine has %d device%s, numbered from 0",
                          d->index, n, n == 1 ? "" : "s");
    KVANT_TRY(enter(d, diag));
    d->api.hipDeviceGetName(d->name, sizeof d->name - 1, d->index);
    d->api.hipDriverGetVersion(&d->version);
    KVANT_TRY(hip_check(d, d->api.hipMemGetInfo(&free_bytes, &d->port.max_alloc), "reading the size of the memory",
                        diag));
    return hip_check(d, d->api.hipStreamCreate(&d->stream), "making a stream", diag);
}

static int hip_open(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    hip_device *d = kvant_calloc(1, sizeof *d);
    if (!d)
        return kvant_fail(diag, KVANT_ENOMEM, "device hip: out of memory");
    d->port.base.vt = &kvant_device_hip;
    d->port.dispatch = hip_dispatch;
    d->port.rest = hip_rest;
    d->index = cfg->index;
    const int rc = open_steps(d, diag);
    if (rc < 0) {
        hip_close(&d->port.base);
        return rc;
    }
    *out = &d->port.base;
    return KVANT_OK;
}

static void hip_describe(const kvant_device *base, char *buf, int cap)
{
    const hip_device *d = (const hip_device *)base;
    snprintf(buf, (size_t)cap, "HIP (%.100s, driver %d)", d->name, d->version);
}

static int64_t hip_memory(const kvant_device *base)
{
    const hip_device *d = (const hip_device *)base;
    size_t free_bytes = 0, all;
    if (enter(d, NULL) < 0 || d->api.hipMemGetInfo(&free_bytes, &all) != HIP_SUCCESS)
        return -1;
    return (int64_t)free_bytes;
}

const kvant_device_vt kvant_device_hip = {
    .name = "hip",
    .open = hip_open,
    .close = hip_close,
    .describe = hip_describe,
    .memory = hip_memory,
    .alloc = hip_alloc,
    .free = hip_free,
    .copy_in = hip_copy_in,
    .copy_out = hip_copy_out,
    .weight_load = port_weight_load,
    .weight_free = port_weight_free,
    .supports = port_supports,
    .submit = port_submit,
    .sync = hip_sync,
};
