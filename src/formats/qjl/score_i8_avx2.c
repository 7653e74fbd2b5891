/* score_i8_avx2.c: a dword of signs becomes 32 byte masks; vpmaddubsw adds pairs of the chosen bytes of the query.  A
 * word holds 8 such pairs, at most 2032.  The query stays in 8 registers. */
#include "formats/qjl/score_i8.h"

#include "base/simd/vf_avx2.h"

static inline __m256i chosen(const uint8_t *signs, __m256i q)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                            3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    int32_t word;

    memcpy(&word, signs, sizeof word);
    const __m256i x = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), spread), bit);
    return _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_and_si256(_mm256_cmpeq_epi8(x, bit), q));
}

/* The sum of q at the set bits of a row, as 8 parts. */
static inline __m256i row_parts(const uint8_t *row, const __m256i *q)
{
    __m256i even = _mm256_setzero_si256(), odd = even;
    for (int b = 0; b < 8; b += 2) {
        even = _mm256_add_epi16(even, chosen(row + 4 * b, q[b]));
        odd = _mm256_add_epi16(odd, chosen(row + 4 * b + 4, q[b + 1]));
    }
    return _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
}

static inline int sum8(__m256i v)
{
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

void kvant_qjl_score_i8_avx2(const int8_t *q, float scale, const uint8_t *rows, size_t stride, int n, float *s)
{
    const int all = kvant_qjl_score_i8_all(q);
    __m256i query[8];

    for (int b = 0; b < 8; b++)
        query[b] = load256(q + 32 * b);
    for (int i = 0; i < n; i++, rows += stride)
        s[i] = kvant_qjl_score_i8_result(rows, scale, 2 * sum8(row_parts(rows, query)) - all);
}
