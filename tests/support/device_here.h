/* tests/support/device_here.h: whether a device can be opened here; one line where it cannot. */
#ifndef KVANT_TESTS_DEVICE_HERE_H
#define KVANT_TESTS_DEVICE_HERE_H

#include "devices/device.h"
#include "support/check.h"

/* Anything but "not here" is a failure. */
static inline int device_here(const char *name)
{
    kvant_diag diag = { "" };
    kvant_device *dev = NULL;
    const int rc = device_open(name, NULL, &dev, &diag);

    if (rc == KVANT_OK)
        dev->vt->close(dev);
    else if (rc == KVANT_EDEVICE)
        printf("skipped: no device (%s)\n", diag.text);
    else
        CHECK(0, "%s: %s", name, diag.text);
    return rc == KVANT_OK;
}

#endif
