/* turbo3_avx512.c: four blocks [norm fp16][qs u8 x 8][signs u8 x 4] of 32 values per 128 (see turbo3.c).
 * Two tables of four centroids, repeated over a register; the high bits are the mask between them. */
#include "formats/best_avx512.h"
#include "formats/format.h"
#include "formats/simd_avx512.h"
#include "cards/tables.inc"

static const float centroids[8] = { TURBO3_CENTROIDS };

static inline void turbo3_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *block = row + (size_t)b * 14;
    const __m512i twos = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    vf norm = vf_splat_f16(block);
    vf low = vf_mul(norm, _mm512_broadcast_f32x4(_mm_loadu_ps(centroids)));
    vf high = vf_mul(norm, _mm512_broadcast_f32x4(_mm_loadu_ps(centroids + 4)));
    uint32_t signs;
    memcpy(&signs, block + 10, sizeof signs);
    __m512i a = _mm512_srlv_epi32(words(block + 2, block + 2), twos),
            c = _mm512_srlv_epi32(words(block + 6, block + 6), twos);
    v[0] = _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(a, low), (__mmask16)signs, a, high);
    v[1] = _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(c, low), (__mmask16)(signs >> 16), c, high);
}

#define BLOCK_DECODE turbo3_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_turbo3_kernels_avx512 = {
    .encode = best_turbo3_avx512,
    .decode_acc = blocks_decode_acc, .score = blocks_score, .axpy = blocks_axpy,
};
