/* q4_polar_r: 82 bytes per 128 values, the residual sign written and used.  Layout and rules: polar.c. */
#include "formats/format.h"

#include "formats/polar/polar.h"

static void q4_polar_r_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)param;
    polar_encode(x, bytes, 1, encoder);
}

static void q4_polar_r_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    (void)param;
    polar_decode(bytes, acc, 1);
}

static void q4_polar_r_prep_group(const void *param, const float *q, float *qp)
{
    (void)param;
    polar_transform(q, qp);
}

static void q4_polar_r_finish_group(const void *param, const float *acc, float *x)
{
    (void)param;
    polar_transform(acc, x);
}

KVANT_FORMAT_DEFINE(q4_polar_r, "polar_r", 128, 82, 128, 0);
