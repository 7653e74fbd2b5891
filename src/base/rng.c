/* rng.c: the normal deviate of rng.h. */
#include "base/rng.h"

#include <math.h>

float rng_normal(rng *r)
{
    double u1 = rng_unit(r) + 0x1p-54, u2 = rng_unit(r);
    return (float)(sqrt(-2.0 * log(u1)) * cos(6.28318530717958647692 * u2));
}
