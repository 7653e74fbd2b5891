/* shim_memory.c: every read and write of a kernel: whether it may be there, and whether another thread was there
 * without a barrier between.  Owns no state but the group's stamps. */
#include "devices/metal/shim/shim.h"

#include <string.h>

enum { GUARD = 64, SEVERAL = -1 };         /* bytes between threadgroup arrays; a reader that is not one thread */

static const char *verb(int write)
{
    return write ? "writes" : "reads";
}

/* ---- records ---- */

/* From now on a stamp stands for fewer bytes: what it said holds for each of them. */
static void to_unit(shim_record *r, int shift)
{
    const int by = r->shift - shift;
    const size_t first = r->first << by, end = r->end << by;

    for (size_t i = end; i-- > first;)
        r->stamps[i] = r->stamps[i >> by];
    for (size_t i = r->first; i < r->end && i < first; i++)
        r->stamps[i] = (shim_stamp){ 0 };
    r->first = first;
    r->end = end;
    r->shift = shift;
}

/* The first stamp of an access, and how many.  An access of fewer bytes than a stamp's makes units smaller. */
static shim_stamp *stamps_of(shim_record *r, uintptr_t a, int bytes, int *n)
{
    const size_t at = a - r->begin, units = at | (unsigned)bytes;

    if (units & ((1u << r->shift) - 1))
        to_unit(r, units & 1 ? 0 : 1);
    const size_t first = at >> r->shift, end = first + ((unsigned)bytes >> r->shift);
    r->first = first < r->first ? first : r->first;
    r->end = end > r->end ? end : r->end;
    *n = (int)(end - first);
    return r->stamps + first;
}

/* Another's, or a simdgroup's. */
static int conflicts(const shim_group *g, int thread)
{
    return thread != g->view.runs || thread < 0;
}

static void mark_write(const shim_group *g, shim_stamp *s, uint32_t moment)
{
    s->wrote = moment;
    s->writer = g->view.runs;
}

static void mark_read(const shim_group *g, shim_stamp *s, uint32_t moment)
{
    s->reader = s->read == moment && s->reader != g->view.runs ? SEVERAL : g->view.runs;
    s->read = moment;
}

/* ---- threadgroup memory ---- */

static void add_array(shim_group *g, size_t bytes)
{
    const size_t at = g->n_arrays ? (g->array_end[g->n_arrays - 1] + GUARD + 15) & ~(size_t)15 : 0;

    if (g->n_arrays == SHIM_ARRAYS || g->local_used + bytes > SHIM_LOCAL)
        shim_found("threadgroup arrays of %zu bytes in all; Metal has %d", g->local_used + bytes, SHIM_LOCAL);
    g->array_end[g->n_arrays] = at + bytes;
    g->arrays[g->n_arrays++] = (shim_record){ g->view.local + at, g->stamps + at, 0, (bytes + 3) / 4, 2 };
    g->local_used += bytes;
    memset(g->array_at + at / 16, g->n_arrays, (bytes + 15) / 16);
    memset((void *)(g->view.local + at), 0xA5, bytes);
}

void *shim_local(size_t bytes)
{
    shim_group *g = shim_now;
    const int i = g->fibers[g->view.runs].arrays++;

    if (i == g->n_arrays)
        add_array(g, bytes);
    return (void *)g->arrays[i].begin;
}

static _Noreturn void written(const shim_stamp *s, int write)
{
    if (s->writer < 0)
        shim_found("%s threadgroup memory that simdgroup %d wrote; no barrier between", verb(write), -2 - s->writer);
    shim_found("%s threadgroup memory that thread %d wrote; no barrier between", verb(write), s->writer);
}

static void local_write(shim_group *g, shim_stamp *s)
{
    if (s->wrote == g->view.moment && conflicts(g, s->writer))
        written(s, 1);
    if (s->read == g->view.moment && conflicts(g, s->reader))
        shim_found("writes threadgroup memory that %s read; no barrier between",
                   s->reader == SEVERAL ? "several threads" : "another thread");
    mark_write(g, s, g->view.moment);
}

static void local_read(shim_group *g, shim_stamp *s)
{
    if (s->wrote < g->first_moment)
        shim_found("reads threadgroup memory that no thread of the group wrote");
    if (s->wrote == g->view.moment && conflicts(g, s->writer))
        written(s, 0);
    mark_read(g, s, g->view.moment);
}

/* After an access: what a kernel need not ask any more.  word: it was one, with a stamp of its own. */
static void calm_down(const shim_group *g, uint64_t *calm, const shim_stamp *s, int word)
{
    const uint32_t now = g->view.moment;
    const int own = s->wrote == now && s->read == now && s->writer == s->reader && s->reader >= 0;

    if (word && s->read == now && (own || s->reader == SEVERAL))
        *calm = (uint64_t)now << 32 | (own ? (uint32_t)s->reader : SHIM_CALM_ALL);
}

static void access_local(shim_group *g, uintptr_t a, int bytes, int write)
{
    const size_t at = a - g->view.local;
    const int array = g->array_at[at / 16] - 1;
    int n;

    if (array < 0 || at + (unsigned)bytes > g->array_end[array])
        shim_found("%s %d bytes of threadgroup memory outside of its arrays", verb(write), bytes);
    shim_stamp *s = stamps_of(&g->arrays[array], a, bytes, &n);
    for (int i = 0; i < n; i++)
        if (write)
            local_write(g, &s[i]);
        else
            local_read(g, &s[i]);
    calm_down(g, &g->view.calm[at / 4], s, bytes == 4 && n == 1);
}

/* ---- buffers that this launch writes ---- */

/* A moment of this launch, but before this group's first. */
static int of_another_group(const shim_group *g, uint32_t moment)
{
    return moment >= g->launch_moment && moment < g->first_moment;
}

static void conflict(const shim_group *g, uint32_t moment, int thread, int write, const char *did)
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
    mark_write(g, s, g->device_moment);
}

static void device_read(shim_group *g, shim_stamp *s)
{
    conflict(g, s->wrote, s->writer, 0, "wrote");
    if (!of_another_group(g, s->read)) {
        mark_read(g, s, g->device_moment);
        return;
    }
    s->read = g->launch_moment;                    /* no group's own: a later write by any of them is a conflict */
    s->reader = SEVERAL;
}

static void access_written(shim_group *g, int buffer, uintptr_t a, int bytes, int write)
{
    int n;
    shim_stamp *s = stamps_of(&g->buffers[buffer], a, bytes, &n);

    for (int i = 0; i < n; i++)
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

/* Reads of these bytes, a among them, need no look at the list of buffers for a while, but those of them that are
 * written do. */
static void open_to_reads(shim_group *g, uintptr_t a, uintptr_t from, uintptr_t end)
{
    const int entry = (int)(a / SHIM_PAGE % SHIM_OPEN);
    const shim_launch *l = g->launch;

    for (int i = 0; i < l->n_buffers; i++) {
        const uintptr_t begin = (uintptr_t)l->buffers[i].addr, past = begin + l->buffers[i].bytes;
        if (!l->buffers[i].write)
            continue;
        if (begin > a)
            end = begin < end ? begin : end;
        else
            from = past > from ? past : from;
    }
    g->view.open[entry].from = from;
    g->view.open[entry].bytes = end > from ? end - from : 0;
}

static void access_device(shim_group *g, uintptr_t a, int bytes, int write)
{
    const shim_program *p = g->launch->program;
    const shim_buffer *b = g->launch->buffers;
    const int i = buffer_of(g->launch, a, bytes, write);

    if (i >= 0 && b[i].write)
        access_written(g, i, a, bytes, write);
    else if (i >= 0)
        open_to_reads(g, a, (uintptr_t)b[i].addr, (uintptr_t)b[i].addr + b[i].bytes);
    else if (!write && a >= p->begin && a < p->end)
        open_to_reads(g, a, p->begin, p->end);
    else
        outside(g->launch, a, bytes, write);
}

void shim_access(const void *p, int bytes, int write)
{
    shim_group *g = shim_now;
    const uintptr_t a = (uintptr_t)p;

    if (a - g->view.stacks < g->view.stacks_bytes)
        return;
    if (bytes <= 8 && a & ((unsigned)(bytes & -bytes) - 1))
        shim_found("%s %d bytes at an address that is not at a multiple of %d", verb(write), bytes, bytes & -bytes);
    if (a - g->view.local < 2 * SHIM_LOCAL)
        access_local(g, a, bytes, write);
    else
        access_device(g, a, bytes, write);
}

/* Settles here, without a call, an access that is neither a fault nor of another size: half of all are of this kind. */
void shim_word(const void *p, int write)
{
    shim_group *g = shim_now;
    const size_t at = (uintptr_t)p - g->view.local;
    const int array = at < 2 * SHIM_LOCAL ? g->array_at[at / 16] - 1 : -1;
    const shim_record *r = &g->arrays[array < 0 ? 0 : array];
    const int32_t thread = g->view.runs;
    const uint32_t now = g->view.moment;

    if (array < 0 || at % 4 != 0 || at + 4 > g->array_end[array] || r->shift != 2) {
        shim_access(p, 4, write);
        return;
    }
    shim_stamp *s = r->stamps + ((uintptr_t)p - r->begin) / 4;
    if (s->wrote == now ? s->writer != thread : !write && s->wrote < g->first_moment) {
        shim_access(p, 4, write);
        return;
    }
    if (write && s->read == now && s->reader != thread) {
        shim_access(p, 4, write);
        return;
    }
    if (write)
        mark_write(g, s, now);
    else
        mark_read(g, s, now);
    calm_down(g, &g->view.calm[at / 4], s, 1);
}
