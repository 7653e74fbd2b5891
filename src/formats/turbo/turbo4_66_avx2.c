/* turbo4_66_avx2.c: 66 bytes per 128 values: [norm fp16][qs u8 x 64], low nibble first (see turbo4_66.c). */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/turbo/turbo_avx2.h"
#include "formats/turbo/turbo_tables.inc"

static const uint8_t planes[4][16] = TABLE_PLANES(TURBO4_66_BITS);
static const float centroids[16] = { TURBO4_66_CENTROIDS };
static const float midpoints[15] = { TURBO4_66_MIDPOINTS };
static const search_book book = { .c = centroids, .n = 16 };

static inline void turbo4_66_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * 66;
    lookup16(planes, codes4_adjacent(group + 2 + b % 4 * 16), vf_splat_f16(group), v);
}

#define BLOCK_DECODE turbo4_66_decode32
#include "formats/simd_blocks.h"

/* centroids of 8 codes */
static inline vf lookup16_codes(__m256i code)
{
    vf lo = _mm256_permutevar8x32_ps(vf_load(centroids), code),
       hi = _mm256_permutevar8x32_ps(vf_load(centroids + 8), code);
    return _mm256_blendv_ps(lo, hi, _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}

static void turbo4_66_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += 128, row += 66) {
        float y[128], values[128];
        __m256i code[16];
        float norm = turbo_unit(x + g, y);
        for (int c = 0; c < 16; c++) {
            code[c] = count_from(vf_load(y + 8 * c), midpoints, 15);
            vf_store(values + 8 * c, lookup16_codes(code[c]));
        }
        uint16_t h = format_norm(turbo_corrected(norm, turbo_squares(values)), encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            for (int c = 0; c < 16; c++)
                vf_store(values + 8 * c, vf_mul(vf_load(y + 8 * c), vf_set1(norm)));
            refine(&book, values, 16, norm, code, &h);
        }
        memcpy(row, &h, sizeof h);
        for (int b = 0; b < 4; b++)
            put_adjacent(row + 2 + 16 * b, code + 4 * b);
    }
}

static const uint8_t bytes[16] = { TURBO4_66_BYTES };
static const uint8_t centred[16] = { CENTRED_BYTES(TURBO4_66_BYTES) };

static inline __m256i turbo4_66_codes(const uint8_t *row, int b)
{
    return codes4_adjacent_natural(row + (size_t)(b / 4) * 66 + 2 + b % 4 * 16);
}

static inline __m256i turbo4_66_bytes(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(bytes), turbo4_66_codes(row, b));
}

static inline __m256i turbo4_66_signed(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(centred), turbo4_66_codes(row, b));
}

#define INT_CODES turbo4_66_bytes
#define INT_SIGNED turbo4_66_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 66)
#define INT_GROUP 4
#define INT_STEP TURBO4_66_STEP
#define INT_OFFSET INT_CENTRE
#define INT_WIDE_QUERY 0
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_turbo4_66_kernels_avx2 = {
    .encode = turbo4_66_encode, .prep_q = turbo_prep_q, .finish_out = turbo_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
