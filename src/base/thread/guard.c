/* guard.c: see guard.h. */
#include "base/thread/guard.h"

#include <stddef.h>
#include "base/clock.h"

enum { LOOK_EVERY = 64 }; /* questions: a look at the thread's clock takes as long as a few allocations */

static _Thread_local guard *own;

void guard_begin(guard *g, int64_t cpu, int64_t ns, const _Atomic int *cancelled, const _Atomic int *too)
{
    *g = (guard){ .cpu_until_ns = clock_thread_ns() + cpu,
                  .until_ns = clock_ns() + ns,
                  .cancelled = { cancelled, too } };
    own = g;
}

static int is_set(const _Atomic int *sign)
{
    return sign && atomic_load_explicit(sign, memory_order_relaxed);
}

static enum guard_why look(const guard *g)
{
    if (is_set(g->cancelled[0]) || is_set(g->cancelled[1]))
        return GUARD_CANCELLED;
    if (clock_thread_ns() > g->cpu_until_ns)
        return GUARD_FUEL;
    return clock_ns() > g->until_ns ? GUARD_LATE : GUARD_GOES_ON;
}

int guard_over(void)
{
    guard *g = own;

    if (!g)
        return 0;
    if (g->why == GUARD_GOES_ON && ++g->asked % LOOK_EVERY == 0)
        g->why = look(g);
    return g->why != GUARD_GOES_ON;
}

enum guard_why guard_end(void)
{
    const enum guard_why why = own ? own->why : GUARD_GOES_ON;

    own = NULL;
    return why;
}
