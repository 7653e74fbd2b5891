/* base/clock.h: the one clock.  Monotonic nanoseconds; wall time only for records that people read. */
#ifndef KVANT_BASE_CLOCK_H
#define KVANT_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

int64_t clock_ns(void);
int64_t clock_thread_ns(void); /* processor time of the calling thread */
int64_t clock_wall_s(void);
/* 1: the thread has ended and is joined; 0: it has not until clock_ns() is `until`. */
int clock_join(pthread_t thread, int64_t until_ns);

#endif
