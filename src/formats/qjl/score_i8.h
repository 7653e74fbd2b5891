/* score_i8.h: the rungs of kvant_qjl_score_i8 (kvant/qjl.h).  Sums are integers, so every rung gives the reference's
 * bits; sum(+-q) = 2 * (sum of q at set bits) - (sum of q). */
#ifndef KVANT_FORMATS_QJL_SCORE_I8_H
#define KVANT_FORMATS_QJL_SCORE_I8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/half.h"
#include "kvant/qjl.h"

enum { QJL_SCALE_BITS = 0x3ba06c99 }; /* sqrt(pi/2)/256 */

typedef void kvant_qjl_score_i8_fn(const int8_t *q, float scale, const uint8_t *rows, size_t stride, int n, float *s);
kvant_qjl_score_i8_fn kvant_qjl_score_i8_ref, kvant_qjl_score_i8_avx2, kvant_qjl_score_i8_avx512vnni,
    kvant_qjl_score_i8_neon;

/* Rung i of this processor family, from slow to fast; NULL past the last.  *usable: this CPU and its mask may run
 * it. */
kvant_qjl_score_i8_fn *kvant_qjl_score_i8_rung(int i, const char **isa, int *usable);

static inline float kvant_qjl_score_i8_result(const uint8_t *row, float scale, int sum)
{
    uint16_t norm;
    memcpy(&norm, row + 32, sizeof norm);
    return bits_f32(QJL_SCALE_BITS) * bf16_to_f32(norm) * scale * (float)sum;
}

static inline int kvant_qjl_score_i8_all(const int8_t *q)
{
    int sum = 0;
    for (int j = 0; j < KVANT_QJL_SKETCH; j++)
        sum += q[j];
    return sum;
}

#endif
