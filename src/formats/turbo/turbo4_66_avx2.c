/* turbo4_66_avx2.c: turbo4_66_simd.h compiled for AVX2, and the integer path. */
#include "formats/simd_encode_avx2.h"
#include "formats/turbo/turbo4_66_simd.h"

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
