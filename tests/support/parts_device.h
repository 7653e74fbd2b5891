/* tests/support/parts_device.h: one variant of the CPU's kernels as a device, so that the op harness (verify/verify.h)
 * checks it: every submit cuts the ops into another number of parts, ops of several stages also on real threads, and
 * scratch is guarded.  The harness wants the same bits from every submit of a case: here that means that neither the
 * number of parts nor their order changes a result. */
#ifndef KVANT_TESTS_PARTS_DEVICE_H
#define KVANT_TESTS_PARTS_DEVICE_H

#include "devices/device.h"

/* The device of a variant ("ref", "avx2", ...); it supports the ops that have it.  One at a time. */
kvant_device *parts_device(const char *variant);

#endif
