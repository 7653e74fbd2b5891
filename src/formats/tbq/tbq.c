/* tbq.c: the transform and the code rule of the formats of this folder.  REFERENCE.
 * Source: their pages in docs/formats. */
#include "formats/tbq/tbq.h"

#include <math.h>
#include <string.h>
#include "formats/rotate/rotate.h"

int tbq_nearest(const float *c, int n, float v)
{
    if (v <= c[0])
        return 0;
    if (!(v < c[n - 1]))                   /* NaN too */
        return n - 1;
    int lo = 0;
    while (!(v < c[lo + 1]))
        lo++;
    return v - c[lo] <= c[lo + 1] - v ? lo : lo + 1;
}

float tbq_precondition(const float *x, float *y)
{
    float s = 0.0f;
    memcpy(y, x, TBQ_BLOCK * sizeof *y);
    rotate_p32(y);
    for (int j = 0; j < TBQ_BLOCK; j++)
        s += y[j] * y[j];
    return sqrtf(s / 32.0f);
}
