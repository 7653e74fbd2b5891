/* shim_memory.c: every read and write of a kernel: whether it may be there, and whether another thread was there
 * without a barrier between.  Owns no state but the group's stamps. */
#include "devices/metal/shim/shim.h"

#include <string.h>

enum { GUARD = 64, SEVERAL = -1 };         /* bytes between threadgroup arrays; a reader that is not one thread */

static const char *verb(int write)
{
    return write ? "writes" : "reads";
}

/* ---- threadgroup memory ---- */

void *shim_local(size_t bytes)
{
    shim_group *g = shim_now;
    const int i = g->fibers[g->thread].arrays++;

    if (i == g->n_arrays) {
        if (i == SHIM_ARRAYS || g->local_used + bytes > SHIM_LOCAL)
            shim_found("threadgroup arrays of %zu bytes in all; Metal has %d", g->local_used + bytes, SHIM_LOCAL);
        g->array_at[i] = (i ? g->array_at[i - 1] + g->array_bytes[i - 1] + GUARD + 15 : 0) & ~(size_t)15;
        g->array_bytes[i] = bytes;
        g->array_unit[i] = 4;
        g->local_used += bytes;
        g->n_arrays++;
        memset(g->local + g->array_at[i], 0xA5, bytes);
    }
    return g->local + g->array_at[i];
}

static int array_of(const shim_group *g, size_t at, int bytes, int write)
{
    for (int i = 0; i < g->n_arrays; i++)
        if (at >= g->array_at[i] && at + (size_t)bytes <= g->array_at[i] + g->array_bytes[i])
            return i;
    shim_found("%s %d bytes of threadgroup memory outside of its arrays", verb(write), bytes);
}

/* The first access of so few bytes to an array: until then a word's first stamp stood for all of it. */
static void to_unit(shim_group *g, int array, int bytes)
{
    shim_stamp *s = g->local_stamps + g->array_at[array];

    for (size_t i = 0; i < g->array_bytes[array]; i++)
        s[i] = s[i & ~(size_t)(g->array_unit[array] - 1)];
    g->array_unit[array] = bytes;
}

/* Another's, or a simdgroup's. */
static int conflicts(const shim_group *g, int thread)
{
    return thread != g->thread || thread < 0;
}

static _Noreturn void written(const shim_stamp *s, int write)
{
    if (s->writer < 0)
        shim_found("%s threadgroup memory that simdgroup %d wrote; no barrier between", verb(write), -2 - s->writer);
    shim_found("%s threadgroup memory that thread %d wrote; no barrier between", verb(write), s->writer);
}

static void local_write(shim_group *g, shim_stamp *s)
{
    if (s->wrote == g->moment && conflicts(g, s->writer))
        written(s, 1);
    if (s->read == g->moment && conflicts(g, s->reader))
        shim_found("writes threadgroup memory that %s read; no barrier between",
                   s->reader == SEVERAL ? "several threads" : "another thread");
    s->wrote = g->moment;
    s->writer = g->thread;
}

static void local_read(shim_group *g, shim_stamp *s)
{
    if (s->wrote < g->first_moment)
        shim_found("reads threadgroup memory that no thread of the group wrote");
    if (s->wrote == g->moment && conflicts(g, s->writer))
        written(s, 0);
    s->reader = s->read == g->moment && s->reader != g->thread ? SEVERAL : g->thread;
    s->read = g->moment;
}

static void access_local(shim_group *g, size_t at, int bytes, int write)
{
    const int array = array_of(g, at, bytes, write);

    if (bytes < g->array_unit[array])
        to_unit(g, array, bytes);
    for (int i = 0; i < bytes; i += g->array_unit[array])
        (write ? local_write : local_read)(g, &g->local_stamps[at + (size_t)i]);
}

/* ---- buffers that this launch writes ---- */

/* A moment of this launch, but before this group's first. */
static int of_another_group(const shim_group *g, uint64_t moment)
{
    return moment >= g->launch_moment && moment < g->first_moment;
}

static void conflict(const shim_group *g, uint64_t moment, int thread, int write, const char *did)
{
    if (of_another_group(g, moment))
        shim_found("%s device memory that another group of this launch %s", verb(write), did);
    if (moment == g->device_moment && conflicts(g, thread))
        shim_found("%s device memory that another thread %s; no barrier for device memory between", verb(write), did);
}

static void device_write(shim_group *g, shim_stamp *s)
{
    conflict(g, s->wrote, s->writer, 1, "wrote");
    conflict(g, s->read, s->reader, 1, "read");
    s->wrote = g->device_moment;
    s->writer = g->thread;
}

static void device_read(shim_group *g, shim_stamp *s)
{
    conflict(g, s->wrote, s->writer, 0, "wrote");
    if (of_another_group(g, s->read)) {
        s->read = g->launch_moment;                /* no group's own: a later write by any of them is a conflict */
        s->reader = SEVERAL;
        return;
    }
    s->reader = s->read == g->device_moment && s->reader != g->thread ? SEVERAL : g->thread;
    s->read = g->device_moment;
}

static void access_written(shim_group *g, int buffer, size_t at, int bytes, int write)
{
    shim_stamp *s = g->stamps + g->stamp_at[buffer] + at;

    for (int i = 0; i < bytes; i++)
        (write ? device_write : device_read)(g, &s[i]);
}

/* ---- where an address is ---- */

static int holds(const shim_buffer *b, uintptr_t a, int bytes)
{
    return a >= (uintptr_t)b->addr && a - (uintptr_t)b->addr + (size_t)bytes <= b->bytes;
}

/* The buffer that was bound for this, one that is written before one that is not; -1: none. */
static int buffer_of(const shim_launch *l, uintptr_t a, int bytes, int write)
{
    int found = -1;

    for (int i = 0; i < l->n_buffers; i++)
        if (holds(&l->buffers[i], a, bytes)) {
            if (l->buffers[i].write)
                return i;
            found = write ? found : i;
        }
    return found;
}

/* Names the buffer whose end or begin is nearest. */
static _Noreturn void outside(const shim_launch *l, uintptr_t a, int bytes, int write)
{
    int64_t best = INT64_MAX;
    int which = 0;

    for (int i = 0; i < l->n_buffers; i++) {
        const int64_t at = (int64_t)(a - (uintptr_t)l->buffers[i].addr), size = (int64_t)l->buffers[i].bytes;
        const int64_t away = at < 0 ? -at : at < size ? 0 : at - size;

        if (l->buffers[i].addr && away < best)
            best = away, which = i;
    }
    const shim_buffer *b = &l->buffers[which];
    if (holds(b, a, bytes))
        shim_found("writes to buffer %d, which is bound for reading", which);
    shim_found("%s %d bytes outside of the buffers: the nearest is %d, at byte %lld of %zu", verb(write), bytes, which,
               (long long)(a - (uintptr_t)b->addr), b->bytes);
}

void shim_access(const void *p, int bytes, int write)
{
    shim_group *g = shim_now;
    const shim_launch *l = g->launch;
    const uintptr_t a = (uintptr_t)p, stack = a - (uintptr_t)g->stacks, local = a - (uintptr_t)g->local;

    if (stack < (size_t)l->threads * SHIM_STACK)
        return;
    if (bytes <= 8 && a % (unsigned)bytes != 0)
        shim_found("%s %d bytes at an address that is not at a multiple of %d", verb(write), bytes, bytes);
    if (local < 2 * SHIM_LOCAL) {
        access_local(g, local, bytes, write);
        return;
    }
    if (!write && holds(&l->buffers[g->plain], a, bytes))
        return;
    const int i = buffer_of(l, a, bytes, write);
    if (i >= 0 && !l->buffers[i].write && !l->buffers[i].shared)
        g->plain = i;
    if (i >= 0 && l->buffers[i].write)
        access_written(g, i, a - (uintptr_t)l->buffers[i].addr, bytes, write);
    else if (i < 0 && (write || a < l->program->begin || a >= l->program->end))
        outside(l, a, bytes, write);
}
