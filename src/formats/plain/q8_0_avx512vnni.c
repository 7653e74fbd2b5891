/* q8_0_avx512vnni.c: 34 bytes per 32 values: [d fp16][q i8 x 32] (see q8_0.c): the integer path.  A code plus 128
 * is its byte with the top bit flipped; queries have two digits, as on AVX2. */
#include "formats/format.h"
#include "formats/simd_keys_avx512vnni.h"

static inline void q8_quad(const uint8_t *p, size_t stride, __m512i *x)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    x[0] = _mm512_xor_si512(keys_quad(p, stride), flip);
    x[1] = _mm512_xor_si512(keys_quad(p + 16, stride), flip);
}

#define INT_KEYS(p, stride, b, x) keys_bytes16((p) + (size_t)(b) * 34 + 2, stride, _mm512_set1_epi8((char)0x80), x)
#define INT_QUAD(p, stride, b, x) q8_quad((p) + (size_t)(b) * 34 + 2, stride, x)
#define INT_VALUE(j) (j)
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 34)
#define INT_GROUP 1
#define INT_STEP 1.0f
#define INT_OFFSET 128
#define INT_DIGITS 2
#define INT_MAX_ROW (16 * 34)
#include "formats/simd_int_avx512vnni.h"

const kvant_format_kernels kvant_q8_0_kernels_avx512vnni = {
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
