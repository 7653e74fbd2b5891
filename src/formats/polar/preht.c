/* preht.c: the pre-Hadamard query path of q4_polar.  REFERENCE.  Source: docs/formats/q4_polar.md. */
#include "kvant/polar.h"

#include <string.h>
#include "base/half.h"
#include "formats/polar/polar.h"
#include "cards/tables.inc"
#include "formats/rotate/rotate.h"

static const float centroids[16] = { POLAR_CENTROIDS };
static const float signs[POLAR_GROUP] = { POLAR_SIGNS };

void kvant_polar_preht_query(const float *q, float *hq, int d)
{
    memcpy(hq, q, (size_t)d * sizeof *q);
    for (int g = 0; g + POLAR_GROUP <= d; g += POLAR_GROUP)
        rotate_butterfly(hq + g, POLAR_GROUP);
}

static float group_score(const float *hq, const uint8_t *bytes, int use_qjl)
{
    float residual = use_qjl ? (bytes[66] & 1 ? bits_f32(0x3d3504f3) : -bits_f32(0x3d3504f3)) : 0.0f;
    double acc = 0.0;
    for (int j = 0; j < POLAR_GROUP; j++) {
        int code = bytes[2 + j / 2] >> (4 * (j % 2)) & 15;
        acc += (double)(centroids[code] + residual * signs[j]) * hq[j];
    }
    return (float)(half_to_f32(load_u16(bytes)) * (1.0f / 128.0f) * acc);
}

void kvant_polar_preht_score(const float *hq, const uint8_t *rows, size_t stride, int n, float *s, int d, int use_qjl)
{
    for (int i = 0; i < n; i++, rows += stride) {
        s[i] = 0.0f;
        for (int g = 0; d % POLAR_GROUP == 0 && g < d / POLAR_GROUP; g++)
            s[i] += group_score(hq + g * POLAR_GROUP, rows + g * POLAR_BYTES, use_qjl);
    }
}
