/* f8_e4m3_avx512.c: one byte per value, S.EEEE.MMM, times one f32 scale (see f8_e4m3.c, f8_e4m3_avx2.c). */
#include "formats/simd_avx512.h"

static inline vf f8_chunk(const uint8_t *p, vf scale)
{
    __m512i x = _mm512_cvtepu8_epi32(bytes16(p)), low = _mm512_and_si512(x, _mm512_set1_epi32(0x7f));
    __m512i normal = _mm512_add_epi32(_mm512_slli_epi32(low, 20), _mm512_set1_epi32(120 << 23));
    vf small = vf_mul(_mm512_cvtepi32_ps(low), vf_set1(0x1p-9f));
    vf v = _mm512_mask_mov_ps(_mm512_castsi512_ps(normal), _mm512_cmplt_epi32_mask(low, _mm512_set1_epi32(8)), small);
    v = _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(v),
                                                   _mm512_cmpeq_epi32_mask(low, _mm512_set1_epi32(0x7f)), 0x7fc00000));
    v = _mm512_or_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(x, low), 24)));
    return vf_mul(v, scale);
}

#include "formats/plain/f8_e4m3_simd.h"

const kvant_format_kernels kvant_f8_e4m3_kernels_avx512 = {
    .decode_acc = f8_decode_acc, .score = f8_score, .axpy = f8_axpy,
};
