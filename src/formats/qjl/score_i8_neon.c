/* score_i8_neon.c: two bytes of signs become 16 byte masks; pairs of the chosen bytes of the query are added to words,
 * of which one holds 16 pairs, at most 4064. */
#include "formats/qjl/score_i8.h"

#include <arm_neon.h>

static inline int row_sum(const uint8_t *row, const int8_t *q)
{
    const uint8x8_t bit = { 1, 2, 4, 8, 16, 32, 64, 128 };
    const uint8x16_t bits = vcombine_u8(bit, bit);
    int16x8_t sum = vdupq_n_s16(0);

    for (int b = 0; b < KVANT_QJL_SKETCH / 16; b++) {
        const uint8x16_t x = vcombine_u8(vdup_n_u8(row[2 * b]), vdup_n_u8(row[2 * b + 1]));
        const int8x16_t set = vreinterpretq_s8_u8(vtstq_u8(x, bits));
        sum = vpadalq_s8(sum, vandq_s8(set, vld1q_s8(q + 16 * b)));
    }
    return vaddlvq_s16(sum);
}

void kvant_qjl_score_i8_neon(const int8_t *q, float scale, const uint8_t *rows, size_t stride, int n, float *s)
{
    const int all = kvant_qjl_score_i8_all(q);

    for (int i = 0; i < n; i++, rows += stride)
        s[i] = kvant_qjl_score_i8_result(rows, scale, 2 * row_sum(rows, q) - all);
}
