/* q8_0_avx2.c: 34 bytes per 32 values: [d fp16][q i8 x 32] (see q8_0.c). */
#include "formats/format.h"
#include "formats/simd_avx2.h"

static inline vf q8_chunk(const uint8_t *q, vf d)
{
    __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)q));
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(x));
}

static inline void q8_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 34;
    vf d = vf_splat_f16(block);
    v[0] = q8_chunk(block + 2, d);
    v[1] = q8_chunk(block + 10, d);
    v[2] = q8_chunk(block + 18, d);
    v[3] = q8_chunk(block + 26, d);
}

#define BLOCK_DECODE q8_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_q8_0_kernels_avx2 = {
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
