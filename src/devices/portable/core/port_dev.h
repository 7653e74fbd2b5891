/* port_dev.h: the host side that every device of the portable kernels shares (opencl, metal, metal-shim): an op's file
 * makes port_calls of its arguments; a device offers memory (kvant_device_vt) and `dispatch`.
 *
 * A device's object begins with a port_device; its vtable has port_supports, port_submit, port_weight_load,
 * port_weight_free; its close calls port_close, and port_params_drop where it does not drop all of
 * its memory at once. */
#ifndef KVANT_DEVICES_PORT_DEV_H
#define KVANT_DEVICES_PORT_DEV_H

#include <stdint.h>
#include <string.h>
#include "base/error.h"
#include "devices/device.h"
#include "ops/fuse/fuse.h"

enum { PORT_THREADS = 64, PORT_MAX_BUFFERS = 15, PORT_DEFINES = 512, PORT_MAX_PARAMS = 8 };

/* ---- kernels ---- */

/* Fused forms (ops/fuse/fused.def) whose column `on` names these devices. */
#define PORT_HAS_portable(...) __VA_ARGS__
#define PORT_HAS_gpus(...) __VA_ARGS__
#define PORT_HAS_vulkan(...)
#define PORT_HAS_vulkan_cuda(...)
#define PORT_HAS_cuda(...)

#define PORT_KERNEL(name, file) PORT_KERNEL_##name,
enum port_kernel_id {
#include "devices/portable/core/port_kernels.def"
    PORT_KERNEL_COUNT
};
#undef PORT_KERNEL

/* The kernel's name and its .k file, "ops/norm.k". */
typedef struct port_kernel { const char *name, *file; } port_kernel;
extern const port_kernel port_kernels[PORT_KERNEL_COUNT];

/* The whole text of a program: defines ("#define A b\n" lines), then the file with its quoted includes in place, each
 * once.  The caller frees it (kvant_free).  KVANT_ENOMEM, KVANT_EINVAL where a file is not there. */
int port_source(const char *file, const char *defines, char **out, kvant_diag *diag);

/* ---- one dispatch ---- */

typedef struct port_buffer { const void *addr; size_t bytes; int write; } port_buffer;

typedef struct port_call {
    int kernel, n_buffers;
    port_buffer buffer[PORT_MAX_BUFFERS];  /* addr NULL: not used; bytes: what may be touched from addr on */
    const void *params;
    size_t params_bytes;
    char defines[PORT_DEFINES];
} port_call;

#define PORT_CALL(name, p) { .kernel = PORT_KERNEL_##name, .params = &(p), .params_bytes = sizeof(p) }

typedef struct port_device port_device;
struct port_device {
    kvant_device base;
    /* Queues groups x y z after what it depends on. */
    int (*dispatch)(port_device *d, const port_call *c, int64_t x, int64_t y, int64_t z, kvant_diag *diag);
    /* Bytes from addr to the end of its allocation, 0: not an address of this device. */
    size_t (*rest)(const port_device *d, const void *addr);
    int matrices;                          /* simdgroups of 32 threads have matrices (Metal's words): *_matrix.k */
    size_t max_alloc;                      /* the largest allocation; a larger weight lies in parts */
    void *scratch;                         /* of the op that runs; grown before a list, never inside */
    size_t scratch_bytes;
    struct { const void *host; void *dev; } params[PORT_MAX_PARAMS];       /* format parameters given as host memory */
};

/* Buffers in the order of the kernel's indices. */
void port_read(port_call *c, const void *addr, size_t bytes);
void port_write(port_call *c, const void *addr, size_t bytes);
/* Buffers for all operands of an op, in its card's order. */
void port_operands(port_device *d, port_call *c, int id, const void *args);
/* A line of the program: port_define(&c, "WT wt_%s", name). */
__attribute__((format(printf, 2, 3))) void port_define(port_call *c, const char *fmt, ...);
/* Spans of find_span (seqs.h) at most: each sequence may begin and end inside of one. */
int64_t port_spans(const kvant_seqs *q, int n);
/* No groups: nothing is queued. */
int port_dispatch(port_device *d, const port_call *c, int64_t x, int64_t y, int64_t z, kvant_diag *diag);

/* ---- ops ---- */

/* supports and scratch may be NULL: always, none. */
typedef struct port_op {
    const char *name;
    int (*supports)(port_device *d, const void *args, kvant_diag *diag);
    size_t (*scratch)(port_device *d, const void *args);
    int (*run)(port_device *d, const void *args, kvant_diag *diag);
} port_op;

#define PORT_OP_SCRATCH(op, supports_, scratch_, run_)                                                                \
    const port_op port_op_##op = { .name = #op, .supports = supports_, .scratch = scratch_, .run = run_ };
#define PORT_OP(op, supports_, run_) PORT_OP_SCRATCH(op, supports_, NULL, run_)

#define KVANT_OP(ID, name, args, tol, fused, text) extern const port_op port_op_##name;
#include "kvant/ops.def"
#undef KVANT_OP

/* Kernels of fused forms: args are the form's ops; no scratch. */
#define FUSED(ID, name, on, ins, links, where) PORT_HAS_##on(extern const port_op port_fused_##name;)
#include "ops/fuse/fused.def"

int port_supports(kvant_device *base, const kvant_op *op, kvant_diag *diag);
int port_submit(kvant_device *base, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag);
void port_close(port_device *d);           /* what the shared side allocated */

/* ---- weights ---- */

/* w->packed points to this: rows in file layout, of all experts, rows_per of them in each part. */
typedef struct port_weight {
    const char *type;                      /* wt_<type> of cards/decode.h */
    int halves;                            /* whatever its bytes are, finite values fit a half */
    void **part;
    int n_parts;
    int64_t rows, rows_per;
    size_t row_bytes;
    void *scale;
} port_weight;

int port_weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag);
void port_weight_free(kvant_device *base, kvant_weight *w);

#endif
