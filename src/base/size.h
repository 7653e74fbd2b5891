/* base/size.h: sizes that fail on overflow instead of wrapping. */
#ifndef KVANT_BASE_SIZE_H
#define KVANT_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* r = a*b, r = a+b; false on overflow (r untouched). */
static inline int size_mul(size_t a, size_t b, size_t *r)
{
    if (a != 0 && b > SIZE_MAX / a)
        return 0;
    *r = a * b;
    return 1;
}

static inline int size_add(size_t a, size_t b, size_t *r)
{
    if (b > SIZE_MAX - a)
        return 0;
    *r = a + b;
    return 1;
}

#endif
