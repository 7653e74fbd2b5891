/* base/clock.h: the one clock.  Monotonic nanoseconds; wall time only for records that people read. */
#ifndef KVANT_BASE_CLOCK_H
#define KVANT_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_ns(void);
int64_t clock_wall_s(void);

#endif
