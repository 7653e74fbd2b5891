/* turbo.c: the shared steps of the formats with one norm per 128 rotated values.  REFERENCE.
 * Source: docs/formats/turbo3.md, turbo4.md. */
#include "formats/turbo/turbo.h"

#include <math.h>
#include <string.h>
#include "base/half.h"
#include "formats/rotate/rotate.h"

static const float EPS = 1e-10f;           /* a norm up to here is zero: docs/formats/turbo3.md */

float turbo_prepare(const float *x, float *y)
{
    float s = 0.0f;
    for (int j = 0; j < TURBO_GROUP; j++)
        s += x[j] * x[j];
    float norm = sqrtf(s), inv = norm > EPS ? 1.0f / norm : 0.0f;
    for (int j = 0; j < TURBO_GROUP; j++)
        y[j] = x[j] * inv;
    rotate_r128(y);
    return norm;
}

int turbo_code(const float *mid, int n, float v)
{
    int k = 0;
    while (k < n && !(v < mid[k]))
        k++;
    return k;
}

float turbo_corrected(float norm, float r)
{
    float rn = sqrtf(r);
    return rn > EPS ? norm / rn : norm;
}

void turbo_rotate(const float *q, float *qp)
{
    memcpy(qp, q, TURBO_GROUP * sizeof *q);
    rotate_r128(qp);
}

void turbo_unrotate(const float *acc, float *x)
{
    memcpy(x, acc, TURBO_GROUP * sizeof *x);
    rotate_r128_inverse(x);
}
