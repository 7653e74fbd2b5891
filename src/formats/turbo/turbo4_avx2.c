/* turbo4_avx2.c: turbo4_simd.h compiled for AVX2, and the integer path. */
#include "formats/simd_encode_avx2.h"
#include "formats/turbo/turbo4_simd.h"

static const uint8_t bytes[16] = { TBQ4_BYTES };
static const uint8_t centred[16] = { CENTRED_BYTES(TBQ4_BYTES) };

static inline __m256i turbo4_bytes(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(bytes), codes4_natural(row + (size_t)b * 18 + 2));
}

static inline __m256i turbo4_signed(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(centred), codes4_natural(row + (size_t)b * 18 + 2));
}

#define INT_CODES turbo4_bytes
#define INT_SIGNED turbo4_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 18)
#define INT_GROUP 1
#define INT_STEP TBQ4_STEP
#define INT_OFFSET INT_CENTRE
#define INT_WIDE_QUERY 0
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_turbo4_kernels_avx2 = {
    .encode = turbo4_encode, .prep_q = tbq_prep_q, .finish_out = tbq_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
