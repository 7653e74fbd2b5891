/* tbq4_0: 18 bytes per 32 values: [d fp16][qs u8 x 16]; code j < 16 is the low nibble of qs[j], code j + 16 the
 * high one.  acc space: P32(x) (signs, Hadamard 32);  value = centroid[code] * d.
 *
 * upstream: y = P32(x), d = RMS(y), code = nearest centroid to y*(1/d) with the unrounded d, a tie to the lower
 * code; d == 0 gives zero codes.  NaN or Inf input: every code 15 or 0, d NaN or Inf, and so is the decoded row.
 * best: codes of least squared error, unbiased scale (search.h).
 * Source: docs/formats/tbq4_0.md.  Golden: tests/golden/tbq4_0.json. */
#include "formats/format.h"

#include "base/half.h"
#include "formats/rotate/rotate.h"
#include "formats/encoders/search.h"
#include "formats/tbq/tbq.h"
#include "cards/tables.inc"

static const float centroids[16] = { TBQ4_CENTROIDS };
static const search_book book = { .c = centroids, .n = 16 };

static void tbq4_0_pack(uint16_t d, const int *code, uint8_t *bytes)
{
    store_u16(bytes, d);
    for (int j = 0; j < 16; j++)
        bytes[2 + j] = (uint8_t)(code[j] | code[j + 16] << 4);
}

static void tbq4_0_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    float y[TBQ_BLOCK], d = tbq_precondition(x, y);
    int code[TBQ_BLOCK] = { 0 };
    (void)param;
    if (d != 0.0f) {
        float id = 1.0f / d;
        for (int j = 0; j < TBQ_BLOCK; j++)
            code[j] = tbq_nearest(centroids, 16, y[j] * id);
    }
    uint16_t scale = format_norm(d, encoder);
    if (encoder == KVANT_ENCODER_BEST)
        search_best(&book, y, TBQ_BLOCK, d, code, &scale);
    tbq4_0_pack(scale, code, bytes);
}

static void tbq4_0_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    float d = half_to_f32(load_u16(bytes));
    (void)param;
    for (int j = 0; j < 16; j++) {
        acc[j] = d * centroids[bytes[2 + j] & 15];
        acc[j + 16] = d * centroids[bytes[2 + j] >> 4];
    }
}

static void tbq4_0_prep_group(const void *param, const float *q, float *qp)
{
    (void)param;
    memcpy(qp, q, TBQ_BLOCK * sizeof *q);
    rotate_p32(qp);
}

static void tbq4_0_finish_group(const void *param, const float *acc, float *x)
{
    (void)param;
    memcpy(x, acc, TBQ_BLOCK * sizeof *x);
    rotate_p32_inverse(x);
}

KVANT_FORMAT_DEFINE(tbq4_0, "tbq4", 32, 18, 32, 0);
