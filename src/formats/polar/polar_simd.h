/* polar_simd.h: q4_polar and q4_polar_r over simd_encode_<isa>.h (included before it): 82 bytes per 128 values: [d
 * fp16][qs u8 x 64][qjl u8 x 16], low nibble first (see polar.c).  The norm is summed in double by eight chains:
 * the f32 that it becomes is, but for one row in many millions, the reference's.  `best` with a residual is the
 * reference's. */
#ifndef KVANT_FORMATS_POLAR_SIMD_H
#define KVANT_FORMATS_POLAR_SIMD_H

#include <math.h>
#include "formats/polar/polar.h"
#include "cards/tables.inc"
#include "formats/simd_tables.h"

enum { POLAR_ROW = 82 };

static const uint8_t polar_planes[4][16] = TABLE_PLANES(POLAR4_BITS);

static inline vb polar_codes(const uint8_t *group, int b)
{
    return codes4_adjacent(group + 2 + b % 4 * 16);
}

static const float polar_centroids[16] = { POLAR_CENTROIDS };
static const float polar_boundaries[15] = { POLAR_BOUNDARIES };
static const float polar_signs[128] = { POLAR_SIGNS };
static const search_book polar_book = { .c = polar_centroids, .n = 16 };

/* y = H(x/|x|); returns |x| */
static inline float polar_unit(const float *x, float *y)
{
    double s[8] = { 0 };
    for (int j = 0; j < POLAR_GROUP; j += 8)
        for (int k = 0; k < 8; k++)
            s[k] += (double)x[j + k] * x[j + k];
    double sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    float norm = (float)sqrt(sum), inv = norm > 1e-10f ? 1.0f / norm : 0.0f;
    for (int c = 0; c < POLAR_GROUP; c += 8)
        vf_store(y + c, vf_mul(vf_load(x + c), vf_set1(inv)));
    butterfly128(y);
    return norm;
}

/* sum (y - centroid)*S > 0, in the reference's order */
static inline int polar_residual(const float *y, const vi *code)
{
    float t[POLAR_GROUP], sum = 0.0f;
    for (int c = 0; c < 16; c++)
        vf_store(t + 8 * c, vf_lookup16(vf_load(polar_centroids), vf_load(polar_centroids + 8), code[c]));
    for (int j = 0; j < POLAR_GROUP; j++)
        sum += (y[j] - t[j]) * polar_signs[j];
    return sum > 0.0f;
}

static inline void polar_encode128(const float *x, uint8_t *bytes, int use_residual, int encoder)
{
    float y[POLAR_GROUP];
    vi code[16];
    if (use_residual && encoder == KVANT_ENCODER_BEST) {
        polar_encode(x, bytes, use_residual, encoder);
        return;
    }
    float norm = polar_unit(x, y);
    uint16_t h = format_norm(norm, encoder);
    for (int c = 0; c < 16; c++)
        code[c] = count_from(vf_load(y + 8 * c), polar_boundaries, 15);
    memset(bytes + 66, 0, 16);
    if (use_residual)
        bytes[66] = (uint8_t)polar_residual(y, code);
    if (encoder == KVANT_ENCODER_BEST) {
        for (int c = 0; c < 16; c++)
            vf_store(y + 8 * c, vf_mul(vf_load(y + 8 * c), vf_set1(norm)));
        refine(&polar_book, y, 16, norm, 1, code, &h);
    }
    memcpy(bytes, &h, sizeof h);
    for (int b = 0; b < 4; b++)
        put_adjacent(bytes + 2 + 16 * b, code + 4 * b);
}

/* prep_q and finish_out are the same map: the unnormalised Hadamard, over 128 */
static void polar_transform128(const void *param, const float *x, float *y, int d)
{
    (void)param;
    for (int g = 0; g < d; g += 128) {
        for (int c = 0; c < 128; c += 8)
            vf_store(y + g + c, vf_load(x + g + c));
        butterfly128(y + g);
        for (int c = 0; c < 128; c += 8)
            vf_store(y + g + c, vf_mul(vf_load(y + g + c), vf_set1(1.0f / 128.0f)));
    }
}

#endif
