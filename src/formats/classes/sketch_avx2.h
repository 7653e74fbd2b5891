/* sketch_avx2.h: signs of a sketch (qjl1_256.c): a sketch value is +-(scale * norm): a bit moved to the sign
 * position of a constant. */
#include <math.h>
#include "formats/simd/simd_card.h"
#include "kvant/qjl.h"

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const __m256i top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24), sign = _mm256_set1_epi32((int)0x80000000u);
    uint32_t bits;
    uint16_t norm;
    memcpy(&bits, card_codes(row, b), sizeof bits);
    memcpy(&norm, card_scale(row, b), sizeof norm);
    __m256i x = _mm256_set1_epi32((int)~bits);
    vf scale = vf_mul(vf_set1(bits_f32(CARD_SCALE_TIMES)), vf_set1(bf16_to_f32(norm)));

    v[0] = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(_mm256_sllv_epi32(x, top), sign)));
    x = _mm256_srli_epi32(x, 8);
    v[1] = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(_mm256_sllv_epi32(x, top), sign)));
    x = _mm256_srli_epi32(x, 8);
    v[2] = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(_mm256_sllv_epi32(x, top), sign)));
    x = _mm256_srli_epi32(x, 8);
    v[3] = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(_mm256_sllv_epi32(x, top), sign)));
}

static inline uint8_t positive_bits(vf v)
{
    return (uint8_t)_mm256_movemask_ps(_mm256_cmp_ps(v, vf_zero(), _CMP_GT_OQ));
}

#include "formats/classes/sketch_eight.h"
