/* cuda.c: the device "cuda": finds and loads libkvant-cuda.so, which holds all CUDA code.  libkvant itself needs no
 * CUDA: without the library, a driver or a GPU, opening the device fails with one line.
 *
 * The library is looked for beside the running program or libkvant, in ../lib of that place, and where it was
 * installed; never in the working directory, the library path or a variable: loading code is not the environment's
 * choice. */
#include "devices/cuda/core/cuda_api.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"

extern const kvant_device_vt kvant_device_cuda;          /* at the end; named in devices.def */

#if defined(__linux__)
#include <dlfcn.h>
#include <unistd.h>

#ifndef KVANT_CUDA_LIBDIR
#define KVANT_CUDA_LIBDIR "/usr/local/lib"
#endif

enum { PATH_CAP = 4096 };
static const char library[] = "libkvant-cuda.so";

/* Cuts the file name off; 0 if there is no folder. */
static int folder_of(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        return 0;
    *slash = 0;
    return 1;
}

static void *try_open(const char *folder, const char *sub, char *path, char *why, size_t cap)
{
    int n = snprintf(path, PATH_CAP, "%s%s/%s", folder, sub, library);
    if (n < 0 || n >= PATH_CAP || access(path, F_OK) != 0)
        return NULL;
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        snprintf(why, cap, "%s", dlerror());
    return lib;
}

static void *find_library(char *path, char *why, size_t cap)
{
    char self[PATH_CAP];
    void *lib = NULL;
    Dl_info info;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n > 0) {
        self[n] = 0;
        if (folder_of(self) && !(lib = try_open(self, "", path, why, cap)))
            lib = try_open(self, "/../lib", path, why, cap);
    }
    if (!lib && dladdr(&kvant_device_cuda, &info) && info.dli_fname && strlen(info.dli_fname) < sizeof self) {
        memcpy(self, info.dli_fname, strlen(info.dli_fname) + 1);
        if (self[0] == '/' && folder_of(self) && !(lib = try_open(self, "", path, why, cap)))
            lib = try_open(self, "/../lib", path, why, cap);
    }
    return lib ? lib : try_open(KVANT_CUDA_LIBDIR, "", path, why, cap);
}

/* Loaded once and kept: a library that holds a driver context is never unloaded.  One owner thread opens devices. */
static const kvant_device_vt *loaded;

static int load(kvant_diag *diag)
{
    char path[PATH_CAP] = "", why[160] = "";
    const kvant_cuda_host self = kvant_cuda_self();
    kvant_device_v1_fn entry = NULL;
    void *lib = find_library(path, why, sizeof why), *symbol;

    if (!lib && why[0])
        return kvant_fail(diag, KVANT_EDEVICE, "device cuda: %s", why);
    if (!lib)
        return kvant_fail(diag, KVANT_EDEVICE, "device cuda: %s is not installed beside the program or in %s", library,
                          KVANT_CUDA_LIBDIR);
    symbol = dlsym(lib, "kvant_device_v1");
    memcpy(&entry, &symbol, sizeof entry);               /* a data pointer does not convert to a function's */
    loaded = entry ? entry(&self) : NULL;
    if (loaded)
        return KVANT_OK;
    dlclose(lib);
    return kvant_fail(diag, KVANT_EDEVICE, "device cuda: %.150s is of another version of kvant", path);
}

static int cuda_open(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    if (!loaded)
        KVANT_TRY(load(diag));
    return loaded->open(cfg, out, diag);
}
#else
static int cuda_open(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    (void)cfg;
    (void)out;
    return kvant_fail(diag, KVANT_EDEVICE, "device cuda: not on this operating system");
}
#endif

/* An open device carries the library's own vtable; who calls through this one instead is passed on. */
static void cuda_close(kvant_device *d)
{
    if (d)
        d->vt->close(d);
}

static void cuda_describe(const kvant_device *d, char *buf, int cap)
{
    d->vt->describe(d, buf, cap);
}

static int cuda_alloc(kvant_device *d, size_t bytes, void **addr, kvant_diag *diag)
{
    return d->vt->alloc(d, bytes, addr, diag);
}

static void cuda_free(kvant_device *d, void *addr)
{
    d->vt->free(d, addr);
}

static int cuda_copy_in(kvant_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    return d->vt->copy_in(d, dst, src, bytes, diag);
}

static int cuda_copy_out(kvant_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    return d->vt->copy_out(d, dst, src, bytes, diag);
}

static int cuda_weight_load(kvant_device *d, kvant_weight *w, int compute, kvant_diag *diag)
{
    return d->vt->weight_load(d, w, compute, diag);
}

static void cuda_weight_free(kvant_device *d, kvant_weight *w)
{
    d->vt->weight_free(d, w);
}

static int cuda_supports(kvant_device *d, const kvant_op *op, kvant_diag *diag)
{
    return d->vt->supports(d, op, diag);
}

static int cuda_submit(kvant_device *d, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    return d->vt->submit(d, ops, n, key, diag);
}

static int cuda_sync(kvant_device *d, kvant_diag *diag)
{
    return d->vt->sync(d, diag);
}

const kvant_device_vt kvant_device_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .weight_load = cuda_weight_load,
    .weight_free = cuda_weight_free,
    .supports = cuda_supports,
    .submit = cuda_submit,
    .sync = cuda_sync,
    .pass_many = 2048, /* matrices that are expanded for a pass pay from there on */
    .pass_experts = 2048,
    .takes_stream = 1,
    .streams = 1,
};
