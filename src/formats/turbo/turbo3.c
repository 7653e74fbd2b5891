/* turbo3: 56 bytes per 128 values, four blocks of 14: [norm fp16][qs u8 x 8][signs u8 x 4], the same norm in all.
 * Value e is block e/32, position j = e%32: the low two bits of its code at qs[j/4] bits 2*(j%4).., the high bit at
 * signs[j/8] bit j%8.  acc space: R(x) (signs, Hadamard 128, signs);  value = centroid[code] * norm.
 *
 * upstream: y = R(x/|x|), code = number of midpoints <= y, norm = |x| / |centroids of the codes|.
 * NaN or Inf input: NaN codes 7, norm NaN or Inf.  Zero: codes 4, norm 0.
 * best: codes of least squared error, unbiased norm (search.h).
 * Source: docs/formats/turbo3.md.  Golden: tests/golden/turbo3.json. */
#include "formats/format.h"

#include "base/half.h"
#include "formats/encoders/search.h"
#include "formats/turbo/turbo.h"
#include "cards/tables.inc"

static const float centroids[8] = { TURBO3_CENTROIDS };
static const search_book book = { .c = centroids, .n = 8 };
static const float midpoints[7] = { TURBO3_MIDPOINTS };

static void turbo3_pack(uint16_t norm, const int *code, uint8_t *bytes)
{
    memset(bytes, 0, 56);
    for (int e = 0; e < TURBO_GROUP; e++) {
        uint8_t *block = bytes + e / 32 * 14;
        int j = e % 32;
        store_u16(block, norm);
        block[2 + j / 4] = (uint8_t)(block[2 + j / 4] | (code[e] & 3) << (2 * (j % 4)));
        block[10 + j / 8] = (uint8_t)(block[10 + j / 8] | (code[e] >> 2) << (j % 8));
    }
}

static void turbo3_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    float y[TURBO_GROUP], norm = turbo_prepare(x, y), r = 0.0f;
    int code[TURBO_GROUP];
    (void)param;
    for (int e = 0; e < TURBO_GROUP; e++) {
        code[e] = turbo_code(midpoints, 7, y[e]);
        r += centroids[code[e]] * centroids[code[e]];
    }
    uint16_t scale = format_norm(turbo_corrected(norm, r), encoder);
    if (encoder == KVANT_ENCODER_BEST) {
        for (int e = 0; e < TURBO_GROUP; e++)
            y[e] *= norm;
        search_best(&book, y, TURBO_GROUP, norm, code, &scale);
    }
    turbo3_pack(scale, code, bytes);
}

static void turbo3_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    (void)param;
    for (int e = 0; e < TURBO_GROUP; e++) {
        const uint8_t *block = bytes + e / 32 * 14;
        int j = e % 32;
        int code = (block[2 + j / 4] >> (2 * (j % 4)) & 3) | (block[10 + j / 8] >> (j % 8) & 1) << 2;
        acc[e] = centroids[code] * half_to_f32(load_u16(block));
    }
}

static void turbo3_prep_group(const void *param, const float *q, float *qp)
{
    (void)param;
    turbo_rotate(q, qp);
}

static void turbo3_finish_group(const void *param, const float *acc, float *x)
{
    (void)param;
    turbo_unrotate(acc, x);
}

KVANT_FORMAT_DEFINE(turbo3, "", 128, 56, 128, 0);
