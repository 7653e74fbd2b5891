/* projection.c: the projection of qjl1_256 from a seed; projection_file.c: from a file (docs/formats/qjl1_256.md). */
#include "kvant/qjl.h"

#include <math.h>
#include "base/rng.h"

/* (0, 1): the low bit is forced so that the logarithm is finite. */
static double unit(rng *r)
{
    return (double)(rng_u64(r) >> 11 | 1) * 0x1p-53;
}

void kvant_qjl_projection_build(uint64_t seed, float *out)
{
    rng r = { seed ^ 0xC0FFEE1234567890u };
    for (int i = 0; i < KVANT_QJL_VALUES; i += 2) {
        double u1 = unit(&r), u2 = unit(&r);
        double radius = sqrt(-2.0 * log(u1)), angle = 6.28318530717958647692 * u2;
        out[i] = (float)(radius * cos(angle));
        out[i + 1] = (float)(radius * sin(angle));
    }
}
