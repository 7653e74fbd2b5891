/* turbo4_66: 66 bytes per 128 values: [norm fp16][qs u8 x 64]; value 2i is the low nibble of qs[i], 2i + 1 the high
 * one.  acc space: R(x) (signs, Hadamard 128, signs);  value = centroid[code] * norm.
 *
 * upstream: y = R(x/|x|), code = number of midpoints <= y, norm = |x| / |centroids of the codes|.
 * NaN or Inf input: NaN codes 15, norm NaN or Inf.  Zero: codes 8, norm 0.
 * best: codes of least squared error, unbiased norm (search.h).
 * Source: docs/formats/turbo4_66.md (turbo4 of spiritbuun/buun-llama-cpp, without its V factor). */
#include "formats/format.h"

#include "base/half.h"
#include "formats/encoders/search.h"
#include "formats/turbo/turbo.h"
#include "cards/tables.inc"

static const float centroids[16] = { TURBO4_66_CENTROIDS };
static const search_book book = { .c = centroids, .n = 16 };
static const float midpoints[15] = { TURBO4_66_MIDPOINTS };

static void turbo4_66_pack(uint16_t norm, const int *code, uint8_t *bytes)
{
    store_u16(bytes, norm);
    for (int i = 0; i < 64; i++)
        bytes[2 + i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
}

static void turbo4_66_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    float y[TURBO_GROUP], norm = turbo_prepare(x, y), r = 0.0f;
    int code[TURBO_GROUP];
    (void)param;
    for (int e = 0; e < TURBO_GROUP; e++) {
        code[e] = turbo_code(midpoints, 15, y[e]);
        r += centroids[code[e]] * centroids[code[e]];
    }
    uint16_t scale = format_norm(turbo_corrected(norm, r), encoder);
    if (encoder == KVANT_ENCODER_BEST) {
        for (int e = 0; e < TURBO_GROUP; e++)
            y[e] *= norm;
        search_best(&book, y, TURBO_GROUP, norm, code, &scale);
    }
    turbo4_66_pack(scale, code, bytes);
}

static void turbo4_66_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    float norm = half_to_f32(load_u16(bytes));
    (void)param;
    for (int i = 0; i < 64; i++) {
        acc[2 * i] = centroids[bytes[2 + i] & 15] * norm;
        acc[2 * i + 1] = centroids[bytes[2 + i] >> 4] * norm;
    }
}

static void turbo4_66_prep_group(const void *param, const float *q, float *qp)
{
    (void)param;
    turbo_rotate(q, qp);
}

static void turbo4_66_finish_group(const void *param, const float *acc, float *x)
{
    (void)param;
    turbo_unrotate(acc, x);
}

KVANT_FORMAT_DEFINE(turbo4_66, "", 128, 66, 128, 0);
