/* tbq3_0: 14 bytes per 32 values: [d fp16][qs u8 x 12]; qs is a 96-bit little-endian integer, code j at bits
 * 3j..3j+2.  acc space: P32(x) (signs, Hadamard 32);  value = centroid[code] * d.
 *
 * upstream: y = P32(x), d = RMS(y), code = nearest centroid to y*(1/d) with the unrounded d, a tie to the lower
 * code; d == 0 gives zero codes.  NaN or Inf input: every code 7 or 0, d NaN or Inf, and so is the decoded row.
 * best: codes of least squared error, unbiased scale (search.h).
 * The size is turbo3's, the packing, scale and centroids are not.
 * Source: docs/formats/tbq3_0.md.  Golden: tests/golden/tbq3_0.json. */
#include "formats/format.h"

#include "base/half.h"
#include "formats/rotate/rotate.h"
#include "formats/encoders/search.h"
#include "formats/tbq/tbq.h"
#include "cards/tables.inc"

static const float centroids[8] = { TBQ3_CENTROIDS };
static const search_book book = { .c = centroids, .n = 8 };

static void tbq3_0_pack(uint16_t d, const int *code, uint8_t *bytes)
{
    store_u16(bytes, d);
    for (int g = 0; g < 4; g++) {          /* 8 codes are 24 bits are 3 bytes */
        uint32_t word = 0;
        for (int j = 0; j < 8; j++)
            word |= (uint32_t)code[8 * g + j] << (3 * j);
        for (int b = 0; b < 3; b++)
            bytes[2 + 3 * g + b] = (uint8_t)(word >> (8 * b));
    }
}

static void tbq3_0_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    float y[TBQ_BLOCK], d = tbq_precondition(x, y);
    int code[TBQ_BLOCK] = { 0 };
    (void)param;
    if (d != 0.0f) {
        float id = 1.0f / d;
        for (int j = 0; j < TBQ_BLOCK; j++)
            code[j] = tbq_nearest(centroids, 8, y[j] * id);
    }
    uint16_t scale = format_norm(d, encoder);
    if (encoder == KVANT_ENCODER_BEST)
        search_best(&book, y, TBQ_BLOCK, d, code, &scale);
    tbq3_0_pack(scale, code, bytes);
}

static void tbq3_0_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    float d = half_to_f32(load_u16(bytes));
    (void)param;
    for (int g = 0; g < 4; g++) {
        const uint8_t *b = bytes + 2 + 3 * g;
        uint32_t word = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16;
        for (int j = 0; j < 8; j++)
            acc[8 * g + j] = d * centroids[word >> (3 * j) & 7];
    }
}

static void tbq3_0_prep_group(const void *param, const float *q, float *qp)
{
    (void)param;
    memcpy(qp, q, TBQ_BLOCK * sizeof *q);
    rotate_p32(qp);
}

static void tbq3_0_finish_group(const void *param, const float *acc, float *x)
{
    (void)param;
    memcpy(x, acc, TBQ_BLOCK * sizeof *x);
    rotate_p32_inverse(x);
}

KVANT_FORMAT_DEFINE(tbq3_0, "tbq3", 32, 14, 32, 0);
