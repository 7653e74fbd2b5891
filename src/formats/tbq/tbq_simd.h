/* tbq_simd.h: what tbq3_0, tbq4_0 and turbo4 share over simd_encode_<isa>.h (included before it): P32 and the rule
 * for d.  Equal to tbq.c bit for bit. */
#ifndef KVANT_FORMATS_TBQ_SIMD_H
#define KVANT_FORMATS_TBQ_SIMD_H

#include <math.h>
#include "cards/tables.inc"

static const float tbq_signs[32] = { ROTATE_SIGNS32 };

#define TBQ_K32 0x1.6a09e6p-3f             /* 1/sqrt(32), 0x3e3504f3 */

/* P32 of 32 values */
static inline void tbq_rotate(vf *v)
{
    mul32(v, tbq_signs);
    butterfly32(v);
    scale32(v, TBQ_K32);
}

static void tbq_prep_q(const void *param, const float *q, float *qp, int d)
{
    (void)param;
    for (int b = 0; b < d; b += 32) {
        vf v[4];
        load32(q + b, v);
        tbq_rotate(v);
        store32(qp + b, v);
    }
}

static void tbq_finish_out(const void *param, const float *acc, float *out, int d)
{
    (void)param;
    for (int b = 0; b < d; b += 32) {
        vf v[4];
        load32(acc + b, v);
        butterfly32(v);
        scale32(v, TBQ_K32);
        mul32(v, tbq_signs);
        store32(out + b, v);
    }
}

/* sqrt(sum y^2 / 32), summed in ascending order */
static inline float tbq_rms(const vf *v)
{
    float y[32];
    for (int c = 0; c < 4; c++)
        vf_store(y + 8 * c, vf_mul(v[c], v[c]));
    return sqrtf(sum_ascending(y, 32, 0.0f) / 32.0f);
}

/* How the formats of this family differ: bytes of a record, the codebook, the code of 8 normalised values (its rule at
 * a boundary) and the order of the codes in a record. */
typedef struct tbq_rule {
    int record;
    const search_book *book;
    vi (*code)(vf y);
    void (*put)(uint8_t *codes, const vi *code);
} tbq_rule;

/* Rows of records [d fp16][codes], 32 values each.  Inlined, so that the rule's functions are. */
static inline __attribute__((always_inline)) void
tbq_encode_rows(tbq_rule r, const float *x, uint8_t *row, int d, int encoder)
{
    for (int b = 0; b < d; b += 32, row += r.record) {
        vf y[4];
        vi code[4];
        load32(x + b, y);
        tbq_rotate(y);
        float rms = tbq_rms(y), inv = 1.0f / rms;
        for (int c = 0; c < 4; c++)
            code[c] = rms != 0.0f ? r.code(vf_mul(y[c], vf_set1(inv))) : vi_zero();
        uint16_t h = format_norm(rms, encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            float values[32];
            store32(values, y);
            refine(r.book, values, 4, rms, 1, code, &h);
        }
        memcpy(row, &h, sizeof h);
        r.put(row + 2, code);
    }
}

#endif
