/* q4_0_avx2.c: 18 bytes per 32 values: [d fp16][qs u8 x 16], low nibbles first (see q4_0.c).
 * d*(n - 8) is computed as fma(d, n, -8d): the product and 8d are exact, so it is the reference's single rounding.
 * High nibbles stay where they are: 16n with d/16. */
#include "formats/format.h"
#include "formats/simd_encode_avx2.h"

/* d*(n - 8), not fma(d, n, -8d), which would make NaN of every code where d is infinite.  A code xor 8 is n - 8 in 4
 * signed bits; at the top of a 32-bit lane it counts 2^28, which d*2^-28 takes back exactly. */
static inline void q4_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 18;
    /* byte j of lane 0 / 4 + j of lane 1 -> top byte of 32-bit lanes */
    const __m256i first = _mm256_setr_epi8(-1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1, 4,
                                           -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7);
    const __m256i second = _mm256_setr_epi8(-1, -1, -1, 8, -1, -1, -1, 9, -1, -1, -1, 10, -1, -1, -1, 11, -1, -1, -1,
                                            12, -1, -1, -1, 13, -1, -1, -1, 14, -1, -1, -1, 15);
    const __m256i high = _mm256_set1_epi32((int)0xf0000000u);
    vf d = _mm256_mul_ps(vf_splat_f16(block), _mm256_set1_ps(0x1p-28f));
    __m256i x = _mm256_xor_si256(bytes_twice(block + 2), _mm256_set1_epi8((char)0x88));
    __m256i a = _mm256_shuffle_epi8(x, first), c = _mm256_shuffle_epi8(x, second);

    v[0] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_slli_epi32(a, 4)));
    v[1] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_slli_epi32(c, 4)));
    v[2] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_and_si256(a, high)));
    v[3] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_and_si256(c, high)));
}

#define BLOCK_DECODE q4_decode32
#include "formats/simd_blocks.h"

/* min(15, trunc(v + 8.5)) - 8, below: -8, NaN: 0 */
static inline vi q4_codes(vf v)
{
    vf t = _mm256_add_ps(v, _mm256_set1_ps(8.5f));
    t = _mm256_min_ps(_mm256_max_ps(t, _mm256_setzero_ps()), _mm256_set1_ps(15.0f));
    t = _mm256_blendv_ps(t, _mm256_set1_ps(8.0f), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_sub_epi32(_mm256_cvttps_epi32(t), _mm256_set1_epi32(8));
}

static float q4_top(const float *x, const vf *v, float amax)
{
    unsigned mask = 0;
    for (int c = 0; c < 4; c++)
        mask |= (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(vf_abs(v[c]), vf_set1(amax), _CMP_EQ_OQ)) << (8 * c);
    int j = 0;
    while (amax > 0.0f && !(mask >> j & 1))
        j++;
    return amax > 0.0f ? x[j] : 0.0f;
}

#include "formats/plain/q4_0_simd.h"

static inline __m256i q4_bytes(const uint8_t *row, int b)
{
    return codes4_natural(row + (size_t)b * 18 + 2);
}

static inline __m256i q4_signed(const uint8_t *row, int b)
{
    return _mm256_sub_epi8(q4_bytes(row, b), _mm256_set1_epi8(8));
}

/* The query stays in real space, where some channels are much larger than others: 16 bits. */
#define INT_CODES q4_bytes
#define INT_SIGNED q4_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 18)
#define INT_GROUP 1
#define INT_STEP 1.0f
#define INT_OFFSET 8
#define INT_WIDE_QUERY 1
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_q4_0_kernels_avx2 = {
    .encode = q4_encode, .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
