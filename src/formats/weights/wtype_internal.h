/* weights/wtype_internal.h: the functions behind wtypes.def and the few helpers the block types share.
 * Block types own nothing: pure functions over caller's buffers, any alignment, any byte pattern. */
#ifndef KVANT_FORMATS_WTYPE_INTERNAL_H
#define KVANT_FORMATS_WTYPE_INTERNAL_H

#include <math.h>
#include "base/half.h"
#include "kvant/wtype.h"

#define KVANT_WTYPE(sym)                                                                                               \
    void wtype_##sym##_dequant(const uint8_t *src, float *dst, int64_t n);                                             \
    void wtype_##sym##_quant(const float *src, uint8_t *dst, int64_t n);
#include "formats/weights/wtypes.def"
#undef KVANT_WTYPE

/* E2M1 codes doubled (0 .5 1 1.5 2 3 4 6), so that they are integers; halve the scale. */
extern const int8_t wtype_e2m1_x2[16];
/* Code of the E2M1 value nearest to x / (2 * half_scale); ties and zero take the lower code. */
unsigned wtype_e2m1_encode(float x, double half_scale);

/* v rounded to an integer in lo..hi; NaN gives lo (a cast of NaN would be undefined). */
static inline int wtype_clamp_round(float v, int lo, int hi)
{
    if (!(v > (float)lo))
        return lo;
    return v >= (float)hi ? hi : (int)lrintf(v);
}

/* Largest |x| of n values; NaN is skipped. */
static inline float wtype_amax(const float *x, int n)
{
    float m = 0.0f;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > m)
            m = fabsf(x[i]);
    return m;
}

#endif
