/* turbo3_avx2.c: four blocks [norm fp16][qs u8 x 8][signs u8 x 4] of 32 values per 128 (see turbo3.c).
 * The low two bits of a code index four centroids inside a lane (vpermilps, one cycle where vpermps takes three), its
 * high bit blends the two halves of the table. */
#include "formats/simd_encode_avx2.h"
#include "formats/turbo/turbo3_simd.h"

static inline vf turbo3_chunk(const uint8_t *block, int c, __m256i signs, vf low, vf high)
{
    const __m256i twos = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    uint16_t q;
    memcpy(&q, block + 2 + 2 * c, sizeof q);
    __m256i code = _mm256_srlv_epi32(_mm256_set1_epi16((short)q), twos);
    return _mm256_blendv_ps(_mm256_permutevar_ps(low, code), _mm256_permutevar_ps(high, code),
                            _mm256_castsi256_ps(signs));
}

static inline void turbo3_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 14;
    const __m256i top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    int32_t s;
    memcpy(&s, block + 10, sizeof s);
    __m256i signs = _mm256_set1_epi32(s);
    vf norm = vf_splat_f16(block);
    vf low = vf_mul(norm, _mm256_broadcast_ps((const __m128 *)(const void *)centroids));
    vf high = vf_mul(norm, _mm256_broadcast_ps((const __m128 *)(const void *)(centroids + 4)));

    v[0] = turbo3_chunk(block, 0, _mm256_sllv_epi32(signs, top), low, high);
    v[1] = turbo3_chunk(block, 1, _mm256_sllv_epi32(signs, _mm256_sub_epi32(top, _mm256_set1_epi32(8))), low, high);
    v[2] = turbo3_chunk(block, 2, _mm256_sllv_epi32(signs, _mm256_sub_epi32(top, _mm256_set1_epi32(16))), low, high);
    v[3] = turbo3_chunk(block, 3, _mm256_sllv_epi32(signs, _mm256_sub_epi32(top, _mm256_set1_epi32(24))), low, high);
}

#define BLOCK_DECODE turbo3_decode32
#include "formats/simd_blocks.h"

/* The bytes of codes 0..3 and of codes 4..7, each readable by a code c at bits 0-1 (entry c) or at bits 2-3 (entry
 * 4c). */
#define TURBO3_SPREAD(a, b, c, d) { a, b, c, d, b, 0, 0, 0, c, 0, 0, 0, d, 0, 0, 0 }
#define TURBO3_SPREAD_(...) TURBO3_SPREAD(__VA_ARGS__)
static const uint8_t bytes[2][16] = { TURBO3_SPREAD_(TURBO3_LOW_BYTES), TURBO3_SPREAD_(TURBO3_HIGH_BYTES) };

/* Natural order.  Value j takes byte qs[j/4]; values 2 and 3 of a byte move down by 4 bits, so that every code lies at
 * bits 0-1 or 2-3, as the tables expect. */
static inline __m256i turbo3_bytes(const uint8_t *row, int b)
{
    const uint8_t *block = row + (size_t)b * 14;
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6,
                                            6, 6, 6, 7, 7, 7, 7);
    const __m256i each = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                          3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    int64_t low;
    int32_t high;
    memcpy(&low, block + 2, sizeof low);
    memcpy(&high, block + 10, sizeof high);
    __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi64x(low), spread);
    x = _mm256_and_si256(_mm256_blend_epi16(x, _mm256_srli_epi16(x, 4), 0xaa), _mm256_set1_epi16(0x0c03));
    __m256i s = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(high), each), bit);
    return _mm256_blendv_epi8(_mm256_shuffle_epi8(bytes_twice(bytes[0]), x),
                              _mm256_shuffle_epi8(bytes_twice(bytes[1]), x), _mm256_cmpeq_epi8(s, bit));
}

static inline __m256i turbo3_signed(const uint8_t *row, int b)
{
    return _mm256_sub_epi8(turbo3_bytes(row, b), _mm256_set1_epi8(INT_CENTRE));
}

#define INT_CODES turbo3_bytes
#define INT_SIGNED turbo3_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 14)
#define INT_GROUP 1
#define INT_STEP TURBO3_STEP
#define INT_OFFSET INT_CENTRE
#define INT_WIDE_QUERY 0
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_turbo3_kernels_avx2 = {
    .encode = turbo3_encode, .prep_q = turbo_prep_q, .finish_out = turbo_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
