/* sketch_eight.h: what AVX2 and NEON share of sketch.h, after card_decode32 and positive_bits. */

/* |x|^2 of 128 values, by eight chains */
static inline double sketch_squares(const float *x)
{
    double s[8] = { 0 };
    for (int j = 0; j < KVANT_QJL_DIM; j += 8)
        for (int k = 0; k < 8; k++)
            s[k] += (double)x[j + k] * x[j + k];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

#include "formats/classes/sketch.h"

static void qjl_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride, int n,
                      float *s, size_t lds, int d)
{
    blocks_score(param, qp, ldq, r, rows, stride, n, s, lds, 2 * d);
}

const kvant_format_kernels CARD_KERNELS(CARD_NAME, VF_ISA) = { SKETCH_KERNELS, .score = qjl_score };
