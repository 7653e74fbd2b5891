/* f32_neon.c: f32 rows: score and axpy at FMA speed.  Prefill and the block formats end here too, with decoded rows.
 * encode, decode_acc, prep_q and finish_out are copies: the reference serves. */
#include "formats/format.h"
#include "formats/simd_neon.h"

#define WIDE_BYTES 4
#define WIDE_LOAD vf_load_f32
#include "formats/simd_wide.h"

void kvant_f32_score_neon(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride,
                          int n, float *s, size_t lds, int d)
{
    wide_score(param, qp, ldq, r, rows, stride, n, s, lds, d);
}

void kvant_f32_axpy_neon(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride,
                         int n, float *acc, size_t lda, int d)
{
    wide_axpy(param, w, ldw, r, rows, stride, n, acc, lda, d);
}

const kvant_format_kernels kvant_f32_kernels_neon = { .score = wide_score, .axpy = wide_axpy };
