/* tests/support/device_here.h: whether a device can be opened here; one line where it cannot. */
#ifndef KVANT_TESTS_DEVICE_HERE_H
#define KVANT_TESTS_DEVICE_HERE_H

#include "devices/device.h"
#include "support/check.h"

/* Anything but "not here" is a failure.  "cpu,vulkan": both. */
static inline int device_here(const char *name)
{
    const char *comma = strchr(name, ',');
    kvant_diag diag = { "" };
    kvant_device *dev = NULL;
    char first[64];

    if (comma && !device_here(comma + 1))
        return 0;
    snprintf(first, sizeof first, "%.*s", (int)(comma ? comma - name : 63), name);
    const int rc = device_open(first, NULL, &dev, &diag);

    if (rc == KVANT_OK)
        dev->vt->close(dev);
    else if (rc == KVANT_EDEVICE)
        printf("skipped: no device (%s)\n", diag.text);
    else
        CHECK(0, "%s: %s", name, diag.text);
    return rc == KVANT_OK;
}

#endif
