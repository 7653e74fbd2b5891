/* cl_dev.h: the insides of the device "opencl": memory, programs and a queue under the shared host side
 * (devices/portable/core/port_dev.h).
 *
 * An address is a number of ours, (block << 40) + offset: a cl_mem has none.  The queue keeps order, so nothing needs
 * events.  KVANT_CL_MAX_ALLOC=N (KiB) lowers the device's largest allocation, for tests. */
#ifndef KVANT_DEVICES_CL_DEV_H
#define KVANT_DEVICES_CL_DEV_H

#include "devices/opencl/cl_api.h"
#include "devices/portable/core/port_dev.h"

enum { CL_BLOCK_SHIFT = 40 };

typedef struct cl_block { cl_mem mem; size_t bytes; } cl_block;        /* mem NULL: free */

typedef struct cl_built {          /* one program; its kernels are looked up in the list below */
    const char *file;
    char *defines;
    cl_program program;
} cl_built;

typedef struct cl_ready {          /* one kernel of a program */
    int kernel;
    const char *defines;           /* the program's */
    cl_kernel handle;
} cl_ready;

typedef struct cl_device {
    port_device port;
    cl_api api;
    cl_device_id id;
    cl_context context;
    cl_queue queue;
    cl_block *blocks;              /* number n is that of addresses (n + 1) << 40 */
    int n_blocks, cap_blocks;
    cl_built *programs;
    int n_programs, cap_programs;
    cl_ready *kernels;
    int n_kernels, cap_kernels;
    char name[128], driver[128], version[128];
} cl_device;

/* KVANT_OK, KVANT_ENOMEM or KVANT_EDEVICE for the code that `what` returned. */
int cl_check(const cl_device *d, int32_t code, const char *what, kvant_diag *diag);
/* Makes room for one more element: the list, or NULL. */
void *cl_grow(void *list, int n, int *cap, size_t each);

/* cl_memory.c */
int cl_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag);
void cl_free(kvant_device *base, void *addr);
int cl_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag);
int cl_copy_out(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag);
size_t cl_rest(const port_device *base, const void *addr);
const cl_block *cl_block_of(const cl_device *d, const void *addr, size_t *at);
void cl_memory_drop(cl_device *d);

/* cl_program.c */
int cl_kernel_get(cl_device *d, const port_call *c, cl_kernel *out, kvant_diag *diag);
void cl_programs_drop(cl_device *d);

/* cl_queue.c */
int cl_dispatch(port_device *base, const port_call *c, int64_t x, int64_t y, int64_t z, kvant_diag *diag);
int cl_sync(kvant_device *base, kvant_diag *diag);

#endif
