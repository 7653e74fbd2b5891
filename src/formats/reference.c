/* reference.c: what the references of all formats share: score and axpy (decode one row, then multiply) and the
 * rounding of stored norms.  REFERENCE. */
#include "formats/format.h"

#include <assert.h>
#include "base/half.h"

/* Truncate the magnitude to the fp16 grid, add one if the first dropped bit is set.  Differs from nearest even at
 * exact ties only. */
static uint16_t half_up(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x33000000u)                   /* below 2^-25 */
        return (uint16_t)sign;
    if (a < 0x38800000u) {                 /* subnormal: the mantissa with its hidden bit, in steps of 2^-24 */
        uint32_t shift = 126 - (a >> 23), m = (a & 0x7fffffu) | 0x800000u;
        return (uint16_t)(sign | ((m >> (shift - 1)) + 1) >> 1);
    }
    return (uint16_t)(sign | (a - 0x38000000u + 0x1000u) >> 13);
}

uint16_t format_norm(float v, int encoder)
{
    return encoder == FORMAT_ENCODER_HALF_UP ? half_up(v) : f32_to_half(v);
}

static float dot(const float *q, const float *v, int n)
{
    double acc = 0.0;                      /* double: the yardstick should not add error of its own */

    for (int k = 0; k < n; k++)
        acc += (double)q[k] * v[k];
    return (float)acc;
}

static void add_weighted(float *acc, double w, const float *v, int n)
{
    for (int k = 0; k < n; k++)
        acc[k] = (float)(acc[k] + w * v[k]);
}

void format_ref_score(format_decode_fn decode, const void *param, const float *qp, size_t ldq, int r,
                      const uint8_t *rows, size_t stride, int n, float *s, size_t lds, int d, int sdim)
{
    float v[FORMAT_MAX_SDIM];
    assert(sdim <= FORMAT_MAX_SDIM);
    for (int i = 0; i < n; i++) {
        decode(param, rows + (size_t)i * stride, stride, 1, v, d);
        for (int j = 0; j < r; j++)
            s[(size_t)j * lds + (size_t)i] = dot(qp + (size_t)j * ldq, v, sdim);
    }
}

void format_ref_axpy(format_decode_fn decode, const void *param, const float *w, size_t ldw, int r,
                     const uint8_t *rows, size_t stride, int n, float *acc, size_t lda, int d, int sdim)
{
    float v[FORMAT_MAX_SDIM];
    assert(sdim <= FORMAT_MAX_SDIM);
    for (int i = 0; i < n; i++) {
        decode(param, rows + (size_t)i * stride, stride, 1, v, d);
        for (int j = 0; j < r; j++)
            add_weighted(acc + (size_t)j * lda, w[(size_t)j * ldw + (size_t)i], v, sdim);
    }
}

void format_ref_score_page(format_decode_page_fn decode, const void *param, const float *qp, size_t ldq, int r,
                           const uint8_t *page, int first, int n, float *s, size_t lds, int d)
{
    float v[FORMAT_MAX_SDIM];

    for (int i = 0; i < n; i++) {
        decode(param, page, first + i, 1, v, d);
        for (int j = 0; j < r; j++)
            s[(size_t)j * lds + (size_t)i] = dot(qp + (size_t)j * ldq, v, d);
    }
}

void format_ref_axpy_page(format_decode_page_fn decode, const void *param, const float *w, size_t ldw, int r,
                          const uint8_t *page, int first, int n, float *acc, size_t lda, int d)
{
    float v[FORMAT_MAX_SDIM];

    for (int i = 0; i < n; i++) {
        decode(param, page, first + i, 1, v, d);
        for (int j = 0; j < r; j++)
            add_weighted(acc + (size_t)j * lda, w[(size_t)j * ldw + (size_t)i], v, d);
    }
}
