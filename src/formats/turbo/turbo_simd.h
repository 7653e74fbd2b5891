/* turbo_simd.h: what the formats with one norm per 128 rotated values share over simd_encode_<isa>.h (included before
 * it).  Equal to turbo.c bit for bit. */
#ifndef KVANT_FORMATS_TURBO_SIMD_H
#define KVANT_FORMATS_TURBO_SIMD_H

#include <math.h>
#include "cards/tables.inc"
#include "formats/turbo/turbo.h"

static const float turbo_signs1[128] = { ROTATE_SIGNS1 };
static const float turbo_signs2[128] = { ROTATE_SIGNS2 };

#define TURBO_K128 0x1.6a09e6p-4f          /* 1/sqrt(128), 0x3db504f3 */

/* y = (H(x * before)) / sqrt(128) * after; y may be x */
static inline void turbo_rotate128(const float *x, float *y, const float *before, const float *after)
{
    for (int c = 0; c < 128; c += 8)
        vf_store(y + c, vf_mul(vf_load(x + c), vf_load(before + c)));
    butterfly128(y);
    for (int c = 0; c < 128; c += 8)
        vf_store(y + c, vf_mul(vf_mul(vf_load(y + c), vf_set1(TURBO_K128)), vf_load(after + c)));
}

static void turbo_prep_q(const void *param, const float *q, float *qp, int d)
{
    (void)param;
    for (int g = 0; g < d; g += 128)
        turbo_rotate128(q + g, qp + g, turbo_signs1, turbo_signs2);
}

static void turbo_finish_out(const void *param, const float *acc, float *out, int d)
{
    (void)param;
    for (int g = 0; g < d; g += 128)
        turbo_rotate128(acc + g, out + g, turbo_signs2, turbo_signs1);
}

/* s + sum of v[c]^2 in ascending order over 128 values */
static inline float turbo_squares(const float *x)
{
    float t[128];
    for (int c = 0; c < 128; c += 8)
        vf_store(t + c, vf_mul(vf_load(x + c), vf_load(x + c)));
    return sum_ascending(t, 128, 0.0f);
}

/* y = R(x/|x|); returns |x| */
static inline float turbo_unit(const float *x, float *y)
{
    float norm = sqrtf(turbo_squares(x)), inv = norm > 1e-10f ? 1.0f / norm : 0.0f;
    for (int c = 0; c < 128; c += 8)
        vf_store(y + c, vf_mul(vf_load(x + c), vf_set1(inv)));
    turbo_rotate128(y, y, turbo_signs1, turbo_signs2);
    return norm;
}

#endif
