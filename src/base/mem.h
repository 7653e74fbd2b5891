/* base/mem.h: the one allocation hook, the step arena, what memory is left.
 *
 * All heap memory of kvant comes from kvant_alloc: 64-byte aligned, and counted down by the fault tests
 * (mem_fail_after).  Sizes are built with base/size.h.  A thread whose work is over (base/thread/guard.h) gets none.
 * A library that allocates is given mem_library_alloc where it takes a function; jansson goes on with a shorter text
 * when a buffer of its lexer cannot grow, so whoever called one compares mem_failures before and after. */
#ifndef KVANT_BASE_MEM_H
#define KVANT_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "base/size.h"

/* 64-byte aligned, not cleared; NULL when out of memory. bytes 0 gives a valid pointer. */
void *kvant_alloc(size_t bytes);
void *kvant_calloc(size_t count, size_t bytes);   /* cleared; NULL on overflow too */
void *kvant_realloc(void *p, size_t old_bytes, size_t new_bytes);
void kvant_free(void *p);
/* As malloc, for free. */
void *mem_library_alloc(size_t bytes);
/* How many allocations of this thread failed so far. */
uint64_t mem_failures(void);
/* Gives freed memory that the C library keeps back to the system; first: once, before threads. */
void mem_give_back(int first);
char *kvant_strdup(const char *s);
char *kvant_strndup(const char *s, size_t n);

/* Bytes this process may still take: available memory and cgroup limit, whichever is less; -1: unknown. */
int64_t mem_available(void);

/* Fault tests: the n-th allocation from now fails (once, or from then on); n < 0 switches off. Test use only. */
void mem_fail_after(long n, int sticky);

/* Arena: bump allocation out of one block, reset as a whole.  No growth: NULL when it is full. */
typedef struct arena {
    unsigned char *base;
    size_t cap, used, peak;
} arena;

int arena_init(arena *a, size_t cap, kvant_diag *diag);
void *arena_alloc(arena *a, size_t bytes);        /* 64-byte aligned */
void arena_reset(arena *a);
void arena_free(arena *a);

#endif
