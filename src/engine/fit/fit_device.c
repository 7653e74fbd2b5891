/* fit_device.c: which device of this machine, and the memory it has left. */
#include "engine/fit/fit_device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"

int device_is_host(const char *device)
{
    return !device || strcmp(device, "cpu") == 0;
}

int device_is_cpu(const char *device)
{
    return !device || strcmp(device, "cpu") == 0 || (strncmp(device, "cpu:", 4) == 0 && !strchr(device, ','));
}

int device_look(const kvant_device_vt *vt, int index, const char *name, device_see see, void *ctx)
{
    const kvant_device_config cfg = { .index = index };
    kvant_device *d = NULL;
    kvant_diag diag = { "" };
    const int here = vt->open(&cfg, &d, &diag) == KVANT_OK;

    if (here || index == 0)
        see(ctx, here ? name : vt->name, d, diag.text);
    if (here)
        vt->close(d);
    return here;
}

static int is_software(const kvant_device *d)
{
    return d->vt->is_software && d->vt->is_software(d);
}

/* ---- which ---- */

typedef struct listener {
    kvant_fit_note note;
    void *user;
    int gpu;
} listener;

static void look(void *ctx, const char *name, kvant_device *d, const char *why)
{
    listener *l = ctx;
    const int software = d && is_software(d);
    char about[256];

    l->gpu = d && !software;
    if (software)
        d->vt->describe(d, about, sizeof about);
    if (l->note && !l->gpu)
        l->note(l->user, name, software ? about : why, software);
}

static int is_gpu(const kvant_device_vt *vt, kvant_fit_note note, void *user)
{
    listener l = { note, user, 0 };

    if (!device_is_cpu(vt->name))
        device_look(vt, 0, vt->name, look, &l);
    return l.gpu;
}

/* The order is that of devices.def, which puts the fastest of several devices for one GPU first; of each kind the first
 * counts, because loaders put software drivers last. */
const char *kvant_fit_gpu(kvant_fit_note note, void *user)
{
    for (int i = 0; i < kvant_devices_count(); i++)
        if (is_gpu(kvant_devices_at(i), note, user))
            return kvant_devices_at(i)->name;
    return NULL;
}

/* CUDA's kernels were run on GPUs.  Device files of the Linux kernel are checked first: opening a driver takes time. */
const char *kvant_fit_device(int *passed_over, kvant_fit_note note, void *user)
{
    const int nvidia = access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
    const kvant_device_vt *vt;
    int index = 0;

    *passed_over = 0;
    if (nvidia && kvant_device_find("cuda", &vt, &index, NULL) == KVANT_OK && is_gpu(vt, note, user))
        return vt->name;
    *passed_over = nvidia || access("/dev/dri/renderD128", F_OK) == 0;
    return "cpu";
}

/* ---- memory ---- */

/* Bytes that a driver's library, its scratch blocks and other programs may still want of a GPU. */
static const int64_t DEVICE_SPARE = 1 << 30;

static int64_t least(int64_t a, int64_t b)
{
    return b >= 0 && (a < 0 || b < a) ? b : a;
}

static void ask(void *ctx, const char *name, kvant_device *d, const char *why)
{
    int64_t *bytes = ctx;

    (void)name, (void)why;
    *bytes = d && d->vt->memory ? d->vt->memory(d) : -1;
    if (*bytes < 0)
        return;
    *bytes -= least(*bytes / 4, DEVICE_SPARE);
    if (is_software(d))
        *bytes = least(*bytes, mem_available());
}

static int64_t one_memory(const char *device, int64_t limit)
{
    const kvant_device_vt *vt;
    int index = 0;
    int64_t bytes = -1;

    if (device_is_cpu(device))
        return least(mem_available(), limit > 0 ? limit : -1);
    if (kvant_device_find(device, &vt, &index, NULL) < 0)
        return -1; /* kvant_engine_create says why */
    device_look(vt, index, device, ask, &bytes);
    return bytes < 0 ? -1 : least(bytes, limit > 0 ? limit : -1);
}

int64_t kvant_fit_memory(const char *device, int64_t limit)
{
    int64_t sum = 0, bytes;
    int cpu = 0;

    if (!device || !strchr(device, ','))
        return one_memory(device, limit);
    for (size_t n; *device; device += n + (device[n] == ',')) {
        char name[64];
        n = strcspn(device, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, device);
        if (device_is_cpu(name) && cpu++)
            continue; /* the memory of all of them */
        bytes = one_memory(name, limit);
        if (bytes < 0)
            return -1;
        sum += bytes;
    }
    return sum;
}
