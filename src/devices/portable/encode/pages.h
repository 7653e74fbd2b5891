/* pages.h: page_seal of the formats of page scope (src/formats/ptcq/ptcq.c), in three kernels over units, a unit
 * 128 values of the 64 rows of a head of a page:
 *   pages_mean   rotates the rows, and finds the mean that the page holds
 *   pages_walk   takes the mean away, walks a row through the trellis, as it is and 1/.94 times larger, and keeps
 *                the path that fits better, with its scale
 *   pages_pack   adds to the mean what the rows' errors have in common, and writes the page
 * Sums are pairs of f32.  The host defines FMT. */
#ifndef KVANT_PORTABLE_PAGES_H
#define KVANT_PORTABLE_PAGES_H

#ifndef FMT
#define FMT ptcq3
#endif

#include "devices/portable/encode/exact.h"
#include "devices/portable/encode/group.h"
#include "cards/portable.h"
#include "devices/portable/encode/encode_params.h"
#include "devices/portable/encode/space.h"

#define GROUP 128                          /* values of a unit's row */
#define COLUMNS (GROUP / THREADS)          /* of a thread: t, t + THREADS, ... */
#define SYMBOL_BITS JOIN(step_, FMT)
/* Floats of a unit in `work`: rows, mean, scales, 1 for each row that is finite; in `states`: of each value. */
#define MEAN_AT (PAGE * GROUP)
#define SCALE_AT (MEAN_AT + GROUP)
#define FINITE_AT (SCALE_AT + PAGE)
#define WORK (FINITE_AT + PAGE)
#define UNIT_STATES (PAGE * GROUP)

/* The average of n values whose sum is given; of none 0. */
FN float pages_average(struct dd sum, int n)
{
    return n > 0 ? dd_div(sum, dd_of((float)n, 0.0f)).hi : 0.0f;
}

/* The step for columns of which |m| is the largest of this thread's. */
FN float pages_step(LOCAL float *part, int t, OWN const float *m)
{
    float top = 0.0f;
    for (int c = 0; c < COLUMNS; c++)
        top = fmax(top, fabs(m[c]));
    return port_half_of(port_to_half(encode_div(group_max(part, t, top), 127.0f) + 1e-9f));
}

/* A mean in steps. */
FN float pages_steps(float m, float step)
{
    return step > 0.0f ? fmin(fmax(rint(encode_div(m, step)), -127.0f), 127.0f) : 0.0f;
}

#endif
