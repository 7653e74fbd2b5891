/* base/thread/guard.h: what a piece of work may take of the thread that does it: processor time, a deadline, and two
 * signs that nobody wants it any more.  One at a time in a thread.
 *
 * Work that is over ends by itself: a loop over input asks guard_over, and every allocation asks it (base/mem.h), so
 * that whatever needs memory ends as it does without any.  The caller then asks guard_end why. */
#ifndef KVANT_BASE_THREAD_GUARD_H
#define KVANT_BASE_THREAD_GUARD_H

#include <stdatomic.h>
#include <stdint.h>

enum guard_why { GUARD_GOES_ON, GUARD_FUEL, GUARD_LATE, GUARD_CANCELLED };

typedef struct guard {
    int64_t cpu_until_ns, until_ns;    /* of the thread's own clock; of the clock of all */
    const _Atomic int *cancelled[2];   /* either may be NULL */
    unsigned asked;
    enum guard_why why;
} guard;

/* The caller's thread works under g until guard_end, for so many ns of processor and of time. */
void guard_begin(guard *g, int64_t cpu_ns, int64_t ns, const _Atomic int *cancelled, const _Atomic int *too);
enum guard_why guard_end(void);
/* 1: the thread's work is over.  Cheap: it looks at the clocks now and then.  Without a guard: 0. */
int guard_over(void);

#endif
