/* shim.h: runs Metal kernels on the CPU to find what a GPU would not say.  A kernel's text, with the dialect that a
 * Mac's compiler reads, is compiled as C++ against metal_stdlib.h with the instrumentation of -fsanitize=thread, whose
 * calls come here (shim_memory.c) instead of to that sanitizer.  The threads of a group are fibers that run from
 * barrier to barrier (shim_run.c).  Found:
 *   memory outside of the buffers that the host bound, writes to those that it bound for reading
 *   threadgroup memory outside of its array, or read before it was written
 *   two threads at the same byte, one of them writing, with no barrier between (threadgroup and device memory), and the
 *   same between the groups of one launch
 *   a barrier that not every thread of the group reaches
 *   a matrix operation that not every thread of the simdgroup calls with the same arguments (shim_matrix.c) */
#ifndef KVANT_DEVICES_METAL_SHIM_H
#define KVANT_DEVICES_METAL_SHIM_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

enum { SHIM_THREADS = 1024, SHIM_STACK = 64 << 10, SHIM_LOCAL = 32 << 10, SHIM_ARRAYS = 32, SHIM_BUFFERS = 31,
       SHIM_TEAM = 32 };                           /* threads of a simdgroup */

/* What the compiled text calls. */
typedef struct shim_hooks {
    void (*access)(const void *p, int bytes, int write);
    void *(*local)(size_t bytes);                  /* the next threadgroup array of the kernel */
    void (*barrier)(int device, int line);         /* device: device memory too */
    void (*matrix)(int kind, int line, float **parts, const void *p, uint64_t stride, int bytes);
} shim_hooks;

/* ---- a program: shim_program.c ---- */

typedef struct shim_program {
    uint64_t key;                                  /* of the text */
    void *library;
    const shim_hooks **hooks;                      /* its variable */
    void (*entry)(void **args);                    /* buffers and params, two uint3, the simdgroup */
    int n_args;                                    /* buffers and params of the kernel */
    uintptr_t begin, end;                          /* its image: constants are read there */
} shim_program;

/* Compiles text and loads the kernel. */
int shim_program_load(shim_program *p, const char *kernel, const char *text, kvant_diag *diag);
void shim_program_free(shim_program *p);

/* ---- a launch ---- */

/* shared: it is read, and overlaps one that is written (shim_run sets it). */
typedef struct shim_buffer { void *addr; size_t bytes; int write, shared; } shim_buffer;

typedef struct shim_launch {
    const char *kernel;
    shim_program *program;
    shim_buffer buffers[SHIM_BUFFERS];             /* params too, the last */
    int n_buffers, threads;
    uint32_t groups[3];
} shim_launch;

/* Runs it; KVANT_EINVAL with what was found. */
int shim_run(shim_launch *l, kvant_diag *diag);

/* ---- the group that runs: shim_run.c and shim_memory.c ---- */

/* Who touched a byte of threadgroup memory or of a buffer that is written.  Moments only grow: one for each stretch of
 * a group between barriers.  A thread of -1: several; below: a simdgroup, -2 the
 * first, whose own next access wants a barrier too. */
typedef struct shim_stamp { uint64_t wrote, read; int32_t writer, reader; } shim_stamp;

enum { SHIM_FRESH, SHIM_WAITS, SHIM_ENDED, SHIM_MATRIX };
enum { SHIM_LOAD, SHIM_STORE, SHIM_MULTIPLY };     /* metal_stdlib.h has them too */

/* part: two elements of a thread of d, a, b, c, or of the matrix that is moved. */
typedef struct shim_op { int kind, line, bytes; float *part[4]; const void *p; uint64_t stride; } shim_op;

typedef struct shim_fiber {
    jmp_buf at;
    int state, ready;                              /* ready: to be run in this stretch */
    shim_op op;                                    /* that it waits at */
    int arrays;                                    /* threadgroup arrays asked for */
    int device, line;                              /* of the barrier that it waits at */
} shim_fiber;

typedef struct shim_group {
    const shim_launch *launch;
    int thread;                                    /* the one that runs, or as in a stamp */
    uint32_t at[3];
    uint64_t moment, device_moment;                /* now, for threadgroup memory and for device memory */
    uint64_t first_moment, launch_moment;          /* of this group, of this launch */
    size_t array_at[SHIM_ARRAYS], array_bytes[SHIM_ARRAYS];
    int array_unit[SHIM_ARRAYS];                   /* bytes that a stamp stands for */
    int n_arrays;
    int plain;                                     /* a buffer that is only read, the last one found; else the params */
    size_t local_used;
    unsigned char *local, *stacks;
    shim_stamp *local_stamps;
    shim_stamp *stamps;                            /* of the buffers that are written, one after the other */
    size_t n_stamps, stamp_at[SHIM_BUFFERS];
    shim_fiber fibers[SHIM_THREADS];
    jmp_buf scheduler;
    char found[320];                               /* what was found; "": nothing */
} shim_group;

extern _Thread_local shim_group *shim_now;

/* Ends the launch with what was found; called by a fiber. */
_Noreturn void shim_found(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Lets others run until this fiber is resumed. */
void shim_pause(int state);
void shim_matrix(int kind, int line, float **parts, const void *p, uint64_t stride, int bytes);
void shim_access(const void *p, int bytes, int write);
void *shim_local(size_t bytes);

#endif
