/* tbq3_0_avx2.c: 14 bytes per 32 values: [d fp16][qs u8 x 12], code j at bits 3j..3j+2 (see tbq3_0.c).
 * 8 codes are 24 bits: one broadcast, one variable shift, and vpermps, which reads the low three bits of an index,
 * over 8 centroids already multiplied by d. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/tbq/tbq_avx2.h"
#include "formats/tbq/tbq_tables.inc"

static const float centroids[8] = { TBQ3_CENTROIDS };
static const search_book book = { .c = centroids, .n = 8 };
static const uint32_t limits[7] = { TBQ3_LIMITS(TABLE_WORD) };

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

static void tbq3_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int b = 0; b < d; b += 32, row += 14) {
        vf y[4];
        __m256i code[4];
        load32(x + b, y);
        tbq_rotate(y);
        float rms = tbq_rms(y), inv = 1.0f / rms;
        for (int c = 0; c < 4; c++)
            code[c] = rms != 0.0f ? count_above(_mm256_mul_ps(y[c], _mm256_set1_ps(inv)), limits, 7)
                                  : _mm256_setzero_si256();
        uint16_t h = format_norm(rms, encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            float values[32];
            store32(values, y);
            refine(&book, values, 4, rms, code, &h);
        }
        memcpy(row, &h, sizeof h);
        put_bits3(row + 2, code);
    }
}

const kvant_format_kernels kvant_tbq3_0_kernels_avx2 = {
    .encode = tbq3_encode, .prep_q = tbq_prep_q, .finish_out = tbq_finish_out, .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
