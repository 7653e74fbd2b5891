/* tests/support/shim_here.h: a test on the device metal-shim, with `bytes` of its memory, which is the program's. */
#ifndef KVANT_TESTS_SHIM_HERE_H
#define KVANT_TESTS_SHIM_HERE_H

#include "devices/device.h"
#include "support/check.h"

extern const kvant_device_vt kvant_device_metal_shim;
static kvant_device *dev;
static kvant_diag diag;

static inline int shim_here(const char *program, size_t bytes, void (*test)(void *memory))
{
    const kvant_device_config cfg = { 0 };
    void *memory = NULL;
    int code = kvant_device_metal_shim.open(&cfg, &dev, &diag);

    if (code == KVANT_OK)
        code = dev->vt->alloc(dev, bytes, &memory, &diag);
    CHECK(code == KVANT_OK, "%s", diag.text);
    if (code == KVANT_OK) {
        test(memory);
        dev->vt->free(dev, memory);
    }
    if (dev)
        dev->vt->close(dev);
    return check_end(program);
}

#endif
