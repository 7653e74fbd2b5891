/* device.h: the ops of kvant/ops.h on any device, for engines of your own: open a device, give it memory, weights and a
 * format's parameter, submit lists of ops.
 *
 * Addresses are device addresses: what kvant_device_alloc or kvant_device_adopt gave, or a place inside it; on the CPU
 * plain pointers.  Every pointer in an op's arguments is one, the integers of kvant_seqs included; on the CPU arrays of
 * the program itself will do.  Argument structs themselves, kvant_op lists, kvant_weight and kvant_format are host
 * memory, read until the call that takes them returns.
 * Order: lists, copy_in and copy_out of one device take effect in the order of the calls.  submit and copy_in return
 * before the work is done; copy_out and sync wait for it.
 * Threads: a device belongs to one thread at a time (the owner); two devices have nothing in common.
 * Errors: every int function returns 0 or a KVANT_E* code and fills diag; KVANT_EDEVICE: the device failed, and only
 * kvant_device_close may follow.  Example: examples/device.c.  Which device runs what: docs/devices.md. */
#ifndef KVANT_DEVICE_H
#define KVANT_DEVICE_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"
#include "kvant/ops.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

typedef struct kvant_device kvant_device;

typedef struct kvant_device_params {
    size_t size;                   /* of this struct: kvant_device_params_init writes it */
    int threads;                   /* CPU: worker threads, the caller's among them; 0: all CPUs */
    int reserved;                  /* 0 */
    /* CUDA: a cudaStream_t (CUstream) of the device's primary context, in which everything then runs, in order with the
     * caller's own work; it stays the caller's and must outlive the device.  NULL: a stream of the device's own.  The
     * default streams have names: cudaStreamLegacy, cudaStreamPerThread.  Other devices: KVANT_EUNSUPPORTED. */
    void *stream;
} kvant_device_params;

/* Everything 0 or NULL but the size. */
void kvant_device_params_init(kvant_device_params *p, size_t size);
static inline kvant_device_params kvant_device_defaults(void)
{
    kvant_device_params p;
    kvant_device_params_init(&p, sizeof p);
    return p;
}

/* Name of the i-th kind of device of this build ("cpu", "cuda", "vulkan", ...); NULL past the last.  The machine may
 * have none of it: kvant_device_open tells. */
const char *kvant_device_name(int i);
/* name: a kind, or with the number of a GPU of it ("cuda:1").  params NULL: the defaults.  KVANT_EDEVICE: no such
 * device, driver or library, with the reason; KVANT_EUNSUPPORTED: a stream, where the device takes none. */
int kvant_device_open(const char *name, const kvant_device_params *params, kvant_device **out, kvant_diag *diag);
/* Waits for what runs.  Memory and weights were freed before.  NULL is accepted. */
void kvant_device_close(kvant_device *d);
/* "CPU (AMD EPYC, 2 threads, avx2)": at most cap - 1 bytes and a NUL. */
void kvant_device_describe(const kvant_device *d, char *buf, int cap);
/* Bytes free on the device, or -1: not known. */
int64_t kvant_device_memory(const kvant_device *d);

/* ---- memory ---- */

/* bytes of device memory, not cleared, on a boundary of 64 bytes at least.  KVANT_ENOMEM. */
int kvant_device_alloc(kvant_device *d, size_t bytes, void **addr, kvant_diag *diag);
/* Frees an address of alloc or param_load; waits for what runs.  NULL is accepted. */
void kvant_device_free(kvant_device *d, void *addr);
/* The caller's memory as a device address, without a copy: CPU: any memory of this process; CUDA: what cudaMalloc,
 * cudaMallocManaged or another library on this GPU allocated, on a boundary of 16 bytes.  It stays the caller's, is
 * freed by the caller after the last op that names it has run, and was written in the device's stream or before submit.
 * KVANT_EINVAL: not such memory; KVANT_EUNSUPPORTED: this device takes none (its allocations are buffers). */
int kvant_device_adopt(kvant_device *d, void *memory, size_t bytes, void **addr, kvant_diag *diag);
/* Host to device; src may change once it returned. */
int kvant_device_copy_in(kvant_device *d, void *addr, const void *src, size_t bytes, kvant_diag *diag);
/* Device to host, after all that was submitted. */
int kvant_device_copy_out(kvant_device *d, void *dst, const void *addr, size_t bytes, kvant_diag *diag);

/* ---- weights, parameters, layouts ---- */

/* A format's parameter (KVANT_FORMAT_PARAM: the projection of qjl1_256) from host memory to an address for
 * kvant_kv_side.param.  Nothing may write there; free it with kvant_device_free. */
int kvant_device_param_load(kvant_device *d, const void *host, size_t bytes, void **addr, kvant_diag *diag);
/* w->data is host memory in file layout (kvant/wtype.h); sets w->packed.  If it sets w->data to NULL, the device has a
 * copy of its own, else the bytes must stay as long as the weight.  compute: enum kvant_compute, as the ops over it.
 * KVANT_EUNSUPPORTED: a type that the device cannot multiply with. */
int kvant_device_weight_load(kvant_device *d, kvant_weight *w, int compute, kvant_diag *diag);
void kvant_device_weight_free(kvant_device *d, kvant_weight *w);
/* Sets k.layout and v.layout of a layer that will run this attention (read: the sides' formats, h, h_kv, d_k, d_v,
 * compute) to the order of bytes that the device wants in full pages.  Without it a layer has rows, which every device
 * reads.  Private pages are written by page_seal alone: the side needs an exact tail. */
void kvant_device_layout(kvant_device *d, kvant_attn_args *a);
/* One page of a side, h heads of d values: h * 64 rows of row_bytes in host memory, from and to either layout. */
int kvant_device_page_read(kvant_device *dev, const kvant_kv_side *s, int h, int d, int page, void *rows,
                           kvant_diag *diag);
int kvant_device_page_write(kvant_device *dev, const kvant_kv_side *s, int h, int d, int page, const void *rows,
                            kvant_diag *diag);

/* ---- ops ---- */

/* submit would take this op: KVANT_OK, KVANT_EINVAL (kvant_op_check refuses its arguments) or
 * KVANT_EUNSUPPORTED with the reason. */
int kvant_device_supports(kvant_device *d, const kvant_op *op, kvant_diag *diag);
/* Runs ops[n] in order.  Each is asked for with kvant_device_supports first, and on an error nothing runs.
 * key other than 0 promises that the list has the same ops and argument structs (addresses included) as the last one
 * under that key, but for the contents of buffers: a device may then replay a recording (CUDA graphs; not in the legacy
 * stream). */
int kvant_device_submit(kvant_device *d, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag);
/* Waits for all that was submitted; errors of the device that came meanwhile. */
int kvant_device_sync(kvant_device *d, kvant_diag *diag);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
