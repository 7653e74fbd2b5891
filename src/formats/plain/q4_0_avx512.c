/* q4_0_avx512.c: 18 bytes per 32 values: [d fp16][qs u8 x 16] (see q4_0.c).
 * d*(n - 8) as fma(d, n, -8d), the reference's single rounding (see q4_0_avx2.c). */
#include "formats/format.h"
#include "formats/simd_avx512.h"

static inline void q4_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 18;
    vf d = vf_splat_f16(block), minus8d = vf_mul(d, vf_set1(-8.0f));
    __m512i lo, hi;
    codes4_low_high(block + 2, &lo, &hi);
    v[0] = vf_fma(d, _mm512_cvtepi32_ps(_mm512_and_si512(lo, _mm512_set1_epi32(15))), minus8d);
    v[1] = vf_fma(d, _mm512_cvtepi32_ps(hi), minus8d);
}

#define BLOCK_DECODE q4_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_q4_0_kernels_avx512 = {
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
