/* space_r128.h: R of every 128 values (signs, Hadamard, 1/sqrt(128), signs) over simd_encode_<isa>.h: equal to
 * rotate.c bit for bit. */
#include "formats/turbo/turbo.h"

static const float r128_signs1[128] = { ROTATE_SIGNS1 };
static const float r128_signs2[128] = { ROTATE_SIGNS2 };

#define R128_K 0x1.6a09e6p-4f              /* 1/sqrt(128), 0x3db504f3 */

/* y = (H(x * before)) / sqrt(128) * after; y may be x */
static inline void r128_rotate(const float *x, float *y, const float *before, const float *after)
{
    for (int c = 0; c < 128; c += 8)
        vf_store(y + c, vf_mul(vf_load(x + c), vf_load(before + c)));
    butterfly128(y);
    for (int c = 0; c < 128; c += 8)
        vf_store(y + c, vf_mul(vf_mul(vf_load(y + c), vf_set1(R128_K)), vf_load(after + c)));
}

static void space_prep_q(const void *param, const float *q, float *qp, int d)
{
    (void)param;
    for (int g = 0; g < d; g += 128)
        r128_rotate(q + g, qp + g, r128_signs1, r128_signs2);
}

static void space_finish_out(const void *param, const float *acc, float *out, int d)
{
    (void)param;
    for (int g = 0; g < d; g += 128)
        r128_rotate(acc + g, out + g, r128_signs2, r128_signs1);
}

#define SPACE_KERNELS .prep_q = space_prep_q, .finish_out = space_finish_out,
