/* polar.c: q4_polar and q4_polar_r: 82 bytes per 128 values: [d fp16][qs u8 x 64][qjl u8 x 16].
 * Value 2i is the low nibble of qs[i], 2i + 1 the high one; bit 0 of qjl[0] is the residual's sign, the rest is 0.
 * acc space: H(x/|x|), the UNNORMALISED Hadamard without signs;  value = centroid[code] * d.  REFERENCE.
 *
 * upstream: d = |x| (sum in double), code = number of boundaries <= y (a tie to the upper code, NaN 15);
 * residual bit = <y - centroid, S> > 0.
 * best: codes and residual bit of least squared error, unbiased d (search.h).
 * Source: docs/formats/q4_polar.md.  Golden: tests/golden/q4_polar.json. */
#include "formats/polar/polar.h"

#include <math.h>
#include <string.h>
#include "base/half.h"
#include "formats/format.h"
#include "cards/tables.inc"
#include "formats/rotate/rotate.h"
#include "formats/encoders/search.h"

static const float centroids[16] = { POLAR_CENTROIDS };
static const float boundaries[15] = { POLAR_BOUNDARIES };
static const float signs[POLAR_GROUP] = { POLAR_SIGNS };

enum { RESIDUAL_BITS = 0x3d3504f3 };       /* 0.5/sqrt(128) */

/* y = H(x/|x|); returns |x|. */
static float prepare(const float *x, float *y)
{
    double s = 0.0;
    for (int j = 0; j < POLAR_GROUP; j++)
        s += (double)x[j] * x[j];
    float norm = (float)sqrt(s), inv = norm > 1e-10f ? 1.0f / norm : 0.0f;
    for (int j = 0; j < POLAR_GROUP; j++)
        y[j] = x[j] * inv;
    rotate_butterfly(y, POLAR_GROUP);
    return norm;
}

static int code_of(float v)
{
    int k = 0;
    while (k < 15 && !(v < boundaries[k]))
        k++;
    return k;
}

static int residual_bit(const float *y, const int *code)
{
    float p = 0.0f;
    for (int j = 0; j < POLAR_GROUP; j++)
        p += (y[j] - centroids[code[j]]) * signs[j];
    return p > 0.0f;
}

/* Least squared error over d and the codes, and with a residual over its sign too.  Returns the residual bit. */
static int polar_search(float *y, float d, int use_residual, int bit, int *code, uint16_t *scale)
{
    float offset[POLAR_GROUP];
    int other[POLAR_GROUP];
    uint16_t other_scale = *scale;
    search_book book = { .c = centroids, .n = 16, .offset = use_residual ? offset : NULL };
    for (int j = 0; j < POLAR_GROUP; j++) {
        y[j] *= d;
        offset[j] = (bit ? bits_f32(RESIDUAL_BITS) : -bits_f32(RESIDUAL_BITS)) * signs[j];
        other[j] = code[j];
    }
    search_scale(&book, y, POLAR_GROUP, d, code, scale);
    if (!use_residual) {
        *scale = search_unbiased(&book, y, POLAR_GROUP, code, *scale);
        return 0;
    }
    double err = search_error(&book, y, POLAR_GROUP, code, *scale);
    for (int j = 0; j < POLAR_GROUP; j++)
        offset[j] = -offset[j];
    search_scale(&book, y, POLAR_GROUP, d, other, &other_scale);
    if (search_error(&book, y, POLAR_GROUP, other, other_scale) < err) {
        memcpy(code, other, sizeof other);
        *scale = search_unbiased(&book, y, POLAR_GROUP, code, other_scale);
        return !bit;
    }
    for (int j = 0; j < POLAR_GROUP; j++)
        offset[j] = -offset[j];
    *scale = search_unbiased(&book, y, POLAR_GROUP, code, *scale);
    return bit;
}

void polar_encode(const float *x, uint8_t *bytes, int use_residual, int encoder)
{
    float y[POLAR_GROUP], d = prepare(x, y);
    int code[POLAR_GROUP];
    for (int j = 0; j < POLAR_GROUP; j++)
        code[j] = code_of(y[j]);
    uint16_t scale = format_norm(d, encoder);
    int bit = use_residual && residual_bit(y, code);
    if (encoder == KVANT_ENCODER_BEST)
        bit = polar_search(y, d, use_residual, bit, code, &scale);
    memset(bytes, 0, POLAR_BYTES);
    store_u16(bytes, scale);
    for (int i = 0; i < 64; i++)
        bytes[2 + i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    bytes[66] = (uint8_t)bit;
}

void polar_decode(const uint8_t *bytes, float *acc, int use_residual)
{
    float d = half_to_f32(load_u16(bytes)), residual = 0.0f;
    if (use_residual)
        residual = bytes[66] & 1 ? bits_f32(RESIDUAL_BITS) : -bits_f32(RESIDUAL_BITS);
    for (int i = 0; i < 64; i++) {
        acc[2 * i] = centroids[bytes[2 + i] & 15];
        acc[2 * i + 1] = centroids[bytes[2 + i] >> 4];
    }
    for (int j = 0; j < POLAR_GROUP; j++)
        acc[j] = (acc[j] + residual * signs[j]) * d;
}

void polar_transform(const float *x, float *y)
{
    memcpy(y, x, POLAR_GROUP * sizeof *y);
    rotate_butterfly(y, POLAR_GROUP);
    for (int j = 0; j < POLAR_GROUP; j++)
        y[j] *= 1.0f / 128.0f;             /* exact: a power of two */
}
