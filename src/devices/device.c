/* device.c: the list of devices and opening by name.  Owns no state. */
#include "devices/device.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "ops/fuse/fuse.h"

#define KVANT_DEVICE(name) extern const kvant_device_vt kvant_device_##name;
#include "devices/devices.def"
#undef KVANT_DEVICE

#define KVANT_DEVICE(name) &kvant_device_##name,
static const kvant_device_vt *const device_list[] = {
#include "devices/devices.def"
};
#undef KVANT_DEVICE

int kvant_devices_count(void)
{
    return (int)(sizeof device_list / sizeof device_list[0]);
}

const kvant_device_vt *kvant_devices_at(int i)
{
    return i >= 0 && i < kvant_devices_count() ? device_list[i] : NULL;
}

static void known_names(char *buf, size_t cap)
{
    buf[0] = 0;
    for (int i = 0; i < kvant_devices_count(); i++) {
        strncat(buf, i ? ", " : "", cap - strlen(buf) - 1);
        strncat(buf, device_list[i]->name, cap - strlen(buf) - 1);
    }
}

static const kvant_device_vt *named(const char *name)
{
    const size_t len = strcspn(name, ":");

    for (int i = 0; i < kvant_devices_count(); i++)
        if (strlen(device_list[i]->name) == len && strncmp(device_list[i]->name, name, len) == 0)
            return device_list[i];
    return NULL;
}

int kvant_device_find(const char *name, const kvant_device_vt **vt, int *index, kvant_diag *diag)
{
    const char *colon = strchr(name, ':');
    char known[128], *end = NULL;
    const long v = colon ? strtol(colon + 1, &end, 10) : 0;

    if (colon && (end == colon + 1 || *end || v < 0 || v > 255))
        return kvant_fail(diag, KVANT_EDEVICE, "device %.40s: index must be 0 to 255", name);
    *index = colon ? (int)v : *index;
    *vt = named(name);
    if (*vt)
        return KVANT_OK;
    known_names(known, sizeof known);
    return kvant_fail(diag, KVANT_EDEVICE, "device %.40s: unknown; this build has: %s", name, known);
}

int device_param_load(kvant_device *d, const void *host, size_t bytes, void **addr, kvant_diag *diag)
{
    if (d->vt->param_load)
        return d->vt->param_load(d, host, bytes, addr, diag);
    KVANT_TRY(d->vt->alloc(d, bytes, addr, diag));
    return d->vt->copy_in(d, *addr, host, bytes, diag);
}

static int is_supported(void *device, const kvant_op *op)
{
    kvant_device *d = device;
    kvant_diag why;
    return d->vt->supports(d, op, &why) == KVANT_OK;
}

int device_next_op(kvant_device *d, const kvant_op *ops, int n, int before, kvant_op *out)
{
    return fuse_next(ops, n, fuse_passes(before), is_supported, d, out);
}

int device_open(const char *name, const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag)
{
    kvant_device_config c = cfg ? *cfg : (kvant_device_config){ 0 };
    const kvant_device_vt *vt;

    KVANT_TRY(kvant_device_find(name, &vt, &c.index, diag));
    return vt->open(&c, out, diag);
}
