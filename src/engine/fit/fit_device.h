/* engine/fit/fit_device.h: a look at a device: opened, shown, closed. */
#ifndef KVANT_ENGINE_FIT_DEVICE_H
#define KVANT_ENGINE_FIT_DEVICE_H

#include "devices/device.h"
#include "kvant/fit.h"

/* dev is open for the call, or NULL, and then why says what is wrong. */
typedef void (*device_see)(void *ctx, const char *name, kvant_device *dev, const char *why);
/* Number `index` of a kind, called `name`; 0: there is none, which is shown of number 0 only. */
int device_look(const kvant_device_vt *vt, int index, const char *name, device_see see, void *ctx);

/* Returns 1 if this is this machine's CPU, whose memory is all there is. */
int device_is_host(const char *device);
/* Returns 1 if this names the CPU, as NULL does. */
int device_is_cpu(const char *device);

#endif
