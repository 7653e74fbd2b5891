/* score_i8_avx512vnni.c: 64 signs are a mask register: the chosen bytes of the query, times one, by vpdpbusd. */
#include "formats/qjl/score_i8.h"

#include "base/simd/vf_avx512.h"

static inline int row_sum(const uint8_t *row, const __m512i *q)
{
    const __m512i one = _mm512_set1_epi8(1);
    __m512i even = _mm512_setzero_si512(), odd = even;
    uint64_t m[4];

    memcpy(m, row, sizeof m);
    even = _mm512_dpbusd_epi32(even, one, _mm512_maskz_mov_epi8(m[0], q[0]));
    odd = _mm512_dpbusd_epi32(odd, one, _mm512_maskz_mov_epi8(m[1], q[1]));
    even = _mm512_dpbusd_epi32(even, one, _mm512_maskz_mov_epi8(m[2], q[2]));
    odd = _mm512_dpbusd_epi32(odd, one, _mm512_maskz_mov_epi8(m[3], q[3]));
    return _mm512_reduce_add_epi32(_mm512_add_epi32(even, odd));
}

void kvant_qjl_score_i8_avx512vnni(const int8_t *q, float scale, const uint8_t *rows, size_t stride, int n, float *s)
{
    const int all = kvant_qjl_score_i8_all(q);
    __m512i query[4];

    for (int b = 0; b < 4; b++)
        query[b] = load512(q + 64 * b);
    for (int i = 0; i < n; i++, rows += stride)
        s[i] = kvant_qjl_score_i8_result(rows, scale, 2 * row_sum(rows, query) - all);
}
