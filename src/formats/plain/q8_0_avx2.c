/* q8_0_avx2.c: 34 bytes per 32 values: [d fp16][q i8 x 32] (see q8_0.c). */
#include "formats/format.h"
#include "formats/simd_encode_avx2.h"

static inline vf q8_chunk(const uint8_t *q, vf d)
{
    __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)q));
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(x));
}

static inline void q8_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 34;
    vf d = vf_splat_f16(block);
    v[0] = q8_chunk(block + 2, d);
    v[1] = q8_chunk(block + 10, d);
    v[2] = q8_chunk(block + 18, d);
    v[3] = q8_chunk(block + 26, d);
}

#define BLOCK_DECODE q8_decode32
#include "formats/simd_blocks.h"

/* Round half away from zero, clamped to +-127, NaN to 0: as q8_code of the reference. */
static inline vi q8_codes(vf v)
{
    const vf sign = _mm256_set1_ps(-0.0f);
    vf t = _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
       rest = _mm256_andnot_ps(sign, _mm256_sub_ps(v, t));
    vf one = _mm256_or_ps(_mm256_and_ps(v, sign), _mm256_set1_ps(1.0f));
    t = _mm256_add_ps(t, _mm256_and_ps(_mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ), one));
    t = _mm256_max_ps(_mm256_min_ps(t, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-127.0f));
    return _mm256_cvttps_epi32(_mm256_and_ps(t, _mm256_cmp_ps(v, v, _CMP_ORD_Q)));
}

static inline void put_bytes(uint8_t *q, const vi *code)
{
    __m256i lo = _mm256_packs_epi32(code[0], code[1]), hi = _mm256_packs_epi32(code[2], code[3]);
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi),
                                                _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
}

#include "formats/plain/q8_0_simd.h"

static inline __m256i q8_bytes(const uint8_t *row, int b)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(row + (size_t)b * 34 + 2));
    return _mm256_xor_si256(x, _mm256_set1_epi8(-128));
}

static inline __m256i q8_signed(const uint8_t *row, int b)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(row + (size_t)b * 34 + 2));
}

#define INT_CODES q8_bytes
#define INT_SIGNED q8_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 34)
#define INT_GROUP 1
#define INT_STEP 1.0f
#define INT_OFFSET 128
#define INT_WIDE_QUERY 1
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_q8_0_kernels_avx2 = {
    .encode = q8_encode, .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
