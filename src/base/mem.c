/* mem.c: the allocation hook, checked sizes, the arena, what memory the machine has left.  Owns the fault-test counter
 * and nothing else. */
#include "base/mem.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/thread/guard.h"

static _Thread_local uint64_t failures;
static _Atomic long fail_left = -1;
static _Atomic int fail_sticky = 0;

void mem_fail_after(long n, int sticky)
{
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_left, n);
}

static int fail_now(void)
{
    long left = atomic_load_explicit(&fail_left, memory_order_relaxed);
    if (left < 0)
        return 0;
    left = atomic_fetch_sub(&fail_left, 1);
    if (left > 0)
        return 0;
    if (left == 0) {
        if (atomic_load(&fail_sticky))
            atomic_store(&fail_left, 0);
        return 1;
    }
    return 0;
}

static void *fail(void)
{
    failures++;
    return NULL;
}

uint64_t mem_failures(void)
{
    return failures;
}

void *kvant_alloc(size_t bytes)
{
    void *p = NULL;
    if (fail_now() || guard_over() || bytes > SIZE_MAX - 64)
        return fail();
    if (posix_memalign(&p, 64, bytes ? bytes : 64) != 0)
        return fail();
    return p;
}

void *mem_library_alloc(size_t bytes)
{
    void *p = fail_now() || guard_over() ? NULL : malloc(bytes ? bytes : 1);

    return p ? p : fail();
}

void *kvant_calloc(size_t count, size_t bytes)
{
    size_t total;
    if (!size_mul(count, bytes, &total))
        return NULL;
    void *p = kvant_alloc(total);
    if (p)
        memset(p, 0, total);
    return p;
}

void *kvant_realloc(void *p, size_t old_bytes, size_t new_bytes)
{
    void *q = kvant_alloc(new_bytes);
    if (!q)
        return NULL;
    if (p)
        memcpy(q, p, old_bytes < new_bytes ? old_bytes : new_bytes);
    kvant_free(p);
    return q;
}

void kvant_free(void *p)
{
    free(p);
}

/* glibc keeps what was freed: large blocks too, once one of their size was freed (it raises its threshold), and what
 * lies between small ones that live. */
void mem_give_back(int first)
{
#if defined(__GLIBC__)
    if (first)
        mallopt(M_MMAP_THRESHOLD, 1 << 20);
    malloc_trim(1 << 20);
#else
    (void)first;
#endif
}

char *kvant_strndup(const char *s, size_t n)
{
    char *p = kvant_alloc(n + 1);
    if (p) {
        memcpy(p, s, n);
        p[n] = 0;
    }
    return p;
}

char *kvant_strdup(const char *s)
{
    return kvant_strndup(s, strlen(s));
}

int arena_init(arena *a, size_t cap, kvant_diag *diag)
{
    memset(a, 0, sizeof *a);
    a->base = kvant_alloc(cap);
    if (!a->base)
        return kvant_fail(diag, KVANT_ENOMEM, "step arena: %zu bytes wanted, none available", cap);
    a->cap = cap;
    return KVANT_OK;
}

void *arena_alloc(arena *a, size_t bytes)
{
    size_t need = (bytes + 63) & ~(size_t)63;
    if (need < bytes || need > a->cap - a->used)
        return NULL;
    void *p = a->base + a->used;
    a->used += need;
    if (a->used > a->peak)
        a->peak = a->used;
    return p;
}

void arena_reset(arena *a)
{
    a->used = 0;
}

void arena_free(arena *a)
{
    kvant_free(a->base);
    memset(a, 0, sizeof *a);
}

/* ---- what the machine has ---- */

static int64_t read_number(const char *path, const char *key)
{
    char line[256];
    long long v = -1;
    FILE *f = fopen(path, "r");

    if (!f)
        return -1;
    while (v < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%lld", &v) != 1)
            v = -1;
    fclose(f);
    return v;
}

int64_t mem_available(void)
{
    const int64_t kb = read_number("/proc/meminfo", "MemAvailable:");
    const int64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    /* memory.current would count the page cache too, which is given back when needed: only anonymous memory weighs. */
    const int64_t anon = read_number("/sys/fs/cgroup/memory.stat", "anon ");
    const int64_t have = kb < 0 ? -1 : kb * 1024, left = limit > anon ? limit - anon : 0;

    return limit > 0 && anon >= 0 && (have < 0 || left < have) ? left : have;
}
