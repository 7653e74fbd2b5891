/* devices/page_units.h: how page_seal of the formats of page scope is cut on devices with scratch memory: a unit is 128
 * values of a head of a page; so many units at a time have work memory and trellis states.  Pure. */
#ifndef KVANT_DEVICES_PAGE_UNITS_H
#define KVANT_DEVICES_PAGE_UNITS_H

#include "kvant/ops.h"

enum {
    PAGE_UNIT = 128,         /* values */
    PAGE_UNITS_AT_ONCE = 128,
    PAGE_UNIT_WORK = 4 * (KVANT_PAGE * PAGE_UNIT + PAGE_UNIT + 2 * KVANT_PAGE), /* bytes */
    PAGE_UNIT_STATES = 4 * KVANT_PAGE * PAGE_UNIT,
};

static inline int64_t page_units_of(const kvant_page_seal_args *a)
{
    return (int64_t)a->n * a->h * (kvant_format_padded(a->side.fmt, a->d) / PAGE_UNIT);
}

static inline int64_t page_units_at_once(const kvant_page_seal_args *a)
{
    const int64_t units = page_units_of(a);

    return units < PAGE_UNITS_AT_ONCE ? units : PAGE_UNITS_AT_ONCE;
}

/* Bytes of scratch memory: work memory of all units at a time, then their states.  0 for formats of single rows. */
static inline size_t page_units_scratch(const kvant_page_seal_args *a)
{
    if (a->n <= 0 || !(a->side.fmt->flags & KVANT_FORMAT_PAGE))
        return 0;
    return (size_t)page_units_at_once(a) * (PAGE_UNIT_WORK + PAGE_UNIT_STATES);
}

#endif
