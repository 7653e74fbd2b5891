/* q4_polar_avx2.c: q4_polar_simd.h compiled for AVX2, and the integer path. */
#include "formats/simd_encode_avx2.h"
#include "formats/polar/q4_polar_simd.h"

static const uint8_t bytes[16] = { POLAR4_BYTES };
static const uint8_t centred[16] = { CENTRED_BYTES(POLAR4_BYTES) };

static inline __m256i q4_polar_codes(const uint8_t *row, int b)
{
    return codes4_adjacent_natural(row + (size_t)(b / 4) * POLAR_ROW + 2 + b % 4 * 16);
}

static inline __m256i q4_polar_bytes(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(bytes), q4_polar_codes(row, b));
}

static inline __m256i q4_polar_signed(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(centred), q4_polar_codes(row, b));
}

#define INT_CODES q4_polar_bytes
#define INT_SIGNED q4_polar_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * POLAR_ROW)
#define INT_GROUP 4
#define INT_STEP POLAR4_STEP
#define INT_OFFSET INT_CENTRE
#define INT_WIDE_QUERY 0
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_q4_polar_kernels_avx2 = {
    .encode = q4_polar_encode, .prep_q = polar_transform128, .finish_out = polar_transform128,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
