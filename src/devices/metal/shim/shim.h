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

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "devices/metal/shim/shim_abi.h"

/* Stacks are not a power of two apart, so that they do not share lines of the CPU's caches. */
enum { SHIM_THREADS = 1024, SHIM_STACK = (64 << 10) + 320, SHIM_ARRAYS = 32, SHIM_BUFFERS = 31,
       SHIM_TEAM = 32 };                           /* threads of a simdgroup */

extern const shim_hooks shim_hooks_here;

/* ---- a program: shim_program.c ---- */

typedef struct shim_program {
    void *library;
    void (*entry)(void **args);                    /* buffers and params, two uint3, the simdgroup */
    int n_args;                                    /* buffers and params of the kernel */
    uintptr_t begin, end;                          /* its image: constants are read there */
} shim_program;

/* Compiles text and loads the kernel. */
int shim_program_load(shim_program *p, const char *kernel, const char *text, kvant_diag *diag);
void shim_program_free(shim_program *p);

/* As shim_program_load, for the devices of several threads: one text is compiled once and kept until as many have
 * dropped it as have got it: shim_share.c.  kernel must outlive it. */
int shim_program_get(const shim_program **out, const char *kernel, const char *text, kvant_diag *diag);
void shim_program_drop(const shim_program *p);

/* ---- a launch ---- */

typedef struct shim_buffer { void *addr; size_t bytes; int write; } shim_buffer;

typedef struct shim_launch {
    const char *kernel;
    const shim_program *program;
    shim_buffer buffers[SHIM_BUFFERS];             /* params too, the last */
    int n_buffers, threads;
    uint32_t groups[3];
} shim_launch;

/* Runs it; KVANT_EINVAL with what was found. */
int shim_run(const shim_launch *l, kvant_diag *diag);

/* ---- the group that runs: shim_run.c and shim_memory.c ---- */

/* A stamp names the threads that touched a few bytes of threadgroup memory or of a buffer that is written.  Moments
 * only grow: one for each stretch of a group between barriers.  A thread of -1: several; below: a simdgroup, -2 the
 * first, whose own next access wants a barrier too. */
typedef struct shim_stamp { uint32_t wrote, read; int32_t writer, reader; } shim_stamp;

/* A stamp for every 1 << shift bytes from begin on, which is a multiple of 4; those touched so far: first to end. */
typedef struct shim_record { uintptr_t begin; shim_stamp *stamps; size_t first, end; int shift; } shim_record;

#define SHIM_CALM_ALL UINT32_MAX                   /* shim_view: everyone's reads */

enum { SHIM_FRESH, SHIM_WAITS, SHIM_ENDED, SHIM_MATRIX };
enum { SHIM_LOAD, SHIM_STORE, SHIM_MULTIPLY };     /* metal_stdlib.h has them too */

/* part: two elements of a thread of d, a, b, c, or of the matrix that is moved. */
typedef struct shim_op { int kind, line, bytes; float *part[4]; const void *p; uint64_t stride; } shim_op;

/* A fiber goes on at its mark.  Switches are most of what a kernel with many barriers costs: the compiler's own pair is
 * a few instructions, that of the C library a call that also looks for handlers of cancellation. */
#if defined(__clang__) && !defined(__x86_64__)     /* has no such pair there */
#include <setjmp.h>
typedef jmp_buf shim_mark;
#define SHIM_MARK(m) _setjmp(m)
#define SHIM_JUMP(m) _longjmp(m, 1)
#else
typedef void *shim_mark[5];
#define SHIM_MARK(m) __builtin_setjmp(m)
#define SHIM_JUMP(m) __builtin_longjmp(m, 1)
#endif

typedef struct shim_fiber {
    shim_mark at;
    int state, ready;                              /* ready: to be run in this stretch */
    int arrays;                                    /* threadgroup arrays asked for */
    int device, line;                              /* of the barrier that it waits at */
    shim_op op;                                    /* that it waits at */
} shim_fiber;

/* It lies at a multiple of SHIM_REGION, before the stacks of its threads. */
typedef struct shim_group {
    shim_view view;                                /* first: a kernel finds it by the address of its stack */
    const shim_launch *launch;
    int team, team_threads, step;                  /* the simdgroup that runs: its first thread; 1 or -1 */
    uint32_t at[3];
    uint32_t device_moment;                        /* now, for device memory */
    uint32_t first_moment, launch_moment;          /* of this group, of this launch */
    shim_record arrays[SHIM_ARRAYS];
    size_t array_end[SHIM_ARRAYS];                 /* from local on */
    int n_arrays;
    unsigned char array_at[2 * SHIM_LOCAL / 16];   /* 1 + the array of these 16 bytes, or 0 */
    size_t local_used;
    shim_stamp *stamps;                            /* of the arrays, then of the buffers that are written */
    shim_record buffers[SHIM_BUFFERS];
    void *block;                                   /* all of this memory */
    size_t block_bytes;
    shim_mark scheduler;
    char found[320];                               /* what was found; "": nothing */
    shim_fiber fibers[SHIM_THREADS];
} shim_group;

extern _Thread_local shim_group *shim_now;

/* Ends the launch with what was found; called by a fiber. */
_Noreturn void shim_found(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Lets others run until this fiber is resumed. */
void shim_pause(int state);
void shim_matrix(int kind, int line, float **parts, const void *p, uint64_t stride, int bytes);
void shim_access(const void *p, int bytes, int write);
void shim_word(const void *p, int write);
void *shim_local(size_t bytes);

#endif
