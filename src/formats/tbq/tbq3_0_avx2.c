/* tbq3_0_avx2.c: 14 bytes per 32 values: [d fp16][qs u8 x 12], code j at bits 3j..3j+2 (see tbq3_0.c).
 * 8 codes are 24 bits: one broadcast, one variable shift, and vpermps, which reads the low three bits of an index,
 * over 8 centroids already multiplied by d. */
#include "formats/simd_encode_avx2.h"
#include "formats/tbq/tbq3_0_simd.h"

static inline __m256i word_twice(const uint8_t *p)
{
    int32_t w;
    memcpy(&w, p, sizeof w);
    return _mm256_set1_epi32(w);
}

static inline void tbq3_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 14;
    const __m256i shift = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21);
    const __m256i shift8 = _mm256_setr_epi32(8, 11, 14, 17, 20, 23, 26, 29);
    vf table = _mm256_mul_ps(vf_splat_f16(block), vf_load(centroids));

    v[0] = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word_twice(block + 2), shift));
    v[1] = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word_twice(block + 5), shift));
    v[2] = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word_twice(block + 8), shift));
    /* bytes 11 to 13 are the last: the word starts one byte early instead of reading one byte too far */
    v[3] = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word_twice(block + 10), shift8));
}

#define BLOCK_DECODE tbq3_decode32
#include "formats/simd_blocks.h"

/* twice, so that bit 3 of an index does not matter */
static const uint8_t bytes[16] = { TBQ3_BYTES, TBQ3_BYTES };
static const uint8_t centred[16] = { CENTRED_BYTES(TBQ3_BYTES, TBQ3_BYTES) };

/* 32 codes, one per byte.  A 16-bit lane takes the two bytes that hold codes 2i and 2i + 1 (6 bits at bit 6i), a
 * multiplication moves them to its top, and two masks spread them to its bytes. */
static inline __m256i tbq3_codes(const uint8_t *row, int b)
{
    const __m256i window = _mm256_setr_epi8(0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6, 6, 7, 6, 7, 7, 8, 8, 9, 9,
                                            10, 9, 10, 10, 11, 10, 11);
    /* bit of the pair in its window: 0 6 4 2 0 6 4 2 ... and 10 for the last, whose window starts a byte early */
    const __m256i shift = _mm256_setr_epi16(1024, 16, 64, 256, 1024, 16, 64, 256, 1024, 16, 64, 256, 1024, 16, 64, 1);
    const uint8_t *qs = row + (size_t)b * 14 + 2;
    int64_t first;
    int32_t last;
    memcpy(&first, qs, sizeof first);
    memcpy(&last, qs + 8, sizeof last);
    /* the 12 bytes in both lanes */
    __m256i x = _mm256_blend_epi32(_mm256_set1_epi64x(first), _mm256_set1_epi32(last), 0x44);
    x = _mm256_mullo_epi16(_mm256_shuffle_epi8(x, window), shift);          /* the pair at bits 10..15 */
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(x, 10), _mm256_set1_epi16(7));
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 5), _mm256_set1_epi16(0x0700));
    return _mm256_or_si256(low, high);
}

static inline __m256i tbq3_bytes(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(bytes), tbq3_codes(row, b));
}

static inline __m256i tbq3_signed(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(centred), tbq3_codes(row, b));
}

#define INT_CODES tbq3_bytes
#define INT_SIGNED tbq3_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 14)
#define INT_GROUP 1
#define INT_STEP TBQ3_STEP
#define INT_OFFSET INT_CENTRE
#define INT_WIDE_QUERY 0
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_tbq3_0_kernels_avx2 = {
    .encode = tbq3_encode,
    .prep_q = tbq_prep_q,
    .finish_out = tbq_finish_out,
    .decode_acc = blocks_decode_acc,
    .score = blocks_score,
    .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8,
    .score_q8 = int_score_q8,
    .axpy_q8 = int_axpy_q8,
};
