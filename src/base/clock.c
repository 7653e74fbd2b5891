/* clock.c: see clock.h. */
#include "base/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_thread_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

int clock_join(pthread_t thread, int64_t until_ns)
{
    const int64_t left = until_ns - clock_ns();
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    const int64_t at = (int64_t)end.tv_nsec + (left > 0 ? left : 0);
    end.tv_sec += at / 1000000000;
    end.tv_nsec = at % 1000000000;
    return pthread_timedjoin_np(thread, NULL, &end) == 0;
}
