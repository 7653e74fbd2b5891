/* cl_device.c: the device "opencl": choosing a device, opening and closing.  Owns the cl_device; ops are those of
 * devices/portable. */
#include "devices/opencl/cl_dev.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"

enum { MAX_PLATFORMS = 16, MAX_DEVICES = 64 };

extern const kvant_device_vt kvant_device_opencl;          /* at the end; named in devices.def */

int cl_check(const cl_device *d, int32_t code, const char *what, kvant_diag *diag)
{
    if (code == CL_SUCCESS)
        return KVANT_OK;
    const int room = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
                     code == CL_OUT_OF_HOST_MEMORY;
    return kvant_fail(diag, room ? KVANT_ENOMEM : KVANT_EDEVICE, "device opencl: %s: code %d (%.60s)", what, (int)code,
                      d->name);
}

void *cl_grow(void *list, int n, int *cap, size_t each)
{
    if (n < *cap)
        return list;
    const int more = *cap ? 2 * *cap : 32;
    list = kvant_realloc(list, (size_t)*cap * each, (size_t)more * each);
    if (list)
        *cap = more;
    return list;
}

/* ---- choice ---- */

static uint64_t number_of(const cl_device *d, cl_device_id id, uint32_t what)
{
    uint64_t v = 0;                        /* 4 or 8 bytes; little-endian like the device */
    d->api.GetDeviceInfo(id, what, sizeof v, &v, NULL);
    return v;
}

/* GPUs before others before CPUs; among equals the loader's order. */
static int rank_of(const cl_device *d, cl_device_id id)
{
    const uint64_t type = number_of(d, id, CL_DEVICE_TYPE);
    return type & CL_TYPE_GPU ? 0 : type & CL_TYPE_CPU ? 2 : 1;
}

static int opencl_is_software(const kvant_device *base)
{
    const cl_device *d = (const cl_device *)base;
    return (number_of(d, d->id, CL_DEVICE_TYPE) & CL_TYPE_CPU) != 0;
}

static int list_devices(const cl_device *d, cl_device_id *out)
{
    cl_platform platforms[MAX_PLATFORMS];
    uint32_t n = 0, more = 0;
    int count = 0;
    if (d->api.GetPlatformIDs(MAX_PLATFORMS, platforms, &n) != CL_SUCCESS)
        return 0;
    for (uint32_t i = 0; i < n && i < MAX_PLATFORMS; i++) {
        const uint32_t room = (uint32_t)(MAX_DEVICES - count);
        if (room && d->api.GetDeviceIDs(platforms[i], 0xffffffffu, room, out + count, &more) == CL_SUCCESS)
            count += (int)(more < room ? more : room);
    }
    return count;
}

static int choose(cl_device *d, int index, kvant_diag *diag)
{
    cl_device_id ids[MAX_DEVICES];
    const int n = list_devices(d, ids);
    int left = index;
    if (n == 0)
        return kvant_fail(diag, KVANT_EDEVICE, "device opencl: no OpenCL device on this machine");
    for (int rank = 0; rank < 3; rank++)
        for (int i = 0; i < n; i++)
            if (rank_of(d, ids[i]) == rank && left-- == 0) {
                d->id = ids[i];
                return KVANT_OK;
            }
    return kvant_fail(diag, KVANT_EDEVICE, "device opencl:%d: this machine has %d device%s, numbered from 0", index, n,
                      n == 1 ? "" : "s");
}

/* ---- limits ---- */

static int read_limits(cl_device *d, kvant_diag *diag)
{
    const char *mask = getenv("KVANT_CL_MAX_ALLOC");
    const uint64_t group = number_of(d, d->id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    char *end = NULL;

    d->api.GetDeviceInfo(d->id, CL_DEVICE_NAME, sizeof d->name - 1, d->name, NULL);
    d->api.GetDeviceInfo(d->id, CL_DRIVER_VERSION, sizeof d->driver - 1, d->driver, NULL);
    d->api.GetDeviceInfo(d->id, CL_DEVICE_VERSION, sizeof d->version - 1, d->version, NULL);
    if (!(uint32_t)number_of(d, d->id, CL_DEVICE_ENDIAN_LITTLE))
        return kvant_fail(diag, KVANT_EDEVICE, "device opencl: %.60s is big-endian", d->name);
    if (group < PORT_THREADS)
        return kvant_fail(diag, KVANT_EDEVICE, "device opencl: %.60s has work-groups of %llu, wanted %d", d->name,
                          (unsigned long long)group, PORT_THREADS);
    d->port.max_alloc = (size_t)number_of(d, d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if (!mask)
        return KVANT_OK;
    const unsigned long long kib = strtoull(mask, &end, 10);
    if (end == mask || *end || kib < 1 || kib >= 1u << 30)
        return kvant_fail(diag, KVANT_EINVAL, "KVANT_CL_MAX_ALLOC=%.40s: wanted KiB, 1 to 1073741823", mask);
    if (kib << 10 < d->port.max_alloc)
        d->port.max_alloc = (size_t)kib << 10;
    return KVANT_OK;
}

/* ---- open, close ---- */

static int open_steps(cl_device *d, int index, kvant_diag *diag)
{
    int32_t rc;
    KVANT_TRY(cl_api_open(&d->api, diag));
    KVANT_TRY(choose(d, index, diag));
    KVANT_TRY(read_limits(d, diag));
    d->context = d->api.CreateContext(NULL, 1, &d->id, NULL, NULL, &rc);
    KVANT_TRY(cl_check(d, rc, "making a context", diag));
    d->queue = d->api.CreateCommandQueue(d->context, d->id, 0, &rc);
    return cl_check(d, rc, "making a queue", diag);
}

static void opencl_close(kvant_device *base)
{
    cl_device *d = (cl_device *)base;
    if (!d)
        return;
    if (d->queue) {
        d->api.Finish(d->queue);
        port_close(&d->port);
        d->api.ReleaseCommandQueue(d->queue);
    }
    cl_programs_drop(d);
    cl_memory_drop(d);
    if (d->context)
        d->api.ReleaseContext(d->context);
    kvant_free(d);
}

static int opencl_open(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    cl_device *d = kvant_calloc(1, sizeof *d);
    int rc;
    if (!d)
        return kvant_fail(diag, KVANT_ENOMEM, "device opencl: out of memory");
    d->port.base.vt = &kvant_device_opencl;
    d->port.dispatch = cl_dispatch;
    d->port.rest = cl_rest;
    rc = open_steps(d, cfg->index, diag);
    if (rc < 0) {
        opencl_close(&d->port.base);
        return rc;
    }
    *out = &d->port.base;
    return KVANT_OK;
}

static void opencl_describe(const kvant_device *base, char *buf, int cap)
{
    const cl_device *d = (const cl_device *)base;
    snprintf(buf, (size_t)cap, "OpenCL (%.100s, driver %.40s, %.60s)", d->name, d->driver, d->version);
}

/* All that the device has: OpenCL does not say what is free. */
static int64_t opencl_memory(const kvant_device *base)
{
    const cl_device *d = (const cl_device *)base;
    const int64_t bytes = (int64_t)number_of(d, d->id, CL_DEVICE_GLOBAL_MEM_SIZE);
    return bytes > 0 ? bytes : -1;
}

const kvant_device_vt kvant_device_opencl = {
    .name = "opencl",
    .open = opencl_open,
    .close = opencl_close,
    .describe = opencl_describe,
    .memory = opencl_memory,
    .is_software = opencl_is_software,
    .alloc = cl_alloc,
    .free = cl_free,
    .copy_in = cl_copy_in,
    .copy_out = cl_copy_out,
    .weight_load = port_weight_load,
    .weight_free = port_weight_free,
    .supports = port_supports,
    .submit = port_submit,
    .sync = cl_sync,
};
