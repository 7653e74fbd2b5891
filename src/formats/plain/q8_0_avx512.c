/* q8_0_avx512.c: 34 bytes per 32 values: [d fp16][q i8 x 32] (see q8_0.c). */
#include "formats/best_avx512.h"
#include "formats/format.h"
#include "formats/simd_avx512.h"

static inline void q8_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 34;
    vf d = vf_splat_f16(block);
    v[0] = vf_mul(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes16(block + 2))));
    v[1] = vf_mul(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes16(block + 18))));
}

#define BLOCK_DECODE q8_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_q8_0_kernels_avx512 = {
    .encode = best_q8_0_avx512,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
