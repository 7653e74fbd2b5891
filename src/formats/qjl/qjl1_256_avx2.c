/* qjl1_256_avx2.c: 34 bytes per 128 values: [signs u8 x 32][norm bf16], 256 sketch values (see qjl1_256.c).
 * A sketch value is +-(scale * norm): a bit moved to the sign position of a constant. */
#include "base/half.h"
#include "formats/simd_avx2.h"

static inline void qjl_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 8) * 34;
    const __m256i top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24), sign = _mm256_set1_epi32((int)0x80000000u);
    uint32_t bits;
    uint16_t norm;
    memcpy(&bits, group + b % 8 * 4, sizeof bits);
    memcpy(&norm, group + 32, sizeof norm);
    __m256i x = _mm256_set1_epi32((int)~bits);
    vf scale = vf_mul(vf_set1(bits_f32(0x3ba06c99u)), vf_set1(bf16_to_f32(norm)));

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

#include "formats/qjl/qjl1_256_simd.h"

const kvant_format_kernels kvant_qjl1_256_kernels_avx2 = {
    .encode = qjl_encode, .prep_q = qjl_prep_q, .decode_acc = qjl_decode_acc, .score = qjl_score, .axpy = qjl_axpy,
};
