/* q4_polar: 82 bytes per 128 values, the residual sign 0 and ignored.  Layout and rules: polar.c. */
#include "formats/format.h"

#include "formats/polar/polar.h"

static void q4_polar_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)param;
    polar_encode(x, bytes, 0, encoder);
}

static void q4_polar_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    (void)param;
    polar_decode(bytes, acc, 0);
}

static void q4_polar_prep_group(const void *param, const float *q, float *qp)
{
    (void)param;
    polar_transform(q, qp);
}

static void q4_polar_finish_group(const void *param, const float *acc, float *x)
{
    (void)param;
    polar_transform(acc, x);
}

KVANT_FORMAT_DEFINE(q4_polar, "polar", 128, 82, 128, 0);
