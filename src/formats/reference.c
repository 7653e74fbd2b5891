/* reference.c: score and axpy of every format's reference: decode one row, then multiply.  REFERENCE. */
#include "formats/format.h"

#include <assert.h>

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
