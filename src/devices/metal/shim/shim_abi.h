/* shim_abi.h: what the shim and the kernels that it compiles both know.  shim_program.c writes this text before that of
 * metal_stdlib.h, where no C header is known and `thread` is an empty word: it includes nothing. */
#ifndef KVANT_DEVICES_METAL_SHIM_ABI_H
#define KVANT_DEVICES_METAL_SHIM_ABI_H

/* A group lies at a multiple of SHIM_REGION, and the stacks of its threads behind it. */
enum { SHIM_REGION = 128 << 20, SHIM_LOCAL = 32 << 10, SHIM_OPEN = 64, SHIM_PAGE = 4096 };

/* The compiled text calls these. */
typedef struct shim_hooks {
    void (*access)(const void *p, int bytes, int write);
    void (*word)(const void *p, int write);        /* an access of four bytes that may be threadgroup memory */
    void *(*local)(__SIZE_TYPE__ bytes);           /* the next threadgroup array of the kernel */
    void (*barrier)(int device_memory, int line);  /* device_memory: that too */
    void (*matrix)(int kind, int line, float **parts, const void *p, __UINT64_TYPE__ stride, int bytes);
} shim_hooks;

/* A kernel's own code looks at this, the beginning of its group, before it calls access.  open: bytes that every thread
 * may read; the entry of an address is that of its page.  calm: of a word of threadgroup memory, the moment and, in the
 * lower half, whose accesses change nothing any more: those of a thread that has read and written it, or, with all bits
 * set, everyone's reads. */
typedef struct shim_view {
    __UINTPTR_TYPE__ stacks, stacks_bytes, local;
    struct { __UINTPTR_TYPE__ from, bytes; } open[SHIM_OPEN];
    __INT32_TYPE__ runs;                           /* the thread that runs, or as in a stamp */
    __UINT32_TYPE__ moment;                        /* now, for threadgroup memory */
    __UINT64_TYPE__ calm[2 * SHIM_LOCAL / 4];
} shim_view;

#endif
