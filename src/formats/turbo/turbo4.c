/* turbo4: 72 bytes per 128 values, four records of 18: [d fp16][qs u8 x 16]; code j < 16 of a record is the low
 * nibble of qs[j], code j + 16 the high one.  acc space: P32(x) per record;  value = centroid[code] * d.
 * The layout and the decoder are tbq4_0's; the code rule is not: a tie takes the UPPER code.
 *
 * upstream: y = P32(x), d = RMS(y), code = number of midpoints <= y*(1/d) with the unrounded d; d == 0: zero codes.
 * NaN or Inf input: NaN codes 15, d NaN or Inf.
 * best: codes of least squared error, unbiased scale (search.h).
 * Source: docs/formats/turbo4.md.  Golden: tests/golden/turbo4.json. */
#include "formats/format.h"

#include "base/half.h"
#include "formats/rotate/rotate.h"
#include "formats/encoders/search.h"
#include "formats/tbq/tbq.h"
#include "formats/turbo/turbo.h"
#include "cards/tables.inc"

static const float centroids[16] = { TURBO4_CENTROIDS };
static const search_book book = { .c = centroids, .n = 16 };
static const float midpoints[15] = { TURBO4_MIDPOINTS };

static void turbo4_pack(uint16_t d, const int *code, uint8_t *record)
{
    store_u16(record, d);
    for (int j = 0; j < 16; j++)
        record[2 + j] = (uint8_t)(code[j] | code[j + 16] << 4);
}

static void turbo4_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)param;
    for (int b = 0; b < 4; b++, x += TBQ_BLOCK, bytes += 18) {
        float y[TBQ_BLOCK], d = tbq_precondition(x, y);
        int code[TBQ_BLOCK] = { 0 };
        if (d != 0.0f) {
            float id = 1.0f / d;
            for (int j = 0; j < TBQ_BLOCK; j++)
                code[j] = turbo_code(midpoints, 15, y[j] * id);
        }
        uint16_t scale = format_norm(d, encoder);
        if (encoder == KVANT_ENCODER_BEST)
            search_best(&book, y, TBQ_BLOCK, d, code, &scale);
        turbo4_pack(scale, code, bytes);
    }
}

static void turbo4_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    (void)param;
    for (int b = 0; b < 4; b++, bytes += 18, acc += TBQ_BLOCK) {
        float d = half_to_f32(load_u16(bytes));
        for (int j = 0; j < 16; j++) {
            acc[j] = centroids[bytes[2 + j] & 15] * d;
            acc[j + 16] = centroids[bytes[2 + j] >> 4] * d;
        }
    }
}

static void turbo4_prep_group(const void *param, const float *q, float *qp)
{
    (void)param;
    memcpy(qp, q, TURBO_GROUP * sizeof *q);
    for (int b = 0; b < 4; b++)
        rotate_p32(qp + b * TBQ_BLOCK);
}

static void turbo4_finish_group(const void *param, const float *acc, float *x)
{
    (void)param;
    memcpy(x, acc, TURBO_GROUP * sizeof *x);
    for (int b = 0; b < 4; b++)
        rotate_p32_inverse(x + b * TBQ_BLOCK);
}

KVANT_FORMAT_DEFINE(turbo4, "", 128, 72, 128, 0);
