/* tbq4_0_avx2.c: 18 bytes per 32 values: [d fp16][qs u8 x 16], low nibbles first (see tbq4_0.c).
 * A code becomes its f32 centroid by four byte-plane lookups, then one multiplication by d: the reference's value. */
#include "formats/format.h"
#include "formats/simd_tables.h"
#include "formats/tbq/tbq_avx2.h"
#include "formats/tbq/tbq_tables.inc"

static const uint8_t planes[4][16] = TABLE_PLANES(TBQ4_BITS);

static const float centroids[16] = { TBQ4_CENTROIDS };
static const search_book book = { .c = centroids, .n = 16 };
static const uint32_t limits[15] = { TBQ4_LIMITS(TABLE_WORD) };

static inline void tbq4_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 18;
    lookup16(planes, codes4_low_high(block + 2), vf_splat_f16(block), v);
}

#define BLOCK_DECODE tbq4_decode32
#include "formats/simd_blocks.h"

static void tbq4_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int b = 0; b < d; b += 32, row += 18) {
        vf y[4];
        __m256i code[4];
        load32(x + b, y);
        tbq_rotate(y);
        float rms = tbq_rms(y), inv = 1.0f / rms;
        for (int c = 0; c < 4; c++)
            code[c] = rms != 0.0f ? count_above(_mm256_mul_ps(y[c], _mm256_set1_ps(inv)), limits, 15)
                                  : _mm256_setzero_si256();
        uint16_t h = format_norm(rms, encoder);
        if (encoder == KVANT_ENCODER_BEST) {
            float values[32];
            store32(values, y);
            refine(&book, values, 4, rms, code, &h);
        }
        memcpy(row, &h, sizeof h);
        put_low_high(row + 2, code);
    }
}

static const uint8_t bytes[16] = { TBQ4_BYTES };
static const uint8_t centred[16] = { CENTRED_BYTES(TBQ4_BYTES) };

static inline __m256i tbq4_bytes(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(bytes), codes4_natural(row + (size_t)b * 18 + 2));
}

static inline __m256i tbq4_signed(const uint8_t *row, int b)
{
    return _mm256_shuffle_epi8(bytes_twice(centred), codes4_natural(row + (size_t)b * 18 + 2));
}

#define INT_CODES tbq4_bytes
#define INT_SIGNED tbq4_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 18)
#define INT_GROUP 1
#define INT_STEP TBQ4_STEP
#define INT_OFFSET INT_CENTRE
#define INT_WIDE_QUERY 0
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_tbq4_0_kernels_avx2 = {
    .encode = tbq4_encode,
    .prep_q = tbq_prep_q,
    .finish_out = tbq_finish_out,
    .decode_acc = blocks_decode_acc,
    .score = blocks_score,
    .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8,
    .score_q8 = int_score_q8,
    .axpy_q8 = int_axpy_q8,
};
