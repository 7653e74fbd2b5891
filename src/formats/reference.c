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

void format_ref_score(format_decode_fn decode, const void *param, const float *qp, size_t ldq, int r,
                      const uint8_t *rows, size_t stride, int n, float *s, size_t lds, int d, int sdim)
{
    float v[FORMAT_MAX_SDIM];
    assert(sdim <= FORMAT_MAX_SDIM);
    for (int i = 0; i < n; i++) {
        decode(param, rows + (size_t)i * stride, stride, 1, v, d);
        for (int j = 0; j < r; j++) {
            const float *q = qp + (size_t)j * ldq;
            double acc = 0.0;              /* double: the yardstick should not add error of its own */
            for (int k = 0; k < sdim; k++)
                acc += (double)q[k] * v[k];
            s[(size_t)j * lds + (size_t)i] = (float)acc;
        }
    }
}

void format_ref_axpy(format_decode_fn decode, const void *param, const float *w, size_t ldw, int r,
                     const uint8_t *rows, size_t stride, int n, float *acc, size_t lda, int d, int sdim)
{
    float v[FORMAT_MAX_SDIM];
    assert(sdim <= FORMAT_MAX_SDIM);
    for (int i = 0; i < n; i++) {
        decode(param, rows + (size_t)i * stride, stride, 1, v, d);
        for (int j = 0; j < r; j++) {
            float *a = acc + (size_t)j * lda;
            double wi = w[(size_t)j * ldw + (size_t)i];
            for (int k = 0; k < sdim; k++)
                a[k] = (float)(a[k] + wi * v[k]);
        }
    }
}
