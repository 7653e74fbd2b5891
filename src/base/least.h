/* base/least.h: the smaller and the larger of two integers. */
#ifndef KVANT_BASE_LEAST_H
#define KVANT_BASE_LEAST_H

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int max_int(int a, int b)
{
    return a > b ? a : b;
}

#endif
