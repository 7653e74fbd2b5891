/* f8_e4m3_avx2.c: one byte per value, S.EEEE.MMM, times one f32 scale (see f8_e4m3.c).
 * Normal codes get their exponent rebased by an addition; the eight subnormal magnitudes are the integers times 2^-9
 * (a product of f32 denormals would do for both, at a hundred cycles each). */
#include "formats/simd_avx2.h"

static inline vf f8_chunk(const uint8_t *p, vf scale)
{
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)),
            low = _mm256_and_si256(x, _mm256_set1_epi32(0x7f));
    __m256i sign = _mm256_slli_epi32(_mm256_sub_epi32(x, low), 24);
    vf normal = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(low, 20), _mm256_set1_epi32(120 << 23)));
    vf small = vf_mul(_mm256_cvtepi32_ps(low), vf_set1(0x1p-9f));
    vf v = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), low)));
    vf nan = _mm256_castsi256_ps(_mm256_cmpeq_epi32(low, _mm256_set1_epi32(0x7f)));
    v = _mm256_or_ps(_mm256_or_ps(v, nan), _mm256_castsi256_ps(sign));
    return vf_mul(v, scale);
}

#include "formats/plain/f8_e4m3_simd.h"

const kvant_format_kernels kvant_f8_e4m3_kernels_avx2 = {
    .decode_acc = f8_decode_acc, .score = f8_score, .axpy = f8_axpy,
};
