/* cuda_api.h: what libkvant and libkvant-cuda.so agree on.  The library exports one symbol, kvant_device_v1; a change
 * of any struct that crosses the border needs a new number, and sizes are compared so that a stale file is refused. */
#ifndef KVANT_DEVICES_CUDA_API_H
#define KVANT_DEVICES_CUDA_API_H

#include "devices/device.h"
#include "ops/fuse/fuse.h"

enum { KVANT_CUDA_VERSION = 5 };

/* The loading library describes itself: its contract number and the sizes of the structs that both sides read. */
typedef struct kvant_cuda_host {
    int version;
    int op_count;
    size_t form_count; /* of fused.def; no int: both sides compare bytes, of which none may be padding */
    size_t args_bytes; /* sum of the argument structs of ops.def */
    size_t format_bytes, weight_bytes, vt_bytes;
} kvant_cuda_host;

/* The device's vtable, or NULL where the two sides do not fit. */
typedef const kvant_device_vt *(*kvant_device_v1_fn)(const kvant_cuda_host *host);

static inline kvant_cuda_host kvant_cuda_self(void)
{
    kvant_cuda_host h;
    h.version = KVANT_CUDA_VERSION;
    h.op_count = KVANT_OP_COUNT;
    h.form_count = (size_t)FUSED_COUNT;
#define KVANT_OP(ID, name, args, tol, fused, text) +sizeof(args)
    h.args_bytes = 0
#include "kvant/ops.def"
        ;
#undef KVANT_OP
    h.format_bytes = sizeof(kvant_format);
    h.weight_bytes = sizeof(kvant_weight);
    h.vt_bytes = sizeof(kvant_device_vt);
    return h;
}

#endif
